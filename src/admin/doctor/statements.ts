import { defineStatement } from "../../storage/index.ts";

const HOT =
  "'outbox', 'queue', 'member', 'relay_lane', 'consumer_inbox', 'saga_instance', 'dead_letter', 'scheduled'";
/** Only these two tables have their own vacuum settings. */
const TUNED = "'outbox', 'queue'";
/** Partitions are left out; the parent table represents them. */
const PARTITION = "'_([0-9]{8}|[0-9]{6}|default)$'";

/**
 * Matches sessions of other users whose state, times and type are null, because the role may not read all statistics.
 * Processes of the server itself have no user.
 */
const HIDDEN = "(backend_type is null and usesysid is not null)";

/** Removes the schema name, which is the first parameter, from a text. */
const unqualifySql = (text: string): string =>
  `replace(${text}, quote_ident(trim(both '"' from $1::text)) || '.', '')`;

/** SQL of the checks. `schema` must be quoted already; `$1`, if used, is the same name. */
export function doctorStatements(schema: string) {
  return {
    server: defineStatement(
      "sagabox.doctor.server",
      `select current_setting('server_version_num')::integer as version_number, current_setting('server_version') as version,
              pg_is_in_recovery() as standby, current_setting('fsync') as fsync,
              current_setting('full_page_writes') as full_page_writes,
              current_setting('synchronous_commit') as synchronous_commit, current_setting('autovacuum') as autovacuum,
              current_setting('wal_level') as wal_level, current_setting('archive_mode') as archive_mode,
              current_setting('max_connections')::integer as max_connections,
              current_setting('superuser_reserved_connections')::integer as reserved,
              (select count(*)::integer from pg_stat_activity
                where backend_type = 'client backend' or (${HIDDEN} and datid is not null)) as used,
              (select count(distinct worker)::integer from ${schema}.member where lease_until > clock_timestamp()) as workers,
              pg_notification_queue_usage() as notify_queue, current_database() as database_name,
              current_user as user_name, (select rolsuper from pg_roles where rolname = current_user) as superuser,
              (select ssl from pg_stat_ssl where pid = pg_backend_pid()) as ssl,
              coalesce(inet_client_addr() <<= any(array['127.0.0.0/8'::inet, '::1'::inet]), true) as local`,
    ),
    encoding: defineStatement(
      "sagabox.doctor.encoding",
      "select current_setting('server_encoding') as encoding, current_database() as database_name",
    ),
    clock: defineStatement(
      "sagabox.doctor.clock",
      "select (extract(epoch from clock_timestamp()) * 1000)::double precision as now_ms",
    ),
    slots: defineStatement(
      "sagabox.doctor.slots",
      `select slot_name as name, active, wal_status as status,
              coalesce(case when pg_is_in_recovery() then 0 else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) end, 0)
                ::double precision as retained
         from pg_replication_slots order by slot_name`,
    ),
    sessions: defineStatement(
      "sagabox.doctor.sessions",
      `select pid, usename as user_name, application_name as application, state, null as prepared,
              (extract(epoch from clock_timestamp() - xact_start) * 1000)::double precision as age_ms
         from pg_stat_activity
        where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
          and backend_type = 'client backend'
       union all
       select 0, owner, null, 'prepared', gid, (extract(epoch from clock_timestamp() - prepared) * 1000)::double precision
         from pg_prepared_xacts where database = current_database()
        order by age_ms desc
        limit 100`,
    ),
    // Hidden sessions cannot be judged, so their number is reported.
    hidden: defineStatement(
      "sagabox.doctor.hidden",
      `select count(*)::integer as hidden, current_user as user_name
         from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and ${HIDDEN}`,
    ),
    tables: defineStatement(
      "sagabox.doctor.tables",
      `select class.oid::regclass::text as name, coalesce(stat.n_live_tup, 0)::double precision as live,
              coalesce(stat.n_dead_tup, 0)::double precision as dead,
              pg_table_size(class.oid)::double precision as size, class.relpersistence = 'u' as unlogged,
              coalesce('autovacuum_enabled=false' = any(class.reloptions) or 'autovacuum_enabled=off' = any(class.reloptions), false)
                as vacuum_off,
              class.relname not in (${TUNED}) or coalesce(array_to_string(class.reloptions, ',') like '%autovacuum_vacuum_scale_factor%', false)
                as tuned,
              to_char(greatest(stat.last_vacuum, stat.last_autovacuum) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as vacuumed_at
         from pg_class as class
         left join pg_stat_all_tables as stat on stat.relid = class.oid
        where class.relnamespace = $1::text::regnamespace and class.relkind = 'r' and class.relname in (${HOT})
        order by class.relname`,
    ),
    // Partitions of the next days and the next month, which upkeep should have attached already.
    partitions: defineStatement(
      "sagabox.doctor.partitions",
      `with today as materialized (select (clock_timestamp() at time zone 'utc')::date as day),
       wanted as (
         select parent || to_char(today.day + ahead, '"_"YYYYMMDD') as name
           from today, unnest(array['message', 'receipt']) as parent, generate_series(1, 3) as ahead
         union all
         select parent || to_char(today.day + interval '1 month', '"_"YYYYMM')
           from today, unnest(array['saga_audit_log', 'audit_log', 'audit_seal']) as parent)
       select array(select name from wanted
                     where to_regclass($1::text || '.' || name) is null order by name) as missing,
              array(select relname::text from pg_class
                     where relnamespace = $1::text::regnamespace and relname ~ '_default$' and relkind = 'r'
                       and pg_relation_size(oid) > 0 order by relname) as strays`,
    ),
    relay: defineStatement(
      "sagabox.doctor.relay",
      `select (select count(*)::integer from ${schema}.member where scope = 0 and lease_until > clock_timestamp()) as relays,
              (select extract(epoch from clock_timestamp() - min(head.due_at)) * 1000
                 from generate_series(0, 255) as lane
                cross join lateral (
                  select due_at from ${schema}.outbox
                   where outbox.lane = lane.lane and due_at < clock_timestamp() order by seq limit 4) as head)::double precision
                as oldest_ms`,
    ),
    consumers: defineStatement(
      "sagabox.doctor.consumers",
      `select known.name,
              (select count(*)::integer from ${schema}.member
                where scope = known.id and lease_until > clock_timestamp()) as members,
              (select count(*)::integer from (
                 select 1 from ${schema}.queue where lane between known.id * 256 and known.id * 256 + 255 limit 1) as some_)
                as waiting,
              (select count(*)::integer from ${schema}.subscription where group_id = known.id) as topics
         from ${schema}.consumer_group as known
        order by known.name
        limit 1000`,
    ),
    // Topics without subscribers, among the messages in the newest 500 pages of today's archive.
    topics: defineStatement(
      "sagabox.doctor.topics",
      `with day as materialized (select (clock_timestamp() at time zone 'utc')::date as today),
       size as materialized (
         select pg_relation_size(coalesce(to_regclass($1::text || '.message_' || to_char(today, 'YYYYMMDD')),
                                          to_regclass($1::text || '.message_default'))) / current_setting('block_size')::bigint as pages
           from day),
       recent as materialized (
         select message.topic, bool_and(message.kind = 'event') as events_only from ${schema}.message
          where message.written_on = (select today from day)
            and message.ctid >= (select ('(' || greatest(0, pages - 500) || ',0)')::tid from size)
          group by message.topic),
       unwanted as materialized (
         select topic, events_only from recent
          where not exists (select 1 from ${schema}.subscription where subscription.topic = recent.topic)
          order by topic limit 100)
       select (select count(*)::integer from ${schema}.subscription) as subscriptions,
              array(select topic from unwanted where not events_only order by topic) as topics,
              array(select topic from unwanted where events_only order by topic) as events`,
    ),
    letters: defineStatement(
      "sagabox.doctor.letters",
      `select (select count(*)::integer from (
                 select 1 from ${schema}.dead_letter where closed_at is null limit 10000) as some_) as open,
              (extract(epoch from clock_timestamp() - (
                 select min(failed_at) from ${schema}.dead_letter where closed_at is null)) * 1000)::double precision as oldest_ms,
              (select dead_letter_ms from ${schema}.conservation) as retention_ms`,
    ),
    seals: defineStatement(
      "sagabox.doctor.seals",
      `with sealed as materialized (
         select coalesce(max(xid_to::text::numeric), 0)::text::xid8 as to_ from (
           select xid_to from ${schema}.audit_seal order by number desc limit 10) as last)
       select (extract(epoch from clock_timestamp() - least(
                (select min(timestamp) from (select timestamp from ${schema}.saga_audit_log, sealed
                                       where xid >= sealed.to_ order by xid, id limit 100) as log),
                (select min(timestamp) from (select timestamp from ${schema}.audit_log, sealed
                                       where xid >= sealed.to_ order by xid, id limit 100) as log))) * 1000)::double precision
                as unsealed_ms`,
    ),
    conservation: defineStatement(
      "sagabox.doctor.conservation",
      `select (extract(epoch from clock_timestamp() - checked_at) * 1000)::double precision as age_ms,
              (select count(*)::integer from json_object_keys(coalesce(state -> 'wrong', '{}'))) as wrong,
              json_array_length(coalesce(state -> 'missed', '[]')) as missed,
              dead_letter_ms, archive_ms
         from ${schema}.conservation`,
    ),
    subjects: defineStatement(
      "sagabox.doctor.subjects",
      `select exists (select 1 from ${schema}.subject_key where erased_at is null) as subjects`,
    ),
    // All objects of the schema with name and shape. The schema name is removed, so that shapes can be compared.
    parts: defineStatement(
      "sagabox.doctor.parts",
      `with own as materialized (
         select oid, relname, relkind from pg_class
          where relnamespace = $1::text::regnamespace
            and (relkind not in ('r', 'i') or not relispartition)
            and relname !~ ${PARTITION})
       select 'table' as kind, relname::text as name, 'table' as shape, false as invalid
         from own where relkind in ('r', 'p')
       union all
       select 'view', relname::text, 'view', false from own where relkind = 'v'
       union all
       select 'sequence', relname::text, 'sequence', false from own
        where relkind = 'S' and relname !~ '_id_seq$'
       union all
       select 'column', own.relname || '.' || attname,
              ${unqualifySql("format_type(atttypid, atttypmod)")} || case when attnotnull then ' not null' else '' end, false
         from own join pg_attribute on attrelid = own.oid and attnum > 0 and not attisdropped
        where own.relkind in ('r', 'p')
       union all
       select 'index', index_.relname::text,
              ${unqualifySql("pg_get_indexdef(index_.oid)")}, not indisvalid
         from own join pg_index on indrelid = own.oid
         join pg_class as index_ on index_.oid = indexrelid
        where own.relkind in ('r', 'p')
       union all
       select 'constraint', own.relname || '.' || conname, contype::text, false
         from own join pg_constraint on conrelid = own.oid
        where own.relkind in ('r', 'p') and contype in ('c', 'p', 'u', 'f')
       union all
       select 'constraint', typname || '.' || conname, pg_constraint.contype::text, false
         from pg_type join pg_constraint on contypid = pg_type.oid
        where typnamespace = $1::text::regnamespace
       union all
       select 'trigger', own.relname || '.' || tgname, case when tgenabled = 'D' then 'disabled' else 'enabled' end, false
         from own join pg_trigger on tgrelid = own.oid and not tgisinternal
        where own.relkind in ('r', 'p')
       union all
       select 'function', proname || '(' || replace(pg_get_function_identity_arguments(oid), $1::text::regnamespace || '.', '') || ')',
              md5(replace(prosrc, $1::text, '{schema}')), false
         from pg_proc where pronamespace = $1::text::regnamespace
        order by kind, name`,
    ),
  };
}

export type DoctorStatements = ReturnType<typeof doctorStatements>;

/** SQL that the doctor proposes to run in psql. The doctor itself runs none of it. */
export const remedies = {
  logged: (table: string) => `alter table ${table} set logged;`,
  vacuumAgain: (table: string) => `alter table ${table} reset (autovacuum_enabled);`,
  vacuumSettings: (table: string) =>
    `alter table ${table} set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);`,
  commitSafely: (database: string, user: string) =>
    `alter database "${database}" set synchronous_commit = on; -- or: alter role "${user}" reset synchronous_commit;`,
  dropSlot: (slot: string) => `select pg_drop_replication_slot('${slot}');`,
  endSession: (pid: number) =>
    `select pg_terminate_backend(${pid}); -- and set idle_in_transaction_session_timeout for that user`,
  readStatistics: (user: string) =>
    `grant pg_read_all_stats to "${user.replaceAll('"', '""')}"; -- as a superuser, or run the doctor as one who has it`,
} as const;
