import { AuditWriter } from "../../audit/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { encodeChangedHints, wakeUpChannel } from "../../lanes/index.ts";
import { type Duration, text } from "../../options/index.ts";
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
import { readOperator } from "../sagas/saga-admin.ts";
import { outboxStatements } from "./statements.ts";

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
