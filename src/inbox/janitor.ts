import { milliseconds, rejectUnknownKeys, type Duration } from "../options/index.ts";
import type { InboxEngine } from "./engine.ts";

const DAY_MS = 86_400_000;
const MIN_DAYS = 7;
/** A copy sent again on its last day still needs time to arrive. */
const MARGIN_MS = 2 * DAY_MS;

export interface InboxRetentionOptions {
  /** How long dedupe rows are kept, at least. Default "30d", never less than 7 days. */
  readonly retention?: Duration | number;
  /** How long dead letters can be replayed. Default "14d". */
  readonly deadLetters?: Duration | number;
  /** How long messages can be published again from the archive. Default "30d". */
  readonly archive?: Duration | number;
}

/**
 * A dedupe row must outlive every copy that could still carry its id: a dead letter that is replayed, a message that
 * is published again from the archive. So the longest of all three counts.
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
  /** From `inboxRetentionMs`. */
  readonly olderThanMs: number;
  /** How many one statement deletes. Default 5,000. */
  readonly batchSize?: number;
  /** Stops between two batches. */
  readonly signal?: AbortSignal;
  /** Hears after each batch how many are gone. */
  readonly onProgress?: (count: number) => void;
}

/** Deletes old dedupe rows in small batches; rows somebody has locked are passed over. Resolves with how many. */
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
