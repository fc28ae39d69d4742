import { milliseconds, rejectUnknownKeys, type Duration } from "../options/index.ts";
import type { InboxEngine } from "./engine.ts";

const DAY_MS = 86_400_000;
const MIN_DAYS = 7;
/** A copy that is sent on its last day still needs time to arrive. */
const MARGIN_MS = 2 * DAY_MS;

export interface InboxRetentionOptions {
  /** How long dedupe rows are kept at least. Default "30d", minimum "7d". */
  readonly retention?: Duration | number;
  /** How long dead letters can be replayed. Default "14d". */
  readonly deadLetters?: Duration | number;
  /** How long messages can be published again from the archive. Default "30d". */
  readonly archive?: Duration | number;
}

/**
 * Computes how long dedupe rows are kept, in milliseconds. A row must outlive all copies of its message, such as a dead
 * letter or an archived message that can be published again, so the longest of the three options counts.
 */
export function inboxRetentionMs(options: InboxRetentionOptions = {}): number {
  rejectUnknownKeys("inbox", options, ["retention", "deadLetters", "archive"]);
  const bounds = { min: MIN_DAYS * DAY_MS, max: 3_650 * DAY_MS };
  return (
    MARGIN_MS +
    Math.max(
      milliseconds("inbox.retention", options.retention ?? "30d", bounds),
      milliseconds("inbox.deadLetters", options.deadLetters ?? "14d", { max: bounds.max }),
      milliseconds("inbox.archive", options.archive ?? "30d", { max: bounds.max }),
    )
  );
}

export interface ForgetInboxOptions {
  /** Minimum age of deleted rows in milliseconds, from `inboxRetentionMs`. */
  readonly olderThanMs: number;
  /** How many rows one statement deletes. Default 5,000. */
  readonly batchSize?: number;
  /** Stops the deletion between two batches. */
  readonly signal?: AbortSignal;
  /** Called after each batch with the number of rows deleted so far. */
  readonly onProgress?: (count: number) => void;
}

/** Deletes old dedupe rows in batches and skips locked rows. Resolves with the number of deleted rows. */
export async function forgetInbox(
  { database, sql, observer }: Pick<InboxEngine, "database" | "sql" | "observer">,
  { olderThanMs, batchSize = 5_000, signal, onProgress }: ForgetInboxOptions,
): Promise<number> {
  let total = 0;
  while (signal?.aborted !== true) {
    const { rowCount } = await database.run(sql.forget, [olderThanMs, batchSize]);
    total += rowCount;
    onProgress?.(total);
    if (rowCount < batchSize) break;
  }
  if (signal?.aborted !== true) await database.run(sql.forgetSuspects, [olderThanMs]);
  if (total > 0) observer.emit("history.cleaned", { table: "consumer_inbox", count: total });
  return total;
}
