import {
  ageText,
  archiveOutbox,
  type ArchiveResult,
  explainMessage,
  listOutbox,
  type OutboxFilter,
  outboxStats,
  planArchive,
  retryNow,
  type WaitingMessage,
} from "../../admin/index.ts";
import { type Actions, runAction } from "../actions.ts";
import { actorOption, readActor, readActorAndReason, reasonOption } from "../actor.ts";
import { type Command, type CommandInput, DONE, FAILED, type Io, STOPPED, textValue } from "../command.ts";
import { confirmAction, dryRunOption, isDryRun, yesOption } from "../confirm.ts";
import { runInterruptible } from "../stop-signals.ts";
import { dropUndefined, keepOption, numberValue, readKeep } from "../option-values.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { startProgress } from "../terminal.ts";
import { withSchema } from "../settings.ts";
import { printOrWatch, watchOption } from "../watch.ts";

const actions: Actions = {
  list: {
    reads: ["state", "topic", "type", "key", "older-than", "min-attempts", "limit", "after", "watch"],
    run: list,
  },
  show: { reads: [], argument: "the id of a message", run: show },
  stats: { reads: ["watch"], run: stats },
  "retry-now": { reads: ["actor", "reason"], argument: "the id of a message", run: retry },
  archive: { reads: ["keep", "dry-run", "yes", "actor", "reason"], run: archive },
};

export const outbox: Command = {
  name: "outbox",
  summary: "Show messages that wait to be sent, retry one, and maintain the archive.",
  usage: [
    "outbox list [--state <state>] [--topic <name>] [--type <name>] [--key <key>] [--older-than <time>] …",
    "outbox show <message-id>",
    "outbox stats [--watch [seconds]]",
    "outbox retry-now <message-id> --reason <text>",
    "outbox archive --keep <time> [--dry-run] [--yes]",
  ],
  actions: Object.keys(actions),
  details: `  list     Waiting messages, oldest first: due, failed (will be retried), held (dead-lettered, holds back its key) or
           scheduled. Reads the first 2000 of each lane. Only operators see keys and error texts.
  show     One message: its attempts, its next attempt, and when it was sent.
  stats    Counts by topic and type.
  retry-now
           Send a failed message immediately instead of at its next attempt. The messages behind it in its key follow.
           Its number of attempts stays the same.
  archive  One round of the maintenance that a worker with the part "upkeep" runs every hour: create the partitions of the
           next days and drop those older than --keep. Messages that still wait are copied first. For a cron job; needs
           the owner role.

Examples:
  sagabox outbox list --state failed --min-attempts 3
  sagabox outbox stats --watch
  sagabox outbox show 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11
  sagabox outbox retry-now 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --reason "the topic is there now"
  sagabox outbox archive --keep 30d --dry-run

Connects to DATABASE_URL.`,
  options: {
    state: { type: "string", value: "<state>", help: "Only this state: due, failed, held or scheduled." },
    topic: { type: "string", value: "<name>", help: "Only this topic." },
    type: { type: "string", value: "<name>", help: "Only this type." },
    key: { type: "string", value: "<key>", help: "Only this key." },
    "older-than": { type: "string", value: "<time>", help: "Only messages older than this: 30s, 10m, 2h." },
    "min-attempts": {
      type: "string",
      value: "<number>",
      help: "Only messages with at least this many attempts.",
    },
    limit: { type: "string", value: "<number>", help: "Maximum number of rows. Default: 50." },
    after: {
      type: "string",
      value: "<seq>",
      help: "Start after this row, the last one of the previous page.",
    },
    watch: watchOption,
    keep: keepOption,
    "dry-run": dryRunOption,
    yes: yesOption,
    actor: actorOption,
    reason: reasonOption,
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  run: (input, io) => runAction("outbox", actions, input, io),
};

async function retry(input: CommandInput, io: Io, id: string): Promise<number> {
  const by = readActorAndReason(input, io);
  const retried = await withSchema(input, io, "operator", (database, schema) =>
    retryNow(database, schema, id, by),
  );
  if (input.values["json"] === true) io.out(jsonText(retried));
  else io.out(safeLines(`${id} is sent now instead of at ${retried.wasDueAt}. See: sagabox explain ${id}`));
  return DONE;
}

function archive(input: CommandInput, io: Io): Promise<number> {
  const keep = readKeep(input);
  const actor = readActor(input, io, "scheduled job");
  const reason = textValue(input, "reason");
  return withSchema(input, io, "owner", async (database, schema) => {
    const plan = await planArchive(database, schema, keep);
    if (isDryRun(input)) {
      io.out(input.values["json"] === true ? jsonText({ dryRun: true, ...plan }) : planText(plan));
      return DONE;
    }
    const what = `${plan.drop.length} partition(s) older than ${keep} are dropped permanently.`;
    if (!(await confirmAction(input, io, { what, matters: plan.drop.length > 0 }))) return STOPPED;
    const progress = startProgress(io, "partitions");
    const total = plan.attach.length + plan.drop.length;
    const result = await runInterruptible(io, async (signal) => {
      const onPartition = (count: number): void => progress.update(count, total);
      const done = await archiveOutbox(database, schema, { keep, actor, reason, signal, onPartition });
      return { ...done, stopped: signal.aborted };
    }).finally(() => progress.end());
    io.out(input.values["json"] === true ? jsonText({ dryRun: false, ...result }) : resultText(result));
    if (result.stopped) return STOPPED;
    return result.finished ? DONE : FAILED;
  });
}

function planText({ attach, drop }: { attach: readonly string[]; drop: readonly string[] }): string {
  return [
    `Dry run: nothing was changed. ${attach.length} partition(s) would be attached, ${drop.length} dropped.`,
    ...drop.map((name) => `  would drop ${name}`),
  ].join("\n");
}

function resultText({ attached, dropped, kept, forgottenIds }: ArchiveResult): string {
  const done = `${attached.length} partition(s) attached, ${dropped.length} dropped, ${forgottenIds} custom id(s) deleted.`;
  return [done, ...kept.map((name) => `In use, run the command again: ${name}`)].join("\n");
}

function list(input: CommandInput, io: Io): Promise<number> {
  // The admin function checks the values, and its error lists the allowed ones.
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
      const text =
        input.values["json"] === true
          ? jsonText({ messages })
          : listText(messages, filter, io.terminal?.columns);
      return { text, code: DONE };
    }),
  );
}

function listText(
  messages: readonly WaitingMessage[],
  { limit = 50 }: OutboxFilter,
  columns: number | undefined,
): string {
  if (messages.length === 0) return "No matching messages wait.";
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
    "attempts",
    "written at",
    "due at",
    "last error",
  ];
  const last = messages.at(-1)?.seq ?? null;
  const more = messages.length === limit && last !== null ? ["", `More: add --after ${last}`] : [];
  return [table(headings, rows, columns), ...more].join("\n");
}

async function show(input: CommandInput, io: Io, id: string): Promise<number> {
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
        `${row.attempts} of ${row.maxAttempts} attempts, due at ${row.dueAt ?? "no time"}` +
        (row.lastError === null ? "" : `, last error: ${row.lastError}`),
    ),
    ...sent.map(({ relay, at }) => `sent at ${at} by ${relay}`),
    `Full history: sagabox explain ${message.id}`,
  ];
  io.out(safeLines(lines.join("\n")));
  return DONE;
}

function stats(input: CommandInput, io: Io): Promise<number> {
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
        "most attempts",
        "oldest due",
      ];
      const text = rows.length === 0 ? "Nothing waits." : table(headings, rows, io.terminal?.columns);
      return {
        text: counted.exact ? text : `${text}\nThere are more messages: the count stopped at its limit.`,
        code: DONE,
      };
    }),
  );
}

function shorten(text: string | null): string | null {
  return text === null || text.length <= 80 ? text : `${text.slice(0, 79)}…`;
}
