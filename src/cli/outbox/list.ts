import { ageText, explainMessage, listOutbox, outboxStats } from "../../admin/index.ts";
import type { OutboxFilter, WaitingMessage } from "../../admin/index.ts";
import { textValue, type CommandInput, type Io } from "../command.ts";
import { DONE } from "../exit-codes.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { dropUndefined, numberValue } from "../saga/input.ts";
import { withSchema } from "../settings.ts";
import { printOrWatch } from "../watch.ts";

export function list(input: CommandInput, io: Io): Promise<number> {
  // The function behind checks these values, and says which are allowed.
  const filter = dropUndefined({
    state: textValue(input, "state"),
    topic: textValue(input, "topic"),
    type: textValue(input, "type"),
    key: textValue(input, "key"),
    olderThan: textValue(input, "older-than"),
    minAttempts: numberValue(input, "min-attempts"),
    limit: numberValue(input, "limit"),
    after: textValue(input, "after"),
  }) as OutboxFilter;
  return withSchema(input, io, "viewer", (database, schema) =>
    printOrWatch(input, io, async () => {
      const messages = await listOutbox(database, schema, filter);
      const text = input.values["json"] === true ? jsonText({ messages }) : listText(messages, filter);
      return { text, code: DONE };
    }),
  );
}

function listText(messages: readonly WaitingMessage[], { limit = 50 }: OutboxFilter): string {
  if (messages.length === 0) return "Nothing waits that fits.";
  const rows = messages.map((one) => [
    one.messageId,
    one.topic,
    one.type,
    one.key,
    one.behind === null ? one.state : `${one.state}, behind ${one.behind}`,
    `${one.attempts}/${one.maxAttempts}`,
    one.writtenAt,
    one.dueAt,
    shorten(one.lastError),
  ]);
  const headings = [
    "message",
    "topic",
    "type",
    "key",
    "state",
    "tried",
    "written at",
    "due at",
    "last error",
  ];
  const last = messages.at(-1)?.seq ?? null;
  const more = messages.length === limit && last !== null ? ["", `More: add --after ${last}`] : [];
  return [table(headings, rows), ...more].join("\n");
}

export async function show(input: CommandInput, io: Io): Promise<number> {
  const [, id = ""] = input.positionals;
  const { message, outbox, sent, standings } = await withSchema(input, io, "viewer", (database, schema) =>
    explainMessage(database, schema, id),
  );
  if (input.values["json"] === true) {
    io.out(jsonText({ message, outbox, sent }));
    return DONE;
  }
  const standing = standings.find(({ where }) => where === "outbox");
  const lines = [
    `${message.id}  ${message.kind} ${message.type} version ${message.schemaVersion}`,
    `topic ${message.topic}, key ${message.key ?? "none"}, lane ${message.lane ?? "?"}, written at ${message.writtenAt}`,
    ...(message.scheduledFor === null ? [] : [`scheduled for ${message.scheduledFor}`]),
    ...(standing === undefined ? [] : [`${standing.state}: ${standing.why}`, `→ ${standing.next}`]),
    ...outbox.map(
      (row) =>
        `tried ${row.attempts} of ${row.maxAttempts} times, due at ${row.dueAt ?? "no time"}` +
        (row.lastError === null ? "" : `, last error: ${row.lastError}`),
    ),
    ...sent.map(({ relay, at }) => `sent at ${at} by ${relay}`),
    `All of its life: sagabox explain ${message.id}`,
  ];
  io.out(safeLines(lines.join("\n")));
  return DONE;
}

export function stats(input: CommandInput, io: Io): Promise<number> {
  return withSchema(input, io, "viewer", (database, schema) =>
    printOrWatch(input, io, async () => {
      const counted = await outboxStats(database, schema);
      if (input.values["json"] === true) return { text: jsonText(counted), code: DONE };
      const rows = counted.topics.map((one) => [
        one.topic,
        one.type,
        one.waiting,
        one.failed,
        one.held,
        one.scheduled,
        one.mostAttempts,
        one.oldestDueSeconds === null ? null : ageText(one.oldestDueSeconds),
      ]);
      const headings = [
        "topic",
        "type",
        "waiting",
        "failed",
        "held",
        "scheduled",
        "most tries",
        "oldest due",
      ];
      const text = rows.length === 0 ? "Nothing waits." : table(headings, rows);
      return { text: counted.exact ? text : `${text}\nThere is more: only a part was counted.`, code: DONE };
    }),
  );
}

function shorten(text: string | null): string | null {
  return text === null || text.length <= 80 ? text : `${text.slice(0, 79)}…`;
}
