import { defineStatement, type Statement } from "../storage/index.ts";

export type AuditStatements = ReturnType<typeof auditStatements>;

/** Tables of the logs. */
export const logTables = { saga: "saga_audit_log", action: "audit_log" } as const;
export type LogName = keyof typeof logTables;

const utc = (time: string): string => `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;
const month = (time: string): string => `date_trunc('month', ${time} at time zone 'UTC')::date`;

// The canonical text of a row: a JSON array of its columns in this order, with JSON columns as their stored text. The
// audit guide documents it, so that auditors can check the chain with their own tools.
const canonical = {
  saga: `json_build_array('saga', row.id, row.xid::text, ${utc("row.timestamp")}, row.saga_id, row.version, row.event_type,
              row.step, row.old_status, row.new_status, row.note, row.cause, row.user_id, row.reason, row.trace_id,
              row.input::text, row.metadata::text, row.old_state::text, row.new_state::text)`,
  action: `json_build_array('action', row.id, row.xid::text, ${utc("row.timestamp")}, row.actor, row.action, row.target_kind,
              row.target_id, row.reason, row.trace_id, row.before::text, row.after::text, row.outcome,
              row.error_code)`,
} as const;

/** SQL for writing, sealing and verifying. `schema` must be quoted already. */
export function auditStatements(schema: string) {
  const leaves = (log: LogName, after: string, upto: string): string =>
    `select '${log}' as log, to_char(${month("row.timestamp")}, 'YYYY-MM-DD') as month, row.xid, row.id,
              encode(sha256(convert_to(${canonical[log]}::text, 'UTF8')), 'hex') as digest
         from ${schema}.${logTables[log]} as row
        where row.xid >= $1::text::xid8 and row.xid < $2::text::xid8
          and row.id > ${after}::text::bigint and row.id <= ${upto}::text::bigint`;
  const waiting = (log: LogName, after: string): string =>
    `(select row.xid from ${schema}.${logTables[log]} as row
           where row.xid >= $1::text::xid8 and row.xid < $2::text::xid8 and row.id > ${after}::text::bigint
           order by row.xid, row.id limit $5::integer)`;
  return {
    write: defineStatement(
      "sagabox.audit.write",
      `insert into ${schema}.audit_log
         (actor, action, target_kind, target_id, reason, trace_id, before, after, outcome, error_code)
       values ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::json, $8::json, $9::text, $10::text)`,
    ),
    writeAll: defineStatement(
      "sagabox.audit.write_all",
      `insert into ${schema}.audit_log
         (actor, action, target_kind, target_id, reason, trace_id, before, after, outcome)
       select actor, action, target_kind, target_id, reason, trace_id, before::json, after::json, 'done'
         from unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[],
                     $6::text::text[], $7::text::text[], $8::text::text[])
              with ordinality as line (actor, action, target_kind, target_id, reason, trace_id, before, after, turn)
        order by turn`,
    ),
    // Only one process at a time seals, attaches or drops. A process that does not get the lock skips its round.
    alone: defineStatement(
      "sagabox.audit.alone",
      `select pg_try_advisory_xact_lock(hashtextextended('sagabox.audit.' || $1::text, 0)) as alone`,
    ),
    head: defineStatement(
      "sagabox.audit.head",
      `select pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
              ${utc("greatest(clock_timestamp(), head.sealed_at)")} as now,
              head.number::text, head.chain, head.xid_to::text, head.saga_after::text, head.action_after::text,
              head.saga_top::text, head.action_top::text, encode(head.hash, 'hex') as hash,
              (select encode(hash, 'hex') from ${schema}.audit_seal where number = $1::text::bigint limit 1) as known
         from (select 1) as always
         left join (select * from ${schema}.audit_seal order by number desc limit 1) as head on true`,
    ),
    // Transaction ids of the oldest unsealed rows, up to the limit.
    waiting: defineStatement(
      "sagabox.audit.waiting",
      `with waiting as materialized (
         select xid from (${waiting("saga", "$3")} union all ${waiting("action", "$4")}) as logs
          order by xid limit $5::integer)
       select (select count(*)::integer from waiting) as count,
              (select waiting.xid::text from waiting order by waiting.xid limit 1) as first,
              (select waiting.xid::text from waiting order by waiting.xid desc limit 1) as last`,
    ),
    leaves: defineStatement(
      "sagabox.audit.leaves",
      `select log, month, id::text, digest
         from (${leaves("saga", "$3", "$4")} union all ${leaves("action", "$5", "$6")}) as row
        order by row.log, row.month, row.xid, row.id`,
    ),
    seal: defineStatement(
      "sagabox.audit.seal",
      `insert into ${schema}.audit_seal
         (number, chain, log, month, xid_from, xid_to, saga_after, action_after, saga_top, action_top, row_count, leaves,
          hash, previous_hash, sealed_at)
       values ($1::text::bigint, $2::integer, $3::text, $4::text::date, $5::text::xid8, $6::text::xid8,
               $7::text::bigint, $8::text::bigint, $9::text::bigint, $10::text::bigint, $11::integer,
               decode($12::text, 'hex'), decode($13::text, 'hex'), decode($14::text, 'hex'), $15::text::timestamptz)`,
    ),
    seals: defineStatement(
      "sagabox.audit.seals",
      `select number::text, chain, log, to_char(month, 'YYYY-MM-DD') as month, xid_from::text, xid_to::text, saga_after::text,
              action_after::text, saga_top::text, action_top::text, row_count, encode(leaves, 'hex') as leaves,
              encode(hash, 'hex') as hash, encode(previous_hash, 'hex') as previous_hash,
              ${utc("sealed_at")} as sealed_at
         from ${schema}.audit_seal as seal
        where seal.number > $1::text::bigint
        order by seal.number limit $2::integer`,
    ),
    sealTotals: defineStatement(
      "sagabox.audit.seal_totals",
      `select chain, saga_after::text, action_after::text, count(*)::integer as seals
         from ${schema}.audit_seal group by chain, saga_after, action_after order by chain`,
    ),
    // The chains, without counting their seals. If the first and the last seal belong to one chain, it is the only one; all
    // seals are read only after a restore from a dump.
    chains: defineStatement(
      "sagabox.audit.chains",
      `with ends as materialized (
         (select chain, saga_after, action_after from ${schema}.audit_seal order by number limit 1)
         union
         (select chain, saga_after, action_after from ${schema}.audit_seal order by number desc limit 1))
       select chain, saga_after::text, action_after::text
         from (select * from ends where (select count(*) from ends) = 1
               union
               select chain, saga_after, action_after from ${schema}.audit_seal
                where (select count(*) from ends) > 1) as found
        order by found.chain`,
    ),
    // Rows that no seal covers: not sealed yet, with an impossible transaction id, or before the first stored seal.
    unsealed: defineStatement(
      "sagabox.audit.unsealed",
      uncoveredSql(schema, "row.xid >= $1::text::xid8 and row.xid < pg_snapshot_xmax(pg_current_snapshot())"),
    ),
    impossible: defineStatement(
      "sagabox.audit.impossible",
      uncoveredSql(
        schema,
        "row.xid >= $1::text::xid8 and row.xid >= pg_snapshot_xmax(pg_current_snapshot())",
      ),
    ),
    before: defineStatement(
      "sagabox.audit.before",
      `select log, id::text, at from (
         select 'saga' as log, row.id, ${utc("row.timestamp")} as at from ${schema}.saga_audit_log as row
          where row.id <= $2::text::bigint or (row.xid < $1::text::xid8 and row.id <= $4::text::bigint)
         union all
         select 'action', row.id, ${utc("row.timestamp")} from ${schema}.audit_log as row
          where row.id <= $3::text::bigint or (row.xid < $1::text::xid8 and row.id <= $5::text::bigint)) as found
        order by found.log, found.id limit 100`,
    ),
    firstSeal: defineStatement(
      "sagabox.audit.first_seal",
      `select number::text, encode(previous_hash, 'hex') as previous_hash from ${schema}.audit_seal as seal
        order by seal.number limit 1`,
    ),
    // Each dropped month has a few entries.
    retentionLines: defineStatement(
      "sagabox.audit.retention_lines",
      `select row.id::text, ${utc("row.timestamp")} as at, row.actor, row.target_kind, row.target_id, row.after::text as after
         from ${schema}.audit_log as row
        where row.action = 'audit.retention' and row.outcome = 'done' order by row.id desc limit $1::integer`,
    ),
    // Of the given partitions, those that still exist.
    tablesLeft: defineStatement(
      "sagabox.audit.tables_left",
      `select relname as name from pg_class
        where relnamespace = $1::text::regnamespace and relname = any($2::text::text[])`,
    ),
  };
}

function uncoveredSql(schema: string, condition: string): string {
  const rows = (log: LogName, after: string): string =>
    `select '${log}' as log, row.id, row.timestamp as at from ${schema}.${logTables[log]} as row
      where ${condition} and row.id > ${after}::text::bigint`;
  return `select count(*)::integer as count, ${utc("min(at)")} as oldest,
              (array_agg(log || ' ' || id order by log, id))[1:5]::text as some
         from (${rows("saga", "$2")} union all ${rows("action", "$3")}) as found`;
}

/** A condition on one log. Only the conditions in use become part of the statement, so that each can use its index. */
export interface ListCondition {
  readonly log: LogName;
  readonly sql: string;
}

export const listColumns: Readonly<Record<LogName, string>> = {
  saga: `'saga' as log, row.xid, row.id, row.timestamp as at, row.user_id as actor, 'saga.' || row.event_type as action,
         'saga' as target_kind, row.saga_id as target_id, row.trace_id, row.input::text as input,
         row.old_state::text as "oldState", row.new_state::text as "newState", null::text as before, null::text as after, row.version, row.step,
         row.old_status, row.new_status, row.note, row.cause, row.reason,
         case when row.event_type = 'ignored' then 'refused' else 'done' end as outcome, null::text as error_code`,
  action: `'action' as log, row.xid, row.id, row.timestamp as at, row.actor, row.action, row.target_kind, row.target_id,
         row.trace_id, null::text as input, null::text as "oldState", null::text as "newState", row.before::text as before,
         row.after::text as after, null::integer as version, null::text as step, null::text as old_status,
         null::text as new_status, null::text as note, null::text as cause, row.reason, row.outcome, row.error_code`,
};

/** Returns the statement that lists entries of the given logs, newest first. `$1` is the limit. */
export function listStatement(
  schema: string,
  logs: readonly LogName[],
  conditions: readonly ListCondition[],
): Statement {
  const branch = (log: LogName): string => {
    const all = conditions
      .filter((one) => one.log === log)
      .map(({ sql }) => sql.replaceAll("{schema}", schema));
    const where = all.length === 0 ? "" : `where ${all.join(" and ")}`;
    return `(select ${listColumns[log]} from ${schema}.${logTables[log]} as row ${where}
       order by row.xid desc, row.id desc limit $1::integer)`;
  };
  return defineStatement(
    "sagabox.audit.list",
    `select log, xid::text, id::text, ${utc("at")} as at, actor, action, target_kind, target_id, trace_id, input,
            "oldState", "newState", before, after, version, step, old_status, new_status, note, cause, reason, outcome, error_code
       from (${logs.map(branch).join(" union all ")}) as found
      order by found.xid desc, found.id desc, log desc limit $1::integer`,
  );
}

const inSealMonth = `row.timestamp >= seal.month::timestamp at time zone 'UTC'
                    and row.timestamp < (seal.month + interval '1 month') at time zone 'UTC'`;

/** SQL about the monthly partitions. `schema` must be quoted already. */
export function monthStatements(schema: string) {
  return {
    now: defineStatement(
      "sagabox.audit.now",
      `select to_char(${month("clock_timestamp()")}, 'YYYY-MM-DD') as month`,
    ),
    partitions: defineStatement(
      "sagabox.audit.partitions",
      `select relname as name from pg_class
        where relnamespace = $1::text::regnamespace and relkind = 'r' and relispartition
          and relname ~ ('^' || $2::text || '_[0-9]{6}$')
        order by relname`,
    ),
    lockTimeout: defineStatement(
      "sagabox.audit.lock_timeout",
      "select set_config('lock_timeout', $1::text, true)",
    ),
    // Number of sealed rows of one log and month.
    sealed: defineStatement(
      "sagabox.audit.sealed_rows",
      `select coalesce(sum(row_count), 0)::text as count from ${schema}.audit_seal
        where log = $1::text and month = $2::text::date`,
    ),
    // Sealed months, and whether no row of them is left, including the default partition.
    sealedMonths: defineStatement(
      "sagabox.audit.sealed_months",
      `select seal.log, to_char(seal.month, 'YYYY-MM-DD') as month,
              not case when seal.log = 'saga'
                       then exists (select 1 from ${schema}.saga_audit_log as row where ${inSealMonth})
                       else exists (select 1 from ${schema}.audit_log as row where ${inSealMonth}) end as gone
         from (select distinct log, month from ${schema}.audit_seal) as seal
        order by 1, 2`,
    ),
  };
}

/** SQL for one monthly partition. Its name and bounds must come from `monthPartition`. */
export function partitionStatements(
  schema: string,
  { table, name, month: from, next }: { table: string; name: string; month: string; next: string },
) {
  const parent = `${schema}.${table}`;
  const child = `${schema}.${name}`;
  return {
    create: `create table ${child} (like ${parent} including all);
             create trigger audit_refuse_truncate before truncate on ${child}
               for each statement execute function ${schema}.audit_refuse()`,
    attach: `alter table ${parent} attach partition ${child}
             for values from ('${from}T00:00:00Z') to ('${next}T00:00:00Z')`,
    drop: `alter table ${parent} detach partition ${child}; drop table ${child}`,
    rows: `select count(*)::text as count from ${child}`,
    lastSeal: `select number::text, encode(hash, 'hex') as hash, (count(*) over ())::text as count
                 from ${child} as seal order by seal.number desc limit 1`,
    // The history of a stored instance must stay readable, regardless of its age.
    needed: `select exists (
               select 1 from ${schema}.saga_instance as instance
                where instance.created_at < timestamptz '${next}T00:00:00Z'
                  and exists (select 1 from ${child} as line where line.saga_id = instance.id)) as needed`,
    // A month of seals is dropped once no row that they cover is left and all older seals are dropped.
    sealsNeeded: `select exists (
               select 1 from (select distinct log, month from ${child}) as seal
                where (seal.log = 'saga' and exists (
                        select 1 from ${schema}.saga_audit_log as row where ${inSealMonth}))
                   or (seal.log = 'action' and exists (
                        select 1 from ${schema}.audit_log as row where ${inSealMonth})))
                 or exists (select 1 from ${child} where number >= (select max(number) from ${schema}.audit_seal))
                 or exists (select 1 from ${schema}.audit_seal
                             where number < (select min(number) from ${child})) as needed`,
  };
}
