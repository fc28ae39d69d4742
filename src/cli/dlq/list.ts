import {
  listDeadLetterGroups,
  findDeadLetters,
  viewDeadLetter,
  type DeadLetterFilter,
  type DeadLetterAdmin,
  type DeadLetterGroups,
} from "../../admin/index.ts";
import { textValue, type CommandInput, type Io } from "../command.ts";
import { DONE, FOUND } from "../exit-codes.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { dropUndefined, numberValue } from "../saga/input.ts";
import { printOrWatch } from "../watch.ts";
import { readFilter, isFiltered, cutToSecond, shorten, withDeadLetters } from "./input.ts";
import { deadLetterText } from "./dead-letter-text.ts";

export function groups(input: CommandInput, io: Io): Promise<number> {
  return withDeadLetters(input, io, (admin) => printOrWatch(input, io, () => readGroups(admin, input)));
}

async function readGroups(
  admin: DeadLetterAdmin,
  input: CommandInput,
): Promise<{ text: string; code: number }> {
  const found = await listDeadLetterGroups(admin, {
    ...readFilter(input),
    ...dropUndefined({ limit: numberValue(input, "limit") }),
  });
  const text = input.values["json"] === true ? jsonText(found) : groupsText(found);
  return { text, code: input.values["check"] === true && found.open > 0 ? FOUND : DONE };
}

function groupsText({ open, count, groups: all }: DeadLetterGroups): string {
  if (open === 0) return "There are no open dead letters.";
  const rows = all.map((group) => [
    group.fingerprint,
    group.open,
    group.consumer ?? "outbox",
    group.type,
    group.reason,
    shorten(`${group.errorType}: ${group.errorMessage}`, 60),
    cutToSecond(group.firstAt),
    cutToSecond(group.lastAt),
    group.sampleId,
    group.replayed,
    group.discarded,
  ]);
  const headings = ["group", "open", "consumer", "type", "died", "error", "first", "last", "sample"];
  const [largest] = all;
  return [
    table([...headings, "replayed", "discarded"], rows),
    "",
    `${open} open dead ${open === 1 ? "letter" : "letters"} of ${count} ${count === 1 ? "cause" : "causes"}.` +
      (count > all.length ? ` ${all.length} are shown; --limit shows more.` : ""),
    `Look at one:        sagabox dlq show ${largest?.sampleId ?? "<letter>"}`,
    `Letters of a group: sagabox dlq list --group ${largest?.fingerprint ?? "<group>"}`,
    `Try a replay:       sagabox dlq replay --group ${largest?.fingerprint ?? "<group>"} --dry-run`,
  ].join("\n");
}

/** Without a word about which, the causes say more than thousands of letters. */
export function list(input: CommandInput, io: Io): Promise<number> {
  const { values } = input;
  const plain = ["letters", "closed", "after"].every((name) => values[name] === undefined);
  if (plain && !isFiltered(input)) return groups(input, io);
  const filter: DeadLetterFilter = {
    ...readFilter(input),
    open: values["closed"] !== true,
    ...dropUndefined({ limit: numberValue(input, "limit"), after: textValue(input, "after") }),
  };
  return withDeadLetters(input, io, (admin) =>
    printOrWatch(input, io, async () => {
      const letters = await findDeadLetters(admin, filter);
      const found = values["check"] === true && letters.some(({ closedAs }) => closedAs === null);
      const text =
        values["json"] === true ? jsonText({ letters }) : deadLettersText(letters, filter.limit ?? 50);
      return { text, code: found ? FOUND : DONE };
    }),
  );
}

function deadLettersText(letters: Awaited<ReturnType<typeof findDeadLetters>>, limit: number): string {
  if (letters.length === 0) return "There are no such dead letters.";
  const rows = letters.map((letter) => [
    letter.id,
    letter.fingerprint,
    letter.consumer ?? "outbox",
    letter.type,
    letter.messageId,
    letter.key,
    letter.reason,
    letter.attempts,
    shorten(`${letter.errorType}: ${letter.errorMessage}`, 60),
    cutToSecond(letter.failedAt),
    letter.closedAs,
  ]);
  const headings = [
    "letter",
    "group",
    "consumer",
    "type",
    "message",
    "key",
    "died",
    "attempts",
    "error",
    "at",
  ];
  const more = letters.length < limit ? [] : ["", `More: add --after ${letters.at(-1)?.id ?? ""}`];
  return [table([...headings, "closed"], rows), ...more].join("\n");
}

export async function show(input: CommandInput, io: Io): Promise<number> {
  const letter = await withDeadLetters(input, io, (admin) =>
    viewDeadLetter(admin, input.positionals[1] ?? ""),
  );
  io.out(input.values["json"] === true ? jsonText(letter) : safeLines(deadLetterText(letter)));
  return DONE;
}
