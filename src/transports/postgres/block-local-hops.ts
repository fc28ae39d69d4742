import { SagaboxError } from "../../errors/index.ts";
import { backoffMs, sleep, systemClock } from "../../runtime/index.ts";
import { SQLSTATE, sqlState, type OwnedTransaction, type Queryable } from "../../storage/index.ts";
import type { SubscribeStatements } from "./subscribe-statements.ts";

/** Local hops are blocked while this lock request waits. */
const LOCK_WAIT_MS = 100;
const MAX_LOCK_ATTEMPTS = 6;
const LOCK_BACKOFF = { firstMs: 2 * LOCK_WAIT_MS, maxMs: 1_000 };
const MAX_LOCKED_WAIT_MS = 5_000;
const MAX_WRITERS_WAIT_MS = 3_000;
const WRITERS_BACKOFF = { firstMs: 5, maxMs: 250 };

/**
 * Waits until every transaction that was writing has ended, and returns the first day on which a later snapshot may
 * find messages that an earlier one missed. Returns "-infinity" (search everything) if a writer is still open after 3
 * s.
 */
export async function readHorizon(database: Queryable, sql: SubscribeStatements): Promise<string> {
  const { rows } = await database.run<{ xid: string; day: string }>(sql.horizon);
  const { xid = "0", day = "-infinity" } = rows[0] ?? {};
  const giveUpMs = systemClock.monotonicMs() + MAX_WRITERS_WAIT_MS;
  for (let tries = 1; systemClock.monotonicMs() < giveUpMs; tries++) {
    const { rows: answer } = await database.run<{ passed: boolean }>(sql.passed, [xid]);
    if (answer[0]?.passed === true) return day;
    await sleep(backoffMs(WRITERS_BACKOFF, tries));
  }
  return "-infinity";
}

/**
 * Blocks local hops until the transaction ends. Retries with a short lock timeout, because hops queue behind a
 * waiting lock request.
 */
export async function blockLocalHops(tx: OwnedTransaction, sql: SubscribeStatements): Promise<void> {
  await tx.run(sql.patience, [LOCK_WAIT_MS]);
  for (let attempt = 1; !(await tryLock(tx, sql)); attempt++) {
    if (attempt === MAX_LOCK_ATTEMPTS) throw lockUnavailableError();
    await sleep(backoffMs(LOCK_BACKOFF, attempt));
  }
  await tx.run(sql.patience, [MAX_LOCKED_WAIT_MS]);
}

async function tryLock(tx: OwnedTransaction, sql: SubscribeStatements): Promise<boolean> {
  await tx.run(sql.mark);
  try {
    await tx.run(sql.lockSubscriptions);
    return true;
  } catch (error) {
    if (sqlState(error) !== SQLSTATE.lockNotAvailable) throw error;
    await tx.run(sql.backToMark);
    return false;
  }
}

// A starting consumer retries; nothing else is blocked meanwhile.
function lockUnavailableError(): SagaboxError {
  return new SagaboxError(
    "TRANSPORT_UNREACHABLE",
    "Creating a subscription that reads history, or retiring one, needs a short lock on the table `subscription`, " +
      "and another session holds one: a running dump, or an open transaction that read the table. Nothing was " +
      "changed. A starting consumer retries; nothing else is blocked.",
  );
}
