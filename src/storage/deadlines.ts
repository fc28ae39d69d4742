import type { Database } from "./database.ts";

// How long a statement may go unanswered before its connection counts as hung. The table in
// docs/guides/running.md says which applies where.

/** Upkeep, checks and operations of people: they may read whole tables, and nothing waits for them. */
export const MAX_STATEMENT_MS = 600_000;

/** Our own statements in a transaction of the application's: its caller waits. */
export const CALLER_STATEMENT_MS = 30_000;

const MIN_LEASED_STATEMENT_MS = 1_000;

/**
 * Statements of a part that works under a lease: half of it, so that after one connection has hung there is time to renew
 * the lease through another.
 */
export function leasedStatementMs(leaseMs: number): number {
  return Math.max(MIN_LEASED_STATEMENT_MS, leaseMs / 2);
}

/** The same database, whose statements have this deadline unless their caller sets another. */
export function limitStatements(database: Database, deadlineMs: number): Database {
  return {
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
