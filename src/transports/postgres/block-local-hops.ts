import { SagaboxError } from "../../errors/index.ts";
import { random, sleep, systemClock, withJitter } from "../../runtime/index.ts";
import { SQLSTATE, sqlState, type OwnedTransaction, type Queryable } from "../../storage/index.ts";
import type { SubscribeStatements } from "./subscribe-statements.ts";

/** Every hop waits for as long as we wait for the lock. */
const LOCK_WAIT_MS = 100;
const MAX_LOCK_ATTEMPTS = 6;
const MAX_PAUSE_MS = 1_000;
const MAX_LOCKED_WAIT_MS = 5_000;
const MAX_WRITERS_WAIT_MS = 3_000;

/**
 * The day from which on to look for messages that a later snapshot may miss: all who were writing have ended. If one of
 * them does not end, nothing is known and everything is looked through once more.
 */
export async function readHorizon(database: Queryable, sql: SubscribeStatements): Promise<string> {
  const { rows } = await database.run<{ xid: string; day: string }>(sql.horizon);
  const { xid = "0", day = "-infinity" } = rows[0] ?? {};
  const giveUpMs = systemClock.monotonicMs() + MAX_WRITERS_WAIT_MS;
  for (let pauseMs = 5; systemClock.monotonicMs() < giveUpMs; pauseMs = Math.min(250, pauseMs * 2)) {
    const { rows: answer } = await database.run<{ passed: boolean }>(sql.passed, [xid]);
    if (answer[0]?.passed === true) return day;
    await sleep(withJitter(pauseMs, 0.5, random));
  }
  return "-infinity";
}

/** Until the transaction ends no hop begins. Tried again and again rather than waited for, since hops wait behind it. */
export async function blockLocalHops(tx: OwnedTransaction, sql: SubscribeStatements): Promise<void> {
  await tx.run(sql.patience, [LOCK_WAIT_MS]);
  for (let attempt = 1; !(await tryLock(tx, sql)); attempt++) {
    if (attempt === MAX_LOCK_ATTEMPTS) throw lockUnavailableError();
    await sleep(withJitter(Math.min(MAX_PAUSE_MS, LOCK_WAIT_MS * 2 ** attempt), 0.5, random));
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

// A consumer that starts tries again by itself, and everything else goes on meanwhile.
function lockUnavailableError(): SagaboxError {
  return new SagaboxError(
    "TRANSPORT_UNREACHABLE",
    "A new subscription with a past, or the end of one, needs the table `subscription` for a moment, and somebody else " +
      "keeps it: a dump that runs, or a transaction that read it and has not ended. Nothing was changed. A consumer that " +
      "starts tries again by itself; nothing else waits for it.",
  );
}
