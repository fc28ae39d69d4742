import { SagaboxError } from "../errors/index.ts";
import type { Database, OwnedTransaction } from "./database.ts";
import { migrations as shipped } from "./migrations.generated.ts";
import { quotedSchema } from "./schema-name.ts";
import { migrationStatements } from "./statements.ts";

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

/** Forward only, one transaction each, under one lock: any number of processes may start at once. */
export async function migrateUp(
  database: Database,
  schema: string,
  migrations: readonly Migration[] = shipped,
): Promise<readonly Migration[]> {
  const quoted = quotedSchema(schema);
  const sql = migrationStatements(quoted);
  await locked(database, schema, async (tx) => {
    await tx.run(sql.createSchema);
    await tx.run(sql.createLedger);
  });
  const done: Migration[] = [];
  for (const migration of migrations) {
    await locked(database, schema, async (tx) => {
      const { rows } = await tx.run<AppliedMigration>(sql.applied);
      assertUsable(schema, rows, migrations);
      if (rows.some((row) => row.version === migration.version)) return;
      await tx.query(migration.sql.replaceAll("{schema}", quoted));
      await tx.run(sql.record, [migration.version, migration.name, migration.breaking, migration.checksum]);
      done.push(migration);
    });
  }
  return done;
}

export async function migrationStatus(
  database: Database,
  schema: string,
  migrations: readonly Migration[] = shipped,
): Promise<MigrationStatus> {
  const sql = migrationStatements(quotedSchema(schema));
  const ledger = await database.run<{ present: boolean }>(sql.hasLedger, [`${schema}.schema_migration`]);
  const applied = ledger.rows[0]?.present ? (await database.run<AppliedMigration>(sql.applied)).rows : [];
  assertUsable(schema, applied, migrations);
  const known = new Set(applied.map((row) => row.version));
  return { schema, applied, pending: migrations.filter((migration) => !known.has(migration.version)) };
}

/** Refuses to work on a schema that lacks a migration, or that a newer breaking one has changed. */
export async function assertMigrated(database: Database, schema: string): Promise<void> {
  const { pending } = await migrationStatus(database, schema);
  if (pending.length === 0) return;
  throw new SagaboxError(
    "STORAGE_NOT_MIGRATED",
    `Schema "${schema}" lacks ${pending.length} migration(s), the first is ${pending[0]?.name}. ` +
      "Run `sagabox migrate up`, or call bus.migrate() before bus.run().",
  );
}

/** The SQL of all migrations for people who apply them with their own tool. */
export function migrationSql(schema: string, migrations: readonly Migration[] = shipped): string {
  const quoted = quotedSchema(schema);
  const { createSchema, createLedger } = migrationStatements(quoted);
  const steps = migrations.map(
    (migration) =>
      `begin;\n${migration.sql.replaceAll("{schema}", quoted)}\n` +
      `insert into ${quoted}.schema_migration (version, name, breaking, checksum)\n` +
      `values (${migration.version}, '${migration.name}', ${migration.breaking}, '${migration.checksum}');\ncommit;`,
  );
  return [`${createSchema.text};`, `${createLedger.text};`, ...steps].join("\n\n") + "\n";
}

function assertUsable(
  schema: string,
  applied: readonly AppliedMigration[],
  migrations: readonly Migration[],
): void {
  const newest = migrations.at(-1)?.version ?? 0;
  const newer = applied.find((row) => row.version > newest && row.breaking);
  if (newer !== undefined) {
    throw new SagaboxError(
      "STORAGE_TOO_NEW",
      `Schema "${schema}" is at migration ${newer.version} (${newer.name}), which this version of sagabox cannot ` +
        `work with: it knows up to ${newest}. Deploy a newer version; nothing was changed.`,
    );
  }
  const edited = applied.find((row) =>
    migrations.some((known) => known.version === row.version && known.checksum !== row.checksum),
  );
  if (edited !== undefined) {
    throw new SagaboxError(
      "STORAGE_MIGRATION_FAILED",
      `Migration ${edited.version} (${edited.name}) was applied to schema "${schema}" with another text than the ` +
        "one shipped here. Use the version of sagabox that applied it, or restore the schema.",
    );
  }
}

async function locked(
  database: Database,
  schema: string,
  work: (tx: OwnedTransaction) => Promise<void>,
): Promise<void> {
  const tx = await database.begin();
  try {
    await tx.run(migrationStatements(quotedSchema(schema)).lock, [schema]);
    await work(tx);
    await tx.commit();
  } catch (error) {
    await tx.rollback();
    throw error;
  }
}
