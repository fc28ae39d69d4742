import {
  discardLetter,
  discardLetters,
  letterGroups,
  type Discarding,
  type LetterGroups,
} from "../../admin/index.ts";
import { whoAndWhy, decidedBy } from "../acting.ts";
import { UsageError, type CommandInput, type Io } from "../command.ts";
import { confirmed, isDryRun } from "../confirm.ts";
import { DONE, STOPPED } from "../exit-codes.ts";
import { interruptible } from "../interrupt.ts";
import { json, safeLines, table } from "../print.ts";
import { progress } from "../progress.ts";
import { filterOf, isFiltered, short, withLetters } from "./input.ts";

/** `dlq discard <letter>` */
export async function discardOne(input: CommandInput, io: Io): Promise<number> {
  const id = input.positionals[1] ?? "";
  const by = whoAndWhy(input, io);
  const what = `Letter ${id} is closed for good, and its message is never handled.`;
  if (!(await confirmed(input, io, { what }))) return STOPPED;
  const letter = await withLetters(input, io, (admin) => discardLetter(admin, id, by));
  if (input.values["json"] === true)
    io.out(json({ discarded: 1, letter: letter.id, messageId: letter.message.id }));
  else io.out(safeLines(`Letter ${letter.id} of message ${letter.message.id} was discarded.`));
  return DONE;
}

/** `dlq discard --group …`: says what it would do, and does it once that is confirmed. */
export async function discardMany(input: CommandInput, io: Io): Promise<number> {
  if (!isFiltered(input) && input.values["all"] !== true) {
    throw new UsageError('"sagabox dlq discard" needs a letter, a filter such as --group, or --all.');
  }
  const filter = filterOf(input);
  const found = () => withLetters(input, io, (admin) => letterGroups(admin, filter));
  if (isDryRun(input)) {
    const { open, groups } = await found();
    const text = `${groupsText(groups)}\n\n${open} letters would be closed for good. Nothing was discarded: this was a dry run.`;
    io.out(input.values["json"] === true ? json({ dryRun: true, letters: open, groups }) : text);
    return DONE;
  }
  const by = decidedBy(input, io);
  if (input.values["yes"] !== true) {
    const { open, groups } = await found();
    io.err(groupsText(groups));
    const what = `${open} letters are closed for good, and their messages are never handled.`;
    if (!(await confirmed(input, io, { what, matters: open > 0 }))) return STOPPED;
  }
  const bar = progress(io, "Discarded");
  const result = await withLetters(input, io, (admin) =>
    interruptible(io, (signal) =>
      discardLetters(admin, filter, { ...by, signal, onProgress: (done) => bar.at(done) }),
    ),
  ).finally(() => bar.end());
  io.out(input.values["json"] === true ? json(result) : discardingText(result));
  return result.finished ? DONE : STOPPED;
}

function groupsText(groups: LetterGroups["groups"]): string {
  const rows = groups.map((group) => [group.fingerprint, group.open, short(group.label, 90)]);
  return table(["group", "open", "cause"], rows);
}

function discardingText({ discarded, left }: Discarding): string {
  const done = `${discarded} letters were discarded.`;
  if (left === 0) return done;
  return `${done} ${left} are still open: it was stopped, or somebody else is at work on them. Run it again for the rest.`;
}
