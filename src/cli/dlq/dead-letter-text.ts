import type { DeadLetterView } from "../../admin/index.ts";
import { cutToSecond, shorten } from "./input.ts";

/** One letter for people: what it is, why it is here, what it carries, and what was done about it. */
export function deadLetterText(letter: DeadLetterView): string {
  const { original_message: message, dlq_metadata: why } = letter;
  const marks = [
    ...(letter.isSealed ? ["personal fields sealed"] : []),
    ...(letter.isClaimChecked ? ["payload in a store"] : []),
  ];
  const state = why.closed_as === null ? "open" : `${why.closed_as} at ${cutToSecond(why.closed_at ?? "")}`;
  return [
    `Dead letter ${why.id}, ${state}`,
    `group ${why.fingerprint ?? "none yet"}: ${shorten(letter.label, 120)}`,
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
    ...section("Other deaths of this message here:", letter.others.map(relatedText)),
    ...section("Replayed with other data:", letter.edits.map(editText)),
    ...section("What was done:", letter.actions.map(actionText)),
    ...nextSteps(letter),
  ]
    .map(indentLines)
    .join("\n");
}

// A text that came with the message or from whoever acted has no line that begins like one of ours.
function indentLines(line: string): string {
  return line.replaceAll("\n", "\n          ");
}

/** Where it was thrown. Most stacks begin with the error itself, which was told already. */
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
  return `letter ${id}, ${cutToSecond(failedAt)}, ${reason}, ${closedAs ?? "open"}: ${shorten(`${errorType}: ${errorMessage}`)}`;
}

function editText(edit: DeadLetterView["edits"][number]): string {
  const checked =
    edit.contract === null ? "not checked against a contract" : `checked against ${edit.contract}`;
  const change = `${edit.beforeHash.slice(0, 12)} → ${edit.afterHash.slice(0, 12)}`;
  return `${cutToSecond(edit.at)} version ${edit.version} by ${edit.actor}: ${edit.reason} (letter ${edit.letterId}, ${change}, ${checked})`;
}

function actionText({
  at,
  actor,
  action,
  reason,
  outcome,
  letterId,
}: DeadLetterView["actions"][number]): string {
  return `${cutToSecond(at)} ${action} of letter ${letterId} by ${actor}, ${outcome}${reason === null ? "" : `: ${reason}`}`;
}

function nextSteps({
  original_message: message,
  dlq_metadata: { id, closed_as: closed },
}: DeadLetterView): string[] {
  const explain = `Its whole life:  sagabox explain ${message.id}`;
  if (closed !== null) return ["", explain];
  const act = `Once repaired:   sagabox dlq replay ${id} --reason <text>`;
  return ["", explain, act, `Or for good:     sagabox dlq discard ${id} --reason <text> --yes`];
}
