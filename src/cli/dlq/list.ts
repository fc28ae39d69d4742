import { auditFlags } from "../../errors/index.ts";
import {
  type DeadLetterAdmin,
  type DeadLetterFilter,
  type DeadLetterGroups,
  type DeadLetterView,
  findDeadLetters,
  listDeadLetterGroups,
  viewDeadLetter,
} from "../../admin/index.ts";
import { type CommandInput, DONE, FOUND, type Io, textValue } from "../command.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { dropUndefined, numberValue } from "../option-values.ts";
import { printOrWatch } from "../watch.ts";
import { cutToSecond, isFiltered, readFilter, shorten, withDeadLetters } from "./input.ts";

export function groups(input: CommandInput, io: Io): Promise<number> {
  return withDeadLetters(input, io, (admin) =>
    printOrWatch(input, io, () => readGroups(admin, input, io.terminal?.columns)),
  );
}

async function readGroups(
  admin: DeadLetterAdmin,
  input: CommandInput,
  columns: number | undefined,
): Promise<{ text: string; code: number }> {
  const found = await listDeadLetterGroups(admin, {
    ...readFilter(input),
    ...dropUndefined({ limit: numberValue(input, "limit") }),
  });
  const text = input.values["json"] === true ? jsonText(found) : groupsText(found, columns);
  return { text, code: input.values["check"] === true && found.open > 0 ? FOUND : DONE };
}

function groupsText({ open, count, groups: all }: DeadLetterGroups, columns: number | undefined): string {
  if (open === 0) return "No open dead letters.";
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
    table([...headings, "replayed", "discarded"], rows, columns),
    "",
    `${open} open dead ${open === 1 ? "letter" : "letters"} in ${count} ${count === 1 ? "group" : "groups"}.` +
      (count > all.length ? ` ${all.length} are shown; --limit shows more.` : ""),
    `Show the sample:  sagabox dlq show ${largest?.sampleId ?? "<id>"}`,
    `List a group:     sagabox dlq list --group ${largest?.fingerprint ?? "<group>"}`,
    `Plan a replay:    sagabox dlq replay --group ${largest?.fingerprint ?? "<group>"} --dry-run`,
  ].join("\n");
}

/** Without a filter it prints groups, because thousands of single dead letters are hard to read. */
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
        values["json"] === true
          ? jsonText({ deadLetters: letters })
          : deadLettersText(letters, filter.limit ?? 50, io.terminal?.columns);
      return { text, code: found ? FOUND : DONE };
    }),
  );
}

function deadLettersText(
  letters: Awaited<ReturnType<typeof findDeadLetters>>,
  limit: number,
  columns: number | undefined,
): string {
  if (letters.length === 0) return "No matching dead letters.";
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
  const headings = ["id", "group", "consumer", "type", "message", "key", "died", "attempts", "error", "at"];
  const more = letters.length < limit ? [] : ["", `More: add --after ${letters.at(-1)?.id ?? ""}`];
  return [table([...headings, "closed"], rows, columns), ...more].join("\n");
}

export async function show(input: CommandInput, io: Io, id: string): Promise<number> {
  const letter = await withDeadLetters(input, io, (admin) => viewDeadLetter(admin, id));
  io.out(input.values["json"] === true ? jsonText(letter) : safeLines(deadLetterText(letter)));
  return DONE;
}

/** Renders one dead letter: message, error, data, earlier actions and the next commands. */
export function deadLetterText(letter: DeadLetterView): string {
  const { original_message: message, dlq_metadata: why } = letter;
  const marks = [
    ...(letter.isEncrypted ? ["personal fields encrypted"] : []),
    ...(letter.isClaimChecked ? ["payload in a store"] : []),
  ];
  const state = why.closed_as === null ? "open" : `${why.closed_as} at ${cutToSecond(why.closed_at ?? "")}`;
  return [
    `Dead letter ${why.id}, ${state}`,
    `group ${why.fingerprint ?? "not assigned yet"}: ${shorten(letter.label, 120)}`,
    "",
    `died      ${cutToSecond(why.failed_at)} at ${why.consumer_group ?? "the outbox"}, ${why.reason} after ${why.retry_count} attempts`,
    `error     ${why.error_type}: ${why.error_message}`,
    `message   ${message.id}, ${message.kind} ${message.type} version ${message.schemaVersion}, topic ${message.topic}`,
    `key       ${message.key ?? "none"}, written ${cutToSecond(message.writtenAt)} by ${message.source}`,
    `trace     ${letter.traceId ?? "none"}, correlation id ${message.correlationId}` +
      (message.sagaId === null ? "" : `, saga ${message.sagaId}`),
    `headers   ${JSON.stringify(message.headers)}`,
    `data      ${message.data}${marks.length === 0 ? "" : `  (${marks.join(", ")})`}`,
    ...stackLines(why.stack_trace, why.error_message),
    ...section("Other dead letters of this message for this consumer:", letter.others.map(relatedText)),
    ...section("Replays with edited data:", letter.edits.map(editText)),
    ...section("Actions:", letter.actions.map(actionText)),
    ...nextSteps(letter),
  ]
    .map(indentLines)
    .join("\n");
}

// Indents continuation lines, so that text from a message or an operator cannot imitate a line of this output.
function indentLines(line: string): string {
  return line.replaceAll("\n", "\n          ");
}

/** Renders the stack without the error message at its start, which is printed above already. */
export function stackLines(stack: string | null, message: string): readonly string[] {
  if (stack === null) return [];
  const frames = stack.search(/^\s+at /m);
  const head = frames === -1 ? stack : stack.slice(0, frames);
  const rest = head.includes(message) ? stack.slice(head.length) : stack;
  return rest.trim() === ""
    ? []
    : [
        "",
        ...rest
          .trimEnd()
          .split("\n")
          .map((line) => `  ${line.trim()}`),
      ];
}

function section(title: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0 ? [] : ["", title, ...lines.map((line) => `  ${line}`)];
}

function relatedText(other: DeadLetterView["others"][number]): string {
  const { id, failedAt, reason, errorType, errorMessage, closedAs } = other;
  return `dead letter ${id}, ${cutToSecond(failedAt)}, ${reason}, ${closedAs ?? "open"}: ${shorten(`${errorType}: ${errorMessage}`)}`;
}

function editText(edit: DeadLetterView["edits"][number]): string {
  const checked =
    edit.contract === null ? "not checked against a contract" : `checked against ${edit.contract}`;
  const change = `${edit.beforeHash.slice(0, 12)} → ${edit.afterHash.slice(0, 12)}`;
  return `${cutToSecond(edit.at)} version ${edit.version} by ${edit.actor}: ${edit.reason} (dead letter ${edit.deadLetterId}, ${change}, ${checked})`;
}

function actionText({
  at,
  actor,
  action,
  reason,
  outcome,
  deadLetterId,
}: DeadLetterView["actions"][number]): string {
  return `${cutToSecond(at)} ${action} of dead letter ${deadLetterId} by ${actor}, ${outcome}${reason === null ? "" : `: ${reason}`}`;
}

function nextSteps({
  original_message: message,
  dlq_metadata: { id, closed_as: closed },
}: DeadLetterView): string[] {
  const explain = `Full history:    sagabox explain ${message.id}`;
  if (closed !== null) return ["", explain];
  const act = `After the fix:   sagabox dlq replay ${id} ${auditFlags("cause fixed")}`;
  return ["", explain, act, `Or close it:     sagabox dlq discard ${id} ${auditFlags("not needed")} --yes`];
}
