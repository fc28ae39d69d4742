import { SQLSTATE, sqlState, toArrayLiteral } from "../storage/index.ts";
import { attempt } from "./attempt.ts";
import type { InboxEngine } from "./engine.ts";
import type { StatementBatchSize } from "./statement-batch-size.ts";
import type { BatchItem, BatchOutcome, BatchReceipt } from "./receive-batch.ts";
import { onceParams, type StatementEffect, type StatementCache } from "./receive-statement.ts";

// A statement by itself waits for nobody with rows of others in its hands, so it cannot deadlock; a lot could.
const LOCK_TIMEOUT_MS = 100;

export interface StatementBatch<T extends BatchItem> extends BatchReceipt<T> {
  readonly effectOf: (item: T) => StatementEffect;
  readonly size: StatementBatchSize;
}

/**
 * The statements of several messages, from BEGIN to COMMIT in one packet: one trip and one flush for all of them. Each
 * still dedupes for itself. If one fails none has happened, and whoever called does them one by one.
 */
export async function receiveStatements<T extends BatchItem>(
  engine: InboxEngine,
  cache: StatementCache,
  { consumer, items, deadlineMs, among, effectOf, size }: StatementBatch<T>,
): Promise<BatchOutcome<T>> {
  const statements = items.map((item) => {
    const effect = effectOf(item);
    const statement = cache.wrap(effect.text, effect.params?.length ?? 0);
    return { statement, params: onceParams(effect, { ...item, consumer }) };
  });
  const startedMs = engine.clock.monotonicMs();
  const limits = { deadlineMs, lockTimeoutMs: LOCK_TIMEOUT_MS, ...(among === undefined ? {} : { among }) };
  const answers = await attempt(engine, limits, ({ tx }) => tx.commit(statements)).catch((error: unknown) => {
    if (isContention(error)) size.recordContention();
    throw error;
  });
  const durationMs = Math.max(0, engine.clock.monotonicMs() - startedMs);
  const isFresh = (index: number): boolean =>
    (answers[index]?.rows[0] as { fresh?: boolean } | undefined)?.fresh === true;
  const others = items.filter((_, index) => !isFresh(index));
  if (others.length === 0) return { processed: items, duplicates: [], expired: [], durationMs };
  const ids = toArrayLiteral(others.map(({ id }) => id));
  const { rows } = await engine.database.run<{ event_id: string }>(engine.sql.recall, [consumer, ids]);
  const known = new Set(rows.map((row) => row.event_id));
  return {
    processed: items.filter((_, index) => isFresh(index)),
    duplicates: others.filter(({ id }) => known.has(id)),
    expired: others.filter(({ id }) => !known.has(id)),
    durationMs,
  };
}

function isContention(error: unknown): boolean {
  const state = sqlState(error);
  return state === SQLSTATE.lockNotAvailable || state === SQLSTATE.deadlockDetected;
}
