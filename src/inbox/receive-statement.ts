import { permanent, SagaboxError } from "../errors/index.ts";
import { withDeadline } from "../runtime/index.ts";
import { type Param, SQLSTATE, sqlState, type Statement, toArrayLiteral } from "../storage/index.ts";
import { runAttempt } from "./attempt.ts";
import type { InboxEngine } from "./engine.ts";
import type { BatchItem, BatchOutcome, BatchReceipt } from "./receive-batch.ts";
import type { Outcome, Receipt } from "./receive-once.ts";
import type { StatementBatchSize } from "./statement-batch-size.ts";
import { claimedStatement, onceStatement } from "./statements.ts";

// Each text becomes a prepared statement on every connection. Texts built from data would fill the server's memory.
const MAX_CACHED_TEXTS = 16;

/** Caches the statements of a consumer's statement handlers: the user's text wrapped in the dedupe statement. */
export class StatementCache {
  readonly #schema: string;
  readonly #cached = new Map<string, Statement>();
  readonly #claimed = new Map<string, Statement>();

  constructor(schema: string) {
    this.#schema = schema;
  }

  /** The statement that inserts the dedupe row and runs the text. Throws a permanent error for an unusable text. */
  wrap(text: string, params: number): Statement {
    return cacheStatement(this.#cached, text, () => onceStatement(this.#schema, text, params));
  }

  /** The statement that runs the text for a message whose dedupe row was inserted before. */
  wrapClaimed(text: string, params: number): Statement {
    return cacheStatement(this.#claimed, text, () => claimedStatement(text, params));
  }
}

function cacheStatement(cached: Map<string, Statement>, text: string, wrap: () => Statement): Statement {
  const found = cached.get(text);
  if (found !== undefined) return found;
  if (!/\bfresh\b/i.test(text)) {
    throw permanent(
      "The text of a statement handler must read from `fresh`, or it would also run for duplicates.",
    );
  }
  if (cached.size >= MAX_CACHED_TEXTS) {
    throw permanent(
      "The text of a statement handler changes from message to message. Pass values as parameters.",
    );
  }
  const made = wrap();
  cached.set(text, made);
  return made;
}

/** The SQL text and parameters that a statement handler returned. */
export interface StatementEffect {
  readonly text: string;
  readonly params?: readonly Param[];
}

/** The parameters of `StatementCache.wrap`. */
export function buildOnceParams(
  { params = [] }: StatementEffect,
  { consumer, id, topic, type, expiresAt }: Pick<Receipt, "consumer" | "id" | "topic" | "type" | "expiresAt">,
): readonly Param[] {
  return [...params, consumer, id, topic, type, expiresAt];
}

/** Runs dedupe and effect as one autocommitted statement. Throws COMMIT_UNKNOWN if it is not answered in time. */
export async function receiveStatement(
  engine: InboxEngine,
  cache: StatementCache,
  receipt: Receipt,
  effect: StatementEffect,
): Promise<Outcome<undefined>> {
  const { consumer, id, deadlineMs } = receipt;
  const statement = cache.wrap(effect.text, effect.params?.length ?? 0);
  const startedMs = engine.clock.monotonicMs();
  const releasePermit = await engine.permits.acquire();
  try {
    const params = buildOnceParams(effect, receipt);
    const running = engine.database.run<{ fresh: boolean }>(statement, params, { deadlineMs });
    const { rows } = await withDeadline(running, deadlineMs, () => {
      // The statement may still commit. A later attempt is then a duplicate.
      throw new SagaboxError("COMMIT_UNKNOWN", `The statement was not answered within ${deadlineMs} ms.`);
    });
    if (rows[0]?.fresh === true) {
      return { kind: "processed", result: undefined, durationMs: engine.clock.monotonicMs() - startedMs };
    }
  } finally {
    releasePermit();
  }
  const known = await engine.database.run(engine.sql.recall, [consumer, toArrayLiteral([id])]);
  return known.rowCount > 0 ? { kind: "duplicate" } : { kind: "expired" };
}

// A single statement holds no other row locks while it waits, so it cannot deadlock. A batch can.
const LOCK_TIMEOUT_MS = 100;

export interface StatementBatch<T extends BatchItem> extends BatchReceipt<T> {
  readonly buildEffect: (item: T) => StatementEffect;
  readonly size: StatementBatchSize;
}

/**
 * Runs the statements of several messages in one transaction, sent in one round trip from BEGIN to COMMIT. Each statement
 * dedupes its own message. If one fails, all are rolled back, and the caller runs them one by one.
 */
export async function receiveStatements<T extends BatchItem>(
  engine: InboxEngine,
  cache: StatementCache,
  { consumer, items, deadlineMs, openAttempts, buildEffect, size }: StatementBatch<T>,
): Promise<BatchOutcome<T>> {
  const statements = items.map((item) => {
    const effect = buildEffect(item);
    const statement = cache.wrap(effect.text, effect.params?.length ?? 0);
    return { statement, params: buildOnceParams(effect, { ...item, consumer }) };
  });
  const startedMs = engine.clock.monotonicMs();
  const limits = {
    deadlineMs,
    lockTimeoutMs: LOCK_TIMEOUT_MS,
    ...(openAttempts === undefined ? {} : { openAttempts }),
  };
  const answers = await runAttempt(engine, limits, ({ tx }) => tx.commit(statements)).catch(
    (error: unknown) => {
      if (isContention(error)) size.recordContention();
      throw error;
    },
  );
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
