import { SagaboxError } from "../errors/index.ts";
import type { Database, OwnedTransaction, Queryable } from "./database.ts";
import { CALLER_STATEMENT_MS } from "./deadlines.ts";
import { migrations as shipped } from "./migrations.generated.ts";
import {
  SQLSTATE,
  explainPostgresError,
  explainReadOnly,
  migrateRemedy,
  readOnlyDatabase,
  sqlState,
} from "./postgres-errors.ts";
import { quoteSchema, type Statement } from "./statement.ts";
import { canWrite, ENCODING_GUARD, migrationScript, migrationStatements } from "./statements.ts";

export interface Migration {
  readonly version: number;
  readonly name: string;
  /** Older code cannot work on the schema once this has run. */
  readonly breaking: boolean;
  readonly checksum: string;
  readonly sql: string;
}

export interface AppliedMigration {
  readonly version: number;
  readonly name: string;
  readonly breaking: boolean;
  readonly checksum: string;
  readonly applied_at: string;
}

export interface MigrationStatus {
  readonly schema: string;
  readonly applied: readonly AppliedMigration[];
  readonly pending: readonly Migration[];
}

/**
 * Applies the missing migrations, each in a transaction of its own, and returns them. A lock lets any number of processes
 * start at the same time. Throws if the database is not UTF-8, or if its schema was made by other or newer migrations.
 */
export async function migrateUp(
  database: Database,
  schema: string,
  migrations: readonly Migration[] = shipped,
): Promise<readonly Migration[]> {
  const quoted = quoteSchema(schema);
  const sql = migrationStatements(quoted);
  await withMigrationLock(database, schema, async (tx) => {
    await assertEncoding(tx, quoted);
    await prepareLedger(tx, schema);
  });
  const done: Migration[] = [];
  for (const migration of migrations) {
    await withMigrationLock(database, schema, async (tx) => {
      const { rows } = await tx.run<AppliedMigration>(sql.applied);
      assertUsable(schema, rows, migrations);
      if (rows.some((row) => row.version === migration.version)) return;
      await applyMigration(tx, migration, quoted);
      await tx.run(sql.record, [migration.version, migration.name, migration.breaking, migration.checksum]);
      done.push(migration);
    });
  }
  return done;
}

// Messages are Unicode. Other encodings cannot store all of it, and SQL_ASCII counts and compares bytes.
async function assertEncoding(tx: OwnedTransaction, quoted: string): Promise<void> {
  const { rows } = await tx.run<{ encoding: string; database: string }>(migrationStatements(quoted).encoding);
  const [found] = rows;
  if (found === undefined || found.encoding === "UTF8") return;
  throw new SagaboxError(
    "STORAGE_ENCODING_UNSUPPORTED",
    `Database "${found.database}" has the encoding ${found.encoding}, but must have UTF8: messages hold any Unicode text. ` +
      "Create one with `create database … encoding 'UTF8' template template0` and move your data there with pg_dump.",
  );
}

// "if not exists" asks for the right to create even when there is nothing to create, so we look first: a role that
// may only read and write can then still find that all is done.
async function prepareLedger(tx: OwnedTransaction, schema: string): Promise<void> {
  const quoted = quoteSchema(schema);
  const sql = migrationStatements(quoted);
  if (await exists(tx, sql.hasLedger, `${quoted}.schema_migration`)) return;
  if (!(await exists(tx, sql.hasSchema, quoted))) await tx.run(sql.createSchema);
  await tx.run(sql.createLedger);
}

async function exists(database: Queryable, question: Statement, name: string): Promise<boolean> {
  const { rows } = await database.run<{ present: boolean }>(question, [name]);
  return rows[0]?.present === true;
}

async function applyMigration(tx: OwnedTransaction, migration: Migration, quoted: string): Promise<void> {
  try {
    await tx.query(migration.sql.replaceAll("{schema}", quoted));
  } catch (error) {
    if (sqlState(error) === SQLSTATE.readOnlyTransaction) throw explainReadOnly(error);
    if (sqlState(error) === undefined || sqlState(error) === SQLSTATE.insufficientPrivilege) throw error;
    const busy = sqlState(error) === SQLSTATE.lockNotAvailable;
    throw new SagaboxError(
      "STORAGE_MIGRATION_FAILED",
      `Migration ${migration.version} (${migration.name}) failed and was rolled back: ${describeMigrationError(error)}. ` +
        (busy ? "A table was in use for too long; try again at a quieter moment." : "Nothing of it remains."),
      { cause: error },
    );
  }
}

// The detail names the object that is in the way, such as a view of the user. Details of other errors may quote rows.
function describeMigrationError(error: unknown): string {
  const { message, detail } = error as Error & { readonly detail?: string };
  const namesOnly =
    sqlState(error) === SQLSTATE.featureNotSupported || sqlState(error) === SQLSTATE.dependentObjects;
  return namesOnly && detail !== undefined ? `${message} (${detail})` : message;
}

export async function readMigrationStatus(
  database: Database,
  schema: string,
  migrations: readonly Migration[] = shipped,
): Promise<MigrationStatus> {
  const applied = await readAppliedMigrations(database, schema);
  assertUsable(schema, applied, migrations);
  const known = new Set(applied.map((row) => row.version));
  return { schema, applied, pending: migrations.filter((migration) => !known.has(migration.version)) };
}

async function readAppliedMigrations(
  database: Database,
  schema: string,
): Promise<readonly AppliedMigration[]> {
  const quoted = quoteSchema(schema);
  const sql = migrationStatements(quoted);
  try {
    if (!(await exists(database, sql.hasLedger, `${quoted}.schema_migration`))) return [];
    return (await database.run<AppliedMigration>(sql.applied)).rows;
  } catch (error) {
    throw explainPostgresError(error, quoted);
  }
}

/** Refuses to work on a schema that lacks a migration, or that a newer breaking one has changed. */
export async function assertMigrated(database: Database, schema: string): Promise<void> {
  const { pending } = await readMigrationStatus(database, schema);
  if (pending.length === 0) return;
  throw new SagaboxError(
    "STORAGE_NOT_MIGRATED",
    `Schema "${schema}" lacks ${pending.length} migration(s), the first is ${pending[0]?.name}. ` +
      `${migrateRemedy(quoteSchema(schema))} before bus.run().`,
  );
}

/** Refuses a standby, and a server, database or role that is read-only: nothing of ours works there. */
export async function assertWritable(database: Queryable): Promise<void> {
  const { rows } = await database.run<{ can_write: boolean }>(canWrite);
  if (rows[0]?.can_write !== false) return;
  throw readOnlyDatabase("its transactions are read-only");
}

/** The SQL of all migrations for people who apply them with their own tool. */
export function migrationSql(schema: string, migrations: readonly Migration[] = shipped): string {
  const quoted = quoteSchema(schema);
  const { createSchema, createLedger } = migrationStatements(quoted);
  const steps = migrations.map((migration) => migrationScript(quoted, migration));
  return (
    [`${ENCODING_GUARD};`, `${createSchema.text};`, `${createLedger.text};`, ...steps].join("\n\n") + "\n"
  );
}

function assertUsable(
  schema: string,
  applied: readonly AppliedMigration[],
  migrations: readonly Migration[],
): void {
  const other = applied.find((row) =>
    migrations.some((known) => known.version === row.version && known.checksum !== row.checksum),
  );
  if (other !== undefined) {
    throw new SagaboxError(
      "STORAGE_SCHEMA_MISMATCH",
      `Schema "${schema}" was made by other migrations than those of this version: migration ${other.version} ` +
        `(${other.name}) has another text here. Use the version of sagabox that applied it. If its data is not ` +
        `needed, drop the schema and run \`sagabox migrate up\`, or choose another one with SAGABOX_SCHEMA. ` +
        "Nothing was changed.",
    );
  }
  const newest = migrations.at(-1)?.version ?? 0;
  const newer = applied.find((row) => row.version > newest && row.breaking);
  if (newer !== undefined) {
    throw new SagaboxError(
      "STORAGE_TOO_NEW",
      `Schema "${schema}" is at migration ${newer.version} (${newer.name}), which this version of sagabox cannot ` +
        `work with: it knows up to ${newest}. Deploy a newer version; nothing was changed.`,
    );
  }
}

async function withMigrationLock(
  database: Database,
  schema: string,
  work: (tx: OwnedTransaction) => Promise<void>,
): Promise<void> {
  const quoted = quoteSchema(schema);
  const { lock, lockTimeout } = migrationStatements(quoted);
  // A migrator that is frozen loses the lock, so the others do not wait for ever.
  // Another one may take any time, and so may a change of a large table.
  const tx = await database.begin({
    idleTimeoutMs: 60_000,
    statementMs: Infinity,
    beginMs: CALLER_STATEMENT_MS,
  });
  try {
    await tx.run(lock, [schema]);
    await tx.run(lockTimeout);
    await work(tx);
    await tx.commit();
  } catch (error) {
    await tx.rollback();
    throw explainPostgresError(error, quoted, "owner");
  }
}
