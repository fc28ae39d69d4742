import {
  discardAndWake,
  discardDeadLetters,
  listDeadLetterGroups,
  type DiscardResult,
  type DeadLetterGroups,
} from "../../admin/index.ts";
import { readActorAndReason, readDecision } from "../actor.ts";
import { UsageError, type CommandInput, type Io } from "../command.ts";
import { confirmAction, isDryRun } from "../confirm.ts";
import { DONE, STOPPED } from "../exit-codes.ts";
import { runInterruptible } from "../interrupt.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { startProgress } from "../progress.ts";
import { readFilter, isFiltered, shorten, withDeadLetters } from "./input.ts";

/** `dlq discard <letter>` */
export async function discardOne(input: CommandInput, io: Io): Promise<number> {
  const id = input.positionals[1] ?? "";
  const by = readActorAndReason(input, io);
  const what = `Letter ${id} is closed for good, and its message is never handled.`;
  if (!(await confirmAction(input, io, { what }))) return STOPPED;
  const letter = await withDeadLetters(input, io, (admin) => discardAndWake(admin, id, by));
  if (input.values["json"] === true)
    io.out(jsonText({ discarded: 1, letter: letter.id, messageId: letter.message.id }));
  else io.out(safeLines(`Letter ${letter.id} of message ${letter.message.id} was discarded.`));
  return DONE;
}

/** `dlq discard --group …`: says what it would do, and does it once that is confirmed. */
export async function discardMany(input: CommandInput, io: Io): Promise<number> {
  if (!isFiltered(input) && input.values["all"] !== true) {
    throw new UsageError('"sagabox dlq discard" needs a letter, a filter such as --group, or --all.');
  }
  const filter = readFilter(input);
  const findGroups = () => withDeadLetters(input, io, (admin) => listDeadLetterGroups(admin, filter));
  if (isDryRun(input)) {
    const { open, groups } = await findGroups();
    const text = `${groupsText(groups)}\n\n${open} letters would be closed for good. Nothing was discarded: this was a dry run.`;
    io.out(input.values["json"] === true ? jsonText({ dryRun: true, letters: open, groups }) : text);
    return DONE;
  }
  const by = readDecision(input, io);
  if (input.values["yes"] !== true) {
    const { open, groups } = await findGroups();
    io.err(groupsText(groups));
    const what = `${open} letters are closed for good, and their messages are never handled.`;
    if (!(await confirmAction(input, io, { what, matters: open > 0 }))) return STOPPED;
  }
  const bar = startProgress(io, "Discarded");
  const result = await withDeadLetters(input, io, (admin) =>
    runInterruptible(io, (signal) =>
      discardDeadLetters(admin, filter, { ...by, signal, onProgress: (done) => bar.update(done) }),
    ),
  ).finally(() => bar.end());
  io.out(input.values["json"] === true ? jsonText(result) : discardingText(result));
  return result.finished ? DONE : STOPPED;
}

function groupsText(groups: DeadLetterGroups["groups"]): string {
  const rows = groups.map((group) => [group.fingerprint, group.open, shorten(group.label, 90)]);
  return table(["group", "open", "cause"], rows);
}

function discardingText({ discarded, left }: DiscardResult): string {
  const done = `${discarded} letters were discarded.`;
  if (left === 0) return done;
  return `${done} ${left} are still open: it was stopped, or somebody else is at work on them. Run it again for the rest.`;
}
