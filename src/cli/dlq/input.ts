import { createDeadLetterAdmin, type DeadLetterAdmin, type ReplayFilter } from "../../admin/index.ts";
import { textValue, UsageError, type CommandInput, type CommandOption, type Io } from "../command.ts";
import { withSchema } from "../settings.ts";
import { dropUndefined, timeValue } from "../option-values.ts";

/** Options that select dead letters. */
export const filterOptions: Readonly<Record<string, CommandOption>> = {
  group: { type: "string", value: "<fingerprint>", help: "Only this group (see dlq groups)." },
  consumer: { type: "string", value: "<name>", help: "Only dead letters of this consumer." },
  outbox: { type: "boolean", help: "Only messages that could not be sent." },
  type: { type: "string", value: "<name>", help: "Only messages of this type." },
  topic: { type: "string", value: "<name>", help: "Only messages of this topic." },
  died: {
    type: "string",
    value: "<reason>",
    help: "Only this cause of death: exhausted, rejected, expired, buried or poison.",
  },
  message: { type: "string", value: "<id>", help: "Only dead letters of this message." },
  key: { type: "string", value: "<key>", help: "Only messages with this key." },
  "correlation-id": { type: "string", value: "<id>", help: "Only messages with this correlation id." },
  text: { type: "string", value: "<text>", help: "Only errors that contain this text." },
  since: {
    type: "string",
    value: "<time>",
    help: "Died at or after this time: 2026-11-16T08:00:00Z, or 2h for two hours ago.",
  },
  until: { type: "string", value: "<time>", help: "Died before this time." },
};

export const filterNames: readonly string[] = Object.keys(filterOptions);

export function withDeadLetters<T>(
  input: CommandInput,
  io: Io,
  work: (admin: DeadLetterAdmin) => Promise<T>,
): Promise<T> {
  return withSchema(input, io, "operator", (database, schema) =>
    work(createDeadLetterAdmin(database, schema)),
  );
}

export function isFiltered({ values }: CommandInput): boolean {
  return filterNames.some((name) => values[name] !== undefined);
}

/** Collects the filter options. The admin function checks the values, and its error lists the allowed ones. */
export function readFilter(input: CommandInput): ReplayFilter {
  return dropUndefined({
    fingerprint: groupValue(input),
    origin: input.values["outbox"] === true ? "outbox" : undefined,
    consumer: textValue(input, "consumer"),
    type: textValue(input, "type"),
    topic: textValue(input, "topic"),
    reason: textValue(input, "died"),
    messageId: textValue(input, "message"),
    key: textValue(input, "key"),
    correlationId: textValue(input, "correlation-id"),
    text: textValue(input, "text"),
    since: timeValue(input, "since"),
    until: timeValue(input, "until"),
  }) as ReplayFilter;
}

function groupValue(input: CommandInput): string | undefined {
  const group = textValue(input, "group");
  if (group === undefined || /^[0-9a-f]{12}$/.test(group)) return group;
  throw new UsageError(
    "--group must be the id of a group: twelve hexadecimal digits. `sagabox dlq groups` lists the groups.",
  );
}

export function shorten(text: string, max = 80): string {
  const line = text.replaceAll("\n", " ");
  return line.length <= max ? line : `${line.slice(0, max - 1)}…`;
}

/** Drops the fraction of a second from an ISO 8601 time. */
export function cutToSecond(time: string): string {
  return time.replace(/\.\d+Z$/, "Z");
}
