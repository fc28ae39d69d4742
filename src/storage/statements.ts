import { statement } from "./statement.ts";

/** SQL of the migration runner. `schema` is quoted already; the lock is one per schema name. */
export function migrationStatements(schema: string) {
  return {
    lock: statement(
      "sagabox.migrate.lock",
      `select pg_advisory_xact_lock(hashtextextended('sagabox.migrate.' || $1::text, 0))`,
    ),
    createSchema: statement("sagabox.migrate.create_schema", `create schema if not exists ${schema}`),
    createLedger: statement(
      "sagabox.migrate.create_ledger",
      `create table if not exists ${schema}.schema_migration (
         version     integer     not null primary key,
         name        text        not null,
         breaking    boolean     not null,
         checksum    text        not null,
         applied_at  timestamptz not null default clock_timestamp()
       )`,
    ),
    hasLedger: statement("sagabox.migrate.has_ledger", `select to_regclass($1::text) is not null as present`),
    applied: statement(
      "sagabox.migrate.applied",
      `select version, name, breaking, checksum, applied_at::text from ${schema}.schema_migration order by version`,
    ),
    record: statement(
      "sagabox.migrate.record",
      `insert into ${schema}.schema_migration (version, name, breaking, checksum)
       values ($1::integer, $2::text, $3::boolean, $4::text)`,
    ),
  };
}
