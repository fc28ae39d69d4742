import type { Database } from "./database.ts";

// How long a statement may go unanswered before its connection counts as hung. The table in
// docs/guides/running.md says which applies where.

/** For maintenance, checks and operators: their statements may read whole tables, and nothing waits for them. */
export const MAX_STATEMENT_MS = 600_000;

/** For our statements in a transaction of the application, whose caller waits. */
export const CALLER_STATEMENT_MS = 30_000;

/**
 * How long a transaction that locks a table against publishers may wait for its own process. The server ends the
 * transaction then, because the process may be paused, or its connection silent, while publishers wait.
 */
export const TABLE_LOCK_IDLE_MS = 5_000;

const MIN_LEASED_STATEMENT_MS = 1_000;

/**
 * Statements of a part that works under a lease: half of it, so that after one connection has hung there is time to renew
 * the lease through another.
 */
export function leasedStatementMs(leaseMs: number): number {
  return Math.max(MIN_LEASED_STATEMENT_MS, leaseMs / 2);
}

/** Wraps a database so that its statements have this deadline, unless the caller sets another. */
export function limitStatements(database: Database, deadlineMs: number): Database {
  return {
    isPooled: database.isPooled === true,
    get size() {
      return database.size;
    },
    usage: () => database.usage?.(),
    run: (statement, params, limits) => database.run<never>(statement, params, { deadlineMs, ...limits }),
    session: (purpose, settings, limits) => database.session(purpose, settings, { deadlineMs, ...limits }),
    begin: (options) => database.begin({ statementMs: deadlineMs, beginMs: deadlineMs, ...options }),
    runImmediately: (statement, params, limits) =>
      database.runImmediately?.(statement, params, { deadlineMs, ...limits }) ??
      database.run(statement, params, { deadlineMs, ...limits }),
    close: () => database.close(),
  };
}
