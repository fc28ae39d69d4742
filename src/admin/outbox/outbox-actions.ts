import { canReadContents, keysNotReadable } from "../admin-database.ts";
import { outboxStatements } from "./statements.ts";
import { readOperator } from "../sagas/saga-admin.ts";
import { AuditWriter } from "../../audit/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { encodeChangedHints, wakeUpChannel } from "../../lanes/index.ts";
import { laneFor } from "../../message/index.ts";
import {
  type Duration,
  milliseconds,
  oneOf,
  rejectUnknownKeys,
  text,
  wholeNumber,
} from "../../options/index.ts";
import {
  countRepublish,
  History,
  outboxSettings,
  republish,
  type RepublishOptions,
  type RepublishResult,
} from "../../outbox/index.ts";
import type { Operator } from "../../saga/index.ts";
import { type Database, notify, quoteSchema } from "../../storage/index.ts";
import type { Observer } from "../../telemetry/index.ts";

export interface RetriedMessage {
  readonly messageId: string;
  readonly lane: number;
  /** Number of earlier attempts. */
  readonly attempts: number;
  /** Time of the retry that was planned before. */
  readonly wasDueAt: string;
}

/** Retries a failed outbox message immediately, without resetting its attempts. Throws MESSAGE_NOT_FOUND if it does not wait for a retry. */
export async function retryNow(
  database: Database,
  schema: string,
  messageId: string,
  by: Operator,
): Promise<RetriedMessage> {
  text("outbox retry-now: the message id", messageId, { max: 255 });
  const entry = {
    ...readOperator("outbox retry-now", by),
    action: "outbox.retry_now",
    target: { kind: "message", id: messageId },
  };
  const { retryNow: retry } = outboxStatements(quoteSchema(schema));
  const retried = await new AuditWriter(schema).runAudited(database, entry, async (note) => {
    const tx = await database.begin();
    try {
      const [row] = (await tx.run<RetriedRow>(retry, [messageId])).rows;
      if (row === undefined) throw notFailed(messageId);
      await note(tx, { before: { dueAt: row.was_due } });
      await tx.commit();
      return { messageId, lane: row.lane, attempts: row.attempts, wasDueAt: row.was_due };
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  });
  // If the notification is lost, the relay finds the row with its next poll.
  for (const hint of encodeChangedHints([retried.lane])) {
    await notify(database, wakeUpChannel(schema), hint).catch(() => undefined);
  }
  return retried;
}

interface RetriedRow {
  readonly lane: number;
  readonly attempts: number;
  readonly was_due: string;
}

function notFailed(id: string): SagaboxError {
  return new SagaboxError(
    "MESSAGE_NOT_FOUND",
    `Message ${JSON.stringify(id)} does not wait for another try: it was sent, is dead, is due already, or is not in this ` +
      "database. `sagabox explain` says which.",
  );
}

export type RepublishWindow = Pick<RepublishOptions, "from" | "to" | "topic" | "type" | "after">;

export interface RepublishPlan {
  /** Number of messages that would be sent again. */
  readonly count: number;
  /** First day in the archive; null if it is empty. */
  readonly archiveFrom: string | null;
  /** False if the window starts before the archive. */
  readonly isWhole: boolean;
}

/** Counts what `republishWindow` would send again. */
export async function planRepublish(
  database: Database,
  schema: string,
  window: RepublishWindow,
): Promise<RepublishPlan> {
  const count = await countRepublish(database, schema, window);
  const quoted = quoteSchema(schema);
  const [archive] = (
    await database.run<{ day: string | null }>(outboxStatements(quoted).archiveFrom, [quoted])
  ).rows;
  const archiveFrom = archive?.day ?? null;
  return { count, archiveFrom, isWhole: archiveFrom !== null && window.from >= new Date(archiveFrom) };
}

/** Sends the messages of a time window again, with their original ids and in the original order of each key. */
export function republishWindow(
  database: Database,
  schema: string,
  options: RepublishOptions & { readonly actor: string; readonly reason: string },
): Promise<RepublishResult> {
  return republish(database, schema, options);
}

export interface ArchiveOptions {
  /** How long sent messages are kept. Use the value of the service's `outbox.retention`. */
  readonly keep: Duration | number;
  readonly actor: string;
  readonly reason?: string | undefined;
  readonly signal?: AbortSignal;
  /** Called with the number of finished partitions. */
  readonly onPartition?: (count: number) => void;
}

export interface ArchivePlan {
  readonly attach: readonly string[];
  readonly drop: readonly string[];
}

export interface ArchiveResult {
  readonly attached: readonly string[];
  readonly dropped: readonly string[];
  /** Partitions that were in use; the next run tries them again. */
  readonly kept: readonly string[];
  /** Number of deleted caller-chosen ids whose messages are dropped. */
  readonly forgottenIds: number;
  /** False if a partition was in use or `signal` stopped the run. */
  readonly finished: boolean;
}

/** Previews `archiveOutbox`. Read-only. */
export function planArchive(
  database: Database,
  schema: string,
  keep: ArchiveOptions["keep"],
): Promise<ArchivePlan> {
  const observer: Observer = { emit: () => undefined };
  return new History({ database, schema, retentionMs: readRetentionMs(keep), observer }).plan();
}

/** Runs one round of the hourly upkeep: attaches the partitions of the next days and drops expired days. */
export async function archiveOutbox(
  database: Database,
  schema: string,
  { keep, actor, reason, signal, onPartition }: ArchiveOptions,
): Promise<ArchiveResult> {
  const done: Record<"attached" | "dropped" | "kept", string[]> = { attached: [], dropped: [], kept: [] };
  let forgottenIds = 0;
  const observer: Observer = {
    emit(name, fields) {
      if (name === "history.partition" && "partition" in fields && "action" in fields) {
        done[fields.action as keyof typeof done].push(String(fields.partition));
        onPartition?.(done.attached.length + done.dropped.length);
      }
      if (name === "history.cleaned" && "count" in fields) forgottenIds += Number(fields.count);
    },
  };
  const history = new History({ database, schema, retentionMs: readRetentionMs(keep), observer });
  const entry = {
    actor,
    reason: reason ?? `older than ${keep}`,
    action: "outbox.archive",
    target: { kind: "archive" },
  };
  return new AuditWriter(schema).runAudited(database, entry, async (note) => {
    const finished = await history.tidy(signal);
    const result = { ...done, forgottenIds, finished: finished && signal?.aborted !== true };
    await note(database, { after: { ...done, forgottenIds } });
    return result;
  });
}

function readRetentionMs(keep: ArchiveOptions["keep"]): number {
  return outboxSettings({ retention: keep }).retentionMs;
}

export const outboxStates = ["due", "failed", "held", "scheduled"] as const;

export interface OutboxFilter {
  /**
   * `due`: waits for its first attempt. `failed`: waits for a retry. `held`: dead-lettered and blocking its key.
   * `scheduled`: published for later. Default: all but `scheduled`.
   */
  readonly state?: (typeof outboxStates)[number];
  readonly topic?: string;
  readonly type?: string;
  /** Requires the operator role. */
  readonly key?: string;
  /** Only messages written longer ago than this. */
  readonly olderThan?: Duration | number;
  /** Only messages with at least this many attempts. */
  readonly minAttempts?: number;
  readonly limit?: number;
  /** Only messages after this seq. */
  readonly after?: string;
}

export interface WaitingMessage {
  readonly messageId: string;
  readonly topic: string;
  readonly type: string;
  /** Null if there is no key, or the role may not read keys. */
  readonly key: string | null;
  readonly lane: number;
  /** Null for a scheduled message. */
  readonly seq: string | null;
  readonly state: "due" | "failed" | "held" | "later" | "scheduled";
  readonly attempts: number;
  readonly maxAttempts: number;
  /** True if it was replayed or republished. */
  readonly isAgain: boolean;
  readonly writtenAt: string;
  readonly dueAt: string | null;
  /** Id of the first waiting message of its key, if that is another one. */
  readonly behind: string | null;
  readonly lastError: string | null;
}

const KNOWN = ["state", "topic", "type", "key", "olderThan", "minAttempts", "limit", "after"];

/** Lists unsent messages, oldest first, among the first 2,000 of each lane. Throws OPTIONS_INVALID or STORAGE_PERMISSION_DENIED. */
export async function listOutbox(
  database: Database,
  schema: string,
  filter: OutboxFilter = {},
): Promise<readonly WaitingMessage[]> {
  const {
    state,
    topic = null,
    type = null,
    key = null,
    limit,
    olderThanMs,
    minAttempts,
    after,
  } = checkFilter(filter);
  const sql = outboxStatements(quoteSchema(schema));
  const open = await canReadContents(database, quoteSchema(schema));
  if (key !== null && !open) throw keysNotReadable();
  if (state === "scheduled") {
    const { rows } =
      key === null
        ? await database.run<Row>(sql.scheduled(open), [limit, topic, type])
        : await database.run<Row>(sql.scheduledByKey, [limit, topic, type, key]);
    return rows.map(toWaitingMessage);
  }
  const lane = key === null ? null : laneFor(key);
  const params = [limit, topic, type, lane, state ?? null, after, minAttempts, key, olderThanMs];
  return (await database.run<Row>(sql.list(open), params)).rows.map(toWaitingMessage);
}

function checkFilter(filter: OutboxFilter) {
  rejectUnknownKeys("outbox list", filter, KNOWN);
  const { state, topic, type, key, after = "0" } = filter;
  for (const [name, value] of Object.entries({ topic, type, key })) {
    if (value !== undefined) text(`outbox list: ${name}`, value, { max: 255 });
  }
  if (state === "scheduled" && (filter.olderThan ?? filter.minAttempts ?? filter.after) !== undefined) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "Scheduled messages can be filtered by topic, type, key and limit only.",
    );
  }
  return {
    ...filter,
    state: state === undefined ? undefined : oneOf("outbox list: state", state, outboxStates),
    limit: wholeNumber("outbox list: limit", filter.limit ?? 50, { min: 1, max: 1_000 }),
    minAttempts: wholeNumber("outbox list: minAttempts", filter.minAttempts ?? 0, { min: 0, max: 32_767 }),
    olderThanMs:
      filter.olderThan === undefined ? 0 : milliseconds("outbox list: olderThan", filter.olderThan),
    after: text("outbox list: after", after, { pattern: /^\d{1,18}$/ }),
  };
}

interface Row {
  readonly message_id: string;
  readonly topic: string;
  readonly type: string;
  readonly key: string | null;
  readonly lane: number;
  readonly seq: string | null;
  readonly state: WaitingMessage["state"];
  readonly attempts: number;
  readonly max_attempts: number;
  readonly again: boolean;
  readonly written_at: string;
  readonly due_at: string | null;
  readonly behind: string | null;
  readonly last_error: string | null;
}

function toWaitingMessage(row: Row): WaitingMessage {
  return {
    messageId: row.message_id,
    topic: row.topic,
    type: row.type,
    key: row.key,
    lane: row.lane,
    seq: row.seq,
    state: row.state,
    attempts: row.attempts,
    maxAttempts: row.max_attempts,
    isAgain: row.again,
    writtenAt: row.written_at,
    dueAt: row.due_at,
    behind: row.behind,
    lastError: row.last_error,
  };
}

export interface TopicStats {
  readonly topic: string;
  readonly type: string;
  readonly waiting: number;
  /** Waiting messages with at least one attempt. */
  readonly failed: number;
  /** Dead-lettered messages that block their key. */
  readonly held: number;
  readonly scheduled: number;
  readonly mostAttempts: number;
  readonly oldestDueSeconds: number | null;
}

export interface OutboxStats {
  /** False if there are more messages than were counted. */
  readonly exact: boolean;
  readonly topics: readonly TopicStats[];
}

const MAX_COUNTED = 500_000;

/** Counts unsent messages by topic and type, largest first. */
export async function outboxStats(database: Database, schema: string): Promise<OutboxStats> {
  const { stats } = outboxStatements(quoteSchema(schema));
  const { rows } = await database.run<StatsRow>(stats, [MAX_COUNTED]);
  return {
    exact: rows[0]?.exact ?? true,
    topics: rows.map((row) => ({
      topic: row.topic,
      type: row.type,
      waiting: row.waiting,
      failed: row.failed,
      held: row.held,
      scheduled: row.scheduled,
      mostAttempts: row.most_attempts,
      oldestDueSeconds: row.oldest_due_seconds === null ? null : Math.round(row.oldest_due_seconds * 10) / 10,
    })),
  };
}

interface StatsRow {
  readonly topic: string;
  readonly type: string;
  readonly waiting: number;
  readonly failed: number;
  readonly held: number;
  readonly scheduled: number;
  readonly most_attempts: number;
  readonly oldest_due_seconds: number | null;
  readonly exact: boolean;
}
