import {
  letterGroups,
  listLetters,
  showLetter,
  type DeadLetterFilter,
  type LetterAdmin,
  type LetterGroups,
} from "../../admin/index.ts";
import { textValue, type CommandInput, type Io } from "../command.ts";
import { DONE, FOUND } from "../exit-codes.ts";
import { json, safeLines, table } from "../print.ts";
import { given, numberValue } from "../saga/input.ts";
import { watched } from "../watch.ts";
import { filterOf, isFiltered, second, short, withLetters } from "./input.ts";
import { letterText } from "./letter-text.ts";

export function groups(input: CommandInput, io: Io): Promise<number> {
  return withLetters(input, io, (admin) => watched(input, io, () => groupsNow(admin, input)));
}

async function groupsNow(admin: LetterAdmin, input: CommandInput): Promise<{ text: string; code: number }> {
  const found = await letterGroups(admin, {
    ...filterOf(input),
    ...given({ limit: numberValue(input, "limit") }),
  });
  const text = input.values["json"] === true ? json(found) : groupsText(found);
  return { text, code: input.values["check"] === true && found.open > 0 ? FOUND : DONE };
}

function groupsText({ open, count, groups: all }: LetterGroups): string {
  if (open === 0) return "There are no open dead letters.";
  const rows = all.map((group) => [
    group.fingerprint,
    group.open,
    group.consumer ?? "outbox",
    group.type,
    group.reason,
    short(`${group.errorType}: ${group.errorMessage}`, 60),
    second(group.firstAt),
    second(group.lastAt),
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
    ...filterOf(input),
    open: values["closed"] !== true,
    ...given({ limit: numberValue(input, "limit"), after: textValue(input, "after") }),
  };
  return withLetters(input, io, (admin) =>
    watched(input, io, async () => {
      const letters = await listLetters(admin, filter);
      const found = values["check"] === true && letters.some(({ closedAs }) => closedAs === null);
      const text = values["json"] === true ? json({ letters }) : lettersText(letters, filter.limit ?? 50);
      return { text, code: found ? FOUND : DONE };
    }),
  );
}

function lettersText(letters: Awaited<ReturnType<typeof listLetters>>, limit: number): string {
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
    short(`${letter.errorType}: ${letter.errorMessage}`, 60),
    second(letter.failedAt),
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
  const letter = await withLetters(input, io, (admin) => showLetter(admin, input.positionals[1] ?? ""));
  io.out(input.values["json"] === true ? json(letter) : safeLines(letterText(letter)));
  return DONE;
}
