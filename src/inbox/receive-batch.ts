import { toArrayLiteral, type CommitStatement } from "../storage/index.ts";
import type { AckWith } from "../transport/index.ts";
import { ackStatement, runAttempt, type Attempt, type AttemptLimits } from "./attempt.ts";
import type { InboxEngine } from "./engine.ts";
import { encodeResult } from "./receive-once.ts";

export interface BatchItem {
  readonly id: string;
  readonly topic: string;
  readonly type: string;
  readonly payload: string | null;
  readonly expiresAt: string | null;
  readonly ackWith?: AckWith | undefined;
}

export interface BatchReceipt<T extends BatchItem> extends AttemptLimits {
  readonly consumer: string;
  readonly items: readonly T[];
}

export interface BatchOutcome<T extends BatchItem> {
  /** New messages, whose handlers ran and committed in one transaction. */
  readonly processed: readonly T[];
  readonly duplicates: readonly T[];
  readonly expired: readonly T[];
  readonly durationMs: number;
}

/**
 * Handles many messages in one transaction without savepoints. One insert finds the new ones, `handle` gets only those,
 * and all of them commit or none does. `handle` may return one result per new item.
 */
export function receiveBatch<T extends BatchItem>(
  engine: InboxEngine,
  receipt: BatchReceipt<T>,
  handle: (fresh: readonly T[], attempt: Attempt) => Promise<readonly unknown[] | void>,
): Promise<BatchOutcome<T>> {
  const { clock } = engine;
  const { consumer, items } = receipt;
  return runAttempt(engine, receipt, async (current) => {
    const { statement, params } = buildClaim(engine, consumer, items);
    const { rowCount } = await current.tx.run(statement, params);
    const all = rowCount === items.length;
    const { fresh, ...rest } = all ? allFresh(items) : await sortItems(current, engine, receipt);
    if (fresh.length === 0) {
      await current.tx.rollback();
      return { processed: [], ...rest, durationMs: 0 };
    }
    current.startHandling();
    const startedMs = clock.monotonicMs();
    const results = await handle(fresh, current);
    const durationMs = Math.max(0, clock.monotonicMs() - startedMs);
    await current.commit([buildFinish(engine, consumer, fresh, results, durationMs), ...buildAcks(fresh)]);
    return { processed: fresh, ...rest, durationMs };
  });
}

function buildClaim({ sql }: InboxEngine, consumer: string, items: readonly BatchItem[]): CommitStatement {
  const ids = toArrayLiteral(items.map((item) => item.id));
  const [first] = items;
  if (first !== undefined && items.every((item) => isAlike(first, item))) {
    return { statement: sql.rememberAlike, params: [consumer, ids, first.topic, first.type] };
  }
  const params = [
    consumer,
    ids,
    toArrayLiteral(items.map((item) => item.topic)),
    toArrayLiteral(items.map((item) => item.type)),
    toArrayLiteral(items.map((item) => item.payload)),
    toArrayLiteral(items.map((item) => item.expiresAt)),
  ];
  return { statement: sql.rememberAll, params };
}

function isAlike(first: BatchItem, { topic, type, payload, expiresAt }: BatchItem): boolean {
  return payload === null && expiresAt === null && topic === first.topic && type === first.type;
}

function buildAcks(items: readonly BatchItem[]): readonly CommitStatement[] {
  const acks = items.flatMap((item) => item.ackWith ?? []);
  const [first] = acks;
  if (first?.together === undefined || acks.length === 1) return acks.map(ackStatement);
  if (acks.some(({ together }) => together !== first.together)) return acks.map(ackStatement);
  const columnAt = (index: number): string => toArrayLiteral(acks.map(({ params }) => params[index] ?? null));
  return [
    ackStatement({ statement: first.together, params: first.params.map((_, index) => columnAt(index)) }),
  ];
}

interface SortedItems<T> {
  readonly fresh: readonly T[];
  readonly duplicates: readonly T[];
  readonly expired: readonly T[];
}

function allFresh<T>(items: readonly T[]): SortedItems<T> {
  return { fresh: items, duplicates: [], expired: [] };
}

// A message can be in a batch twice. The second copy is a duplicate of the first.
async function sortItems<T extends BatchItem>(
  { tx }: Attempt,
  { sql }: InboxEngine,
  { consumer, items }: BatchReceipt<T>,
): Promise<SortedItems<T>> {
  const params = [consumer, toArrayLiteral(items.map((item) => item.id))];
  const { rows } = await tx.run<{ event_id: string; fresh: boolean }>(sql.recallAll, params);
  const known = new Set(rows.map((row) => row.event_id));
  const own = new Set(rows.filter((row) => row.fresh).map((row) => row.event_id));
  const fresh: T[] = [];
  const duplicates: T[] = [];
  const expired: T[] = [];
  for (const item of items) {
    if (own.delete(item.id)) fresh.push(item);
    else (known.has(item.id) ? duplicates : expired).push(item);
  }
  return { fresh, duplicates, expired };
}

function buildFinish(
  { sql }: InboxEngine,
  consumer: string,
  fresh: readonly BatchItem[],
  results: readonly unknown[] | void,
  durationMs: number,
): CommitStatement {
  const params = [consumer, Math.round(durationMs), toArrayLiteral(fresh.map((item) => item.id))];
  const stored = results?.map(encodeResult);
  if (stored?.some((result) => result !== null) !== true) return { statement: sql.finishAll, params };
  return { statement: sql.finishWithResults, params: [...params, toArrayLiteral(stored)] };
}
