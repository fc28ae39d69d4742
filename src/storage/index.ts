// PostgreSQL: the interface through which other rooms run SQL, its drivers, the schema and its migrations, and the errors
// that explain answers of the server.
export type {
  AfterCommitStatement,
  Database,
  CommitStatement,
  Notification,
  OwnedTransaction,
  Param,
  Queryable,
  Rows,
  RunLimits,
  Session,
  Sql,
  TransactionOptions,
} from "./database.ts";
export { defineStatement, quoteSchema, replaceNul, toArrayLiteral, type Statement } from "./statement.ts";
export { withBriefSessions } from "./brief-sessions.ts";
export { assertOwnSessions, hasOwnSessions, sessionsMissing } from "./pooler.ts";
export {
  CALLER_STATEMENT_MS,
  leasedStatementMs,
  limitStatements,
  MAX_STATEMENT_MS,
  TABLE_LOCK_IDLE_MS,
} from "./deadlines.ts";
export { SQLSTATE, explainPostgresError, sqlState, type NeededRole } from "./postgres-errors.ts";
export {
  assertMigrated,
  assertWritable,
  migrateUp,
  migrationSql,
  readMigrationStatus,
  type AppliedMigration,
  type Migration,
  type MigrationStatus,
} from "./migrate.ts";
export { Notifications, notifyStatement, notify } from "./notifications.ts";
export {
  LEASE_LOCK_WAIT_MS,
  limitLockWait,
  findOrigin,
  SessionHolder,
  SETTLE_LOCK_WAIT_MS,
  settlingPlans,
  steadyPlans,
} from "./session-holder.ts";
export { LockWatch, nameBlockers, type LockWatchOptions } from "./lock-watch.ts";
export { pgDatabase } from "./drivers/pg.ts";
export type { PgPool } from "./drivers/pg-shape.ts";
export {
  onTransactionEnd,
  toQueryable,
  type CallerTransaction,
  type PgTx,
} from "./drivers/caller-transaction.ts";
export type { LibraryTransactionOptions, TransactionAdapter } from "./drivers/library.ts";
export { beginInLibrary } from "./drivers/library-transaction.ts";
export type { PostgresJsTx } from "./drivers/postgres-js.ts";
