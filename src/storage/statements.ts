import { defineStatement } from "./statement.ts";

/** SQL of the migration runner. `schema` must be quoted. There is one lock per schema name. */
export function migrationStatements(schema: string) {
  return {
    lock: defineStatement(
      "sagabox.migrate.lock",
      `select pg_advisory_xact_lock(hashtextextended('sagabox.migrate.' || $1::text, 0))`,
    ),
    // While an ALTER waits for a long transaction, all other statements on the table wait behind it. So the wait is short.
    lockTimeout: defineStatement(
      "sagabox.migrate.lock_timeout",
      `select set_config('lock_timeout', '10s', true)`,
    ),
    encoding: defineStatement(
      "sagabox.migrate.encoding",
      `select current_setting('server_encoding') as encoding, current_database() as database`,
    ),
    hasSchema: defineStatement(
      "sagabox.migrate.has_schema",
      `select to_regnamespace($1::text) is not null as present`,
    ),
    createSchema: defineStatement("sagabox.migrate.create_schema", `create schema if not exists ${schema}`),
    createLedger: defineStatement(
      "sagabox.migrate.create_ledger",
      `create table if not exists ${schema}.schema_migration (
         version     integer     not null primary key,
         name        text        not null,
         breaking    boolean     not null,
         checksum    text        not null,
         applied_at  timestamptz not null default clock_timestamp()
       )`,
    ),
    hasLedger: defineStatement(
      "sagabox.migrate.has_ledger",
      `select to_regclass($1::text) is not null as present`,
    ),
    applied: defineStatement(
      "sagabox.migrate.applied",
      `select version, name, breaking, checksum,
              to_char(applied_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as applied_at
         from ${schema}.schema_migration order by version`,
    ),
    record: defineStatement(
      "sagabox.migrate.record",
      `insert into ${schema}.schema_migration (version, name, breaking, checksum)
       values ($1::integer, $2::text, $3::boolean, $4::text)`,
    ),
  };
}

/** The first statement of the printed SQL. It rejects encodings that `migrateUp` rejects. */
export const ENCODING_GUARD = `do $guard$ begin
  if current_setting('server_encoding') <> 'UTF8' then
    raise exception 'Database "%" has the encoding %, but must have UTF8.', current_database(), current_setting('server_encoding');
  end if;
end $guard$`;

/** One migration with its ledger entry, for users who apply it with their own tool. */
export function migrationScript(
  schema: string,
  migration: { version: number; name: string; breaking: boolean; checksum: string; sql: string },
): string {
  const { version, name, breaking, checksum, sql } = migration;
  const quoteLiteral = (text: string): string => `'${text.replaceAll("'", "''")}'`;
  return `begin;
${sql.replaceAll("{schema}", schema)}
insert into ${schema}.schema_migration (version, name, breaking, checksum)
values (${version}, ${quoteLiteral(name)}, ${breaking}, ${quoteLiteral(checksum)});
commit;`;
}

/** The process id of the server process of this session. */
export const backend = defineStatement("sagabox.session.backend", "select pg_backend_pid() as pid");
export const PING = defineStatement("sagabox.ping", "select 1");

/** False on a standby, and where the server, the database or the role is read-only. */
export const canWrite = defineStatement(
  "sagabox.can_write",
  "select current_setting('transaction_read_only') = 'off' as can_write",
);

export const NOTIFY = defineStatement("sagabox.notify", "select pg_notify($1::text, $2::text)");

export const backendPid = defineStatement("sagabox.session.backend_pid", "select pg_backend_pid() as pid");

// The text of the blocking query is left out because it may hold personal data. Only members of pg_read_all_stats see when
// a transaction of another role began, and the type of a server process such as autovacuum.
export const blockingSessions = defineStatement(
  "sagabox.session.blockers",
  `select blocker.pid,
          coalesce(nullif(activity.application_name, ''), nullif(activity.backend_type, 'client backend'),
                   case when activity.pid is not null and activity.usesysid is null
                        then 'a process of the server, such as autovacuum' end, '') as application,
          (extract(epoch from clock_timestamp() - activity.xact_start) * 1000)::double precision as open_ms
     from (select distinct unnest(pg_blocking_pids($1::integer)) as pid) as blocker
     left join pg_stat_activity as activity on activity.pid = blocker.pid
    order by activity.xact_start nulls last, blocker.pid
    limit 5`,
);

// Identifies the server, unless it is a standby, because a session outlives the promotion of its standby. Freeing one large
// block also changes how the C library of most servers manages memory: until then it returns memory to the system after each
// large answer and requests it again page by page for the next, which is an eighth of the cost of a read.
export const serverIdentity = defineStatement(
  "sagabox.session.opened_on",
  `select case when not pg_is_in_recovery() then concat_ws(' ', extract(epoch from pg_postmaster_start_time()),
                 inet_server_addr(), inet_server_port()) end as server,
          length(repeat(' ', 4194304)) as freed`,
);

/** Applies the settings of a JSON object until the end of the transaction. */
export const setLocal = defineStatement(
  "sagabox.set_local",
  "select set_config(setting.key, setting.value, true) from json_each_text($1::text::json) as setting",
);
