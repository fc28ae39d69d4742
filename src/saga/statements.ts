import { defineStatement } from "../storage/index.ts";

export type SagaStatements = ReturnType<typeof sagaStatements>;

const columns = `instance.id, instance.saga_type as type, instance.definition_version, instance.correlation_id, instance.status,
       instance.input::text as input, instance.state::text as state, instance.version, instance.traceparent,
       instance.trace_id, instance.message_correlation_id, instance.parent_id, instance.parent_step, instance.claims,
       extract(epoch from clock_timestamp()) * 1000 as now_ms`;

// Always true. The planner estimates 100 rows for json_to_recordset, and a plan cached while the table was small would
// keep scanning the whole table. This condition lowers the estimate to one row, so instances are looked up by id.
const estimateOneRowSql = (text: string): string => `${text} = ${text} || ''`;

// Updates by ctid, which needs no join. A row that changed since the statement began is claimed by the next one.
const claimSql = (schema: string, due: string): string =>
  `update ${schema}.saga_instance as instance
          set claimed_by = $1::text, claims = instance.claims + 1,
              claimed_until = clock_timestamp() + $2::double precision * interval '1 ms'
        where instance.ctid = any(array(${due}))
       returning ${columns},
                 exists (select from ${schema}.saga_input as pending where pending.saga_id = instance.id) as has_input`;

const dueSql = (schema: string, also: string): string =>
  `select due.ctid from ${schema}.saga_instance as due
           where due.due_at <= (select clock_timestamp())
             and (due.claimed_until is null or due.claimed_until < (select clock_timestamp()))
             and due.saga_type || '/' || due.definition_version = any($3::text::text[]) ${also}
           order by due.due_at limit $4::integer for update skip locked`;

export function sagaStatements(schema: string) {
  const savedColumn = (name: string): string => `saved."${name}"`;
  return {
    insert: defineStatement("sagabox.saga.insert", insertInstanceSql(schema, false)),
    insertFailed: defineStatement("sagabox.saga.insert_failed", insertInstanceSql(schema, true)),
    // Assigns pending input that arrived before the instance existed.
    collect: defineStatement(
      "sagabox.saga.collect",
      `update ${schema}.saga_input set saga_id = $1::text, correlation_id = null
        where saga_type = $2::text and correlation_id = $3::text and saga_id is null and expires_at > clock_timestamp()`,
    ),
    idOf: defineStatement(
      "sagabox.saga.id_of",
      `select id from ${schema}.saga_instance where saga_type = $1::text and correlation_id = $2::text`,
    ),
    // Serializes the start of an instance with early events for its key. The clock is read after the lock. `blind`: with
    // this isolation level the snapshot may be older than the lock, so committed early events may be invisible.
    meet: defineStatement(
      "sagabox.saga.meet",
      `select pg_advisory_xact_lock(hashtextextended($1::text || chr(31) || $2::text, 7453)),
              extract(epoch from clock_timestamp()) * 1000 as now_ms,
              current_setting('transaction_isolation') <> 'read committed' as blind`,
    ),
    load: defineStatement(
      "sagabox.saga.load",
      `select ${columns} from ${schema}.saga_instance as instance where instance.id = $1::text for update`,
    ),
    read: defineStatement(
      "sagabox.saga.read",
      `select ${columns} from ${schema}.saga_instance as instance where instance.id = $1::text`,
    ),
    // Of the types and keys whose result a caller waits for: the number and the id of those that were started. Finds each
    // instance by its index, whatever the statistics are.
    started: defineStatement(
      "sagabox.saga.started",
      `select awaited.nr::integer as nr, instance.id
         from unnest($1::text::text[], $2::text::text[]) with ordinality as awaited (saga_type, key, nr)
        cross join lateral (
          select id from ${schema}.saga_instance
           where saga_type = awaited.saga_type and correlation_id = awaited.key
          offset 0) as instance`,
    ),
    // Of the instances whose result a caller waits for: those that have ended, or wait for an operator.
    ended: defineStatement(
      "sagabox.saga.ended",
      `select ${columns} from ${schema}.saga_instance as instance
        where instance.id = any($1::text::text[]) and instance.status in ('completed', 'compensated', 'failed')`,
    ),
    loadByKey: defineStatement(
      "sagabox.saga.load_by_key",
      `select ${columns} from ${schema}.saga_instance as instance
        where instance.saga_type = $1::text and instance.correlation_id = $2::text for update`,
    ),
    // Saves transitions of different instances, each guarded by its version. Nothing is written for a stale one. A locked
    // row is skipped, because waiting for it would delay the whole batch.
    save: defineStatement(
      "sagabox.saga.save",
      `with free as (
         select made.*, instance.row_id from json_to_recordset($1::json) as made ${transitionColumns}
          cross join lateral (
            select own.ctid as row_id from ${schema}.saga_instance as own
             where own.id = made.id and own.version = made.version
            offset 0 for update skip locked) as instance
          where ${estimateOneRowSql("made.id")}),
       saved as (
         update ${schema}.saga_instance as instance
            set status = free.status, state = free.state, current_step = free.step, waits_for = free.waits,
                waiting_since = ${toTimestampSql("free.since")}, last_error = free.error, retry_count = free.retries,
                due_at = case when instance.due_at <= clock_timestamp() and ${toTimestampSql("free.due")} <= clock_timestamp()
                              then instance.due_at else ${toTimestampSql("free.due")} end,
                version = instance.version + 1, claims = 0, updated_at = clock_timestamp(),
                attachments = free.attachments, completed_at = ${completedAtSql("free.status")},
                claimed_by = case when free.release then null else instance.claimed_by end,
                claimed_until = case when free.release then null else instance.claimed_until end
           from free
          where instance.ctid = free.row_id
         returning instance.id, instance.version, instance.trace_id, free.cause, free.actor, free.lines, free.input,
                   free.metadata, free."oldState", free."newState", free.steps, free.incident, free.resolution),
       ${logLinesSql(schema, savedColumn)},
       ${openIncidentSql(schema, savedColumn)},
       closed as (
         update ${schema}.saga_incident as incident
            set closed_at = clock_timestamp(), resolution = (select resolution from saved where saved.id = incident.saga_id)
          where incident.closed_at is null
            and incident.saga_id = any(array(select id from saved where resolution is not null)))
       select id from saved`,
    ),
    ignore: defineStatement(
      "sagabox.saga.ignore",
      `insert into ${schema}.saga_audit_log (saga_id, version, event_type, note, cause, user_id, input, reason, trace_id)
       values ($1::text, $2::integer, 'ignored', $3::text, $4::text, $5::text, $6::text::json, $7::text,
               (select trace_id from ${schema}.saga_instance where id = $1::text))`,
    ),
    input: defineStatement(
      "sagabox.saga.input",
      `select pending.id, pending.cause, pending.input::text as input from ${schema}.saga_input as pending
        where pending.saga_id = $1::text order by pending.arrived_at, pending.id limit 100`,
    ),
    deleteInput: defineStatement(
      "sagabox.saga.delete_input",
      `delete from ${schema}.saga_input where saga_id = $1::text and id = any($2::text::text[])`,
    ),
    dropInput: defineStatement(
      "sagabox.saga.drop_input",
      `delete from ${schema}.saga_input where saga_id = $1::text`,
    ),
    // Does not lock the instance's row, so that two instances that write to each other cannot deadlock.
    post: defineStatement(
      "sagabox.saga.post",
      `insert into ${schema}.saga_input (id, saga_type, saga_id, cause, input, expires_at)
       select $2::text, instance.saga_type, instance.id, $3::text, $4::text::json, 'infinity'
         from ${schema}.saga_instance as instance where instance.id = $1::text
       on conflict (id, saga_type) do nothing
       returning saga_id`,
    ),
    // Pending input may outlive the message that brought it. Attachments in the instance's state are held by a trigger.
    holdAttached: defineStatement(
      "sagabox.saga.hold_attached",
      `insert into ${schema}.blob_use (key, used_by)
       select blob.key, 'saga:' || $1::text from ${schema}.blob
        where blob.key = any($2::text::text[]) and coalesce(blob.doomed_at, 'infinity') = 'infinity'
          for share
       on conflict (key, used_by) do nothing`,
    ),
    keep: defineStatement(
      "sagabox.saga.keep",
      `insert into ${schema}.saga_input (id, saga_type, correlation_id, cause, input, expires_at)
       values ($1::text, $2::text, $3::text, $4::text, $5::text::json,
               clock_timestamp() + $6::double precision * interval '1 ms')
       on conflict (id, saga_type) do nothing`,
    ),
    // Claims due instances of the sagas that this worker can move.
    claim: defineStatement("sagabox.saga.claim", claimSql(schema, dueSql(schema, ""))),
    // Skips instances whose last claim was not settled (claims > 0): they may have killed a worker and must not wait here.
    claimAhead: defineStatement(
      "sagabox.saga.claim_ahead",
      claimSql(schema, dueSql(schema, "and due.claims = 0")),
    ),
    claimWithInput: defineStatement(
      "sagabox.saga.claim_with_input",
      claimSql(
        schema,
        `select due.row_id
            from (select distinct pending.saga_id from ${schema}.saga_input as pending
                   where pending.saga_id is not null order by pending.saga_id) as pending
           cross join lateral (
             select own.ctid as row_id from ${schema}.saga_instance as own
              where own.id = pending.saga_id
                and (own.claimed_until is null or own.claimed_until < (select clock_timestamp()))
                and own.saga_type || '/' || own.definition_version = any($3::text::text[])
             offset 0 for update skip locked) as due
           limit $4::integer`,
      ),
    ),
    nextDue: defineStatement(
      "sagabox.saga.next_due",
      `select extract(epoch from due_at - clock_timestamp()) * 1000 as wait_ms from ${schema}.saga_instance
        where due_at is not null and (claimed_until is null or claimed_until < (select clock_timestamp()))
          and saga_type || '/' || definition_version = any($1::text::text[])
        order by due_at limit 1`,
    ),
    // Returns all claims that this worker still holds. A row locked by a tx step or a reply is skipped, because waiting
    // would let the other claims expire. No other worker can claim a locked row.
    renew: defineStatement(
      "sagabox.saga.renew",
      `with ours as (
         select id from ${schema}.saga_instance where claimed_by = $1::text and id = any($3::text::text[])),
       free as (
         select id from ${schema}.saga_instance
          where claimed_by = $1::text and id = any($3::text::text[])
            for update skip locked),
       renewed as (
         update ${schema}.saga_instance as instance
            set claimed_until = clock_timestamp() + $2::double precision * interval '1 ms'
          where instance.id = any(array(select id from free)))
       select id from ours`,
    ),
    release: defineStatement(
      "sagabox.saga.release",
      `update ${schema}.saga_instance set claimed_by = null, claimed_until = null, claims = 0
        where id = $1::text and claimed_by = $2::text`,
    ),
    // No work began under these claims, so they do not count as attempts.
    giveBack: defineStatement(
      "sagabox.saga.give_back",
      `update ${schema}.saga_instance
          set claimed_by = null, claimed_until = null, claims = greatest(claims - 1, 0)
        where id = any($1::text::text[]) and claimed_by = $2::text`,
    ),
    // No work began under this claim, so it does not count as an attempt. The claim itself expires.
    discountClaim: defineStatement(
      "sagabox.saga.discount_claim",
      `update ${schema}.saga_instance set claims = greatest(claims - 1, 0)
        where id = $1::text and claimed_by = $2::text`,
    ),
    // Parks an instance whose data subject was erased. It cannot be decrypted, so an operator has to decide.
    park: defineStatement(
      "sagabox.saga.park",
      `with parked as (
         update ${schema}.saga_instance
            set status = 'failed', due_at = null, claimed_by = null, claimed_until = null, claims = 0,
                version = version + 1, updated_at = clock_timestamp(), last_error = $3::text
          where id = $1::text and claimed_by = $2::text and status not in ('completed', 'compensated')
            and last_error is distinct from $3::text
         returning id, version, trace_id, current_step),
       incident as (
         insert into ${schema}.saga_incident (saga_id, steps, error)
         select id, array_remove(array[current_step], null), $3::text from parked
         on conflict (saga_id) where closed_at is null do update set error = excluded.error),
       logged as (
         insert into ${schema}.saga_audit_log
           (saga_id, version, event_type, old_status, new_status, note, cause, trace_id)
         select id, version, 'failed', $4::text, 'failed', $3::text, 'erasure', trace_id from parked)
       select current_step from parked`,
    ),
    // Instances overdue by 10 s, or with pending input that old, whose version this worker has not registered.
    orphans: defineStatement(
      "sagabox.saga.orphans",
      `select saga_type as type, definition_version, count(*)::integer as count from ${schema}.saga_instance
        where (due_at < clock_timestamp() - interval '10 seconds'
               or id in (select pending.saga_id from ${schema}.saga_input as pending
                          where pending.saga_id is not null
                            and pending.arrived_at < clock_timestamp() - interval '10 seconds'))
          and (claimed_until is null or claimed_until < clock_timestamp())
          and saga_type || '/' || definition_version <> all($1::text::text[])
        group by 1, 2 order by 1, 2 limit 100`,
    ),
    // For gauges. The count is capped to keep the scrape cheap.
    measure: defineStatement(
      "sagabox.saga.measure",
      `select status, count(*)::integer as count
         from (select status from ${schema}.saga_instance where completed_at is null limit 100000) as open
        group by status
       union all
       select 'stuck', count(*)::integer
         from (select 1 from ${schema}.saga_instance
                where due_at < clock_timestamp() - interval '10 minutes' limit 10000) as overdue`,
    ),
    // A child is kept as long as its parent, which may still undo it. The audit log keeps their lines.
    forget: defineStatement(
      "sagabox.saga.forget",
      `with old as (
         select id from ${schema}.saga_instance as instance
          where instance.completed_at < (select clock_timestamp()) - $1::double precision * interval '1 ms'
            and (select true from ${schema}.saga_instance as parent where parent.id = instance.parent_id) is null
          limit $2::integer for update skip locked),
       incidents as (delete from ${schema}.saga_incident where saga_id = any(array(select id from old))),
       inputs as (delete from ${schema}.saga_input where saga_id = any(array(select id from old)))
       delete from ${schema}.saga_instance where id = any(array(select id from old))`,
    ),
    forgetUnclaimed: defineStatement(
      "sagabox.saga.forget_unclaimed",
      `delete from ${schema}.saga_input where ctid = any(array(
         select ctid from ${schema}.saga_input where expires_at < (select clock_timestamp()) limit $1::integer))`,
    ),
  };
}

// Columns of a transition as an object in a JSON array, so that one statement saves a batch.
export const transitionColumns = `(id text, version integer, status text, state json, step text, waits text, since double precision,
            error text, retries integer, due double precision, release boolean, cause text, actor text, lines json,
            input json, metadata json, "oldState" json, "newState" json, steps text[], incident text, resolution text, attachments text[])`;

export const toTimestampSql = (ms: string): string => `to_timestamp(${ms} / 1000)`;

export const completedAtSql = (status: string): string =>
  `case when ${status} in ('completed', 'compensated') then clock_timestamp() end`;

/** Maps a transition column to its SQL expression. */
type ColumnSource = (name: string) => string;

// Inserts the history lines of a transition.
export const logLinesSql = (schema: string, made: ColumnSource): string =>
  `logged as (
         insert into ${schema}.saga_audit_log
           (saga_id, version, event_type, step, old_status, new_status, note, cause, user_id, reason, trace_id, input,
            metadata, old_state, new_state)
         select saved.id, saved.version, line.event, line."stepPath", line."from", line."to", line.note, ${made("cause")},
                ${made("actor")}, line.reason, saved.trace_id, case when line.nr = 1 then ${made("input")} end,
                case when line.nr = 1 then ${made("metadata")} end, case when line.nr = 1 then ${made("oldState")} end,
                case when line.nr = 1 then ${made("newState")} end
           from saved, json_to_recordset(${made("lines")}) as line
             (nr integer, event text, "stepPath" text, "from" text, "to" text, note text, reason text)
          order by line.nr)`;

// Inserts or updates the incident of a transition that opens one.
export const openIncidentSql = (schema: string, made: ColumnSource): string =>
  `opened as (
         insert into ${schema}.saga_incident (saga_id, steps, error)
         select saved.id, ${made("steps")}, ${made("incident")} from saved where ${made("incident")} is not null
         on conflict (saga_id) where closed_at is null
         do update set steps = excluded.steps, error = excluded.error)`;

// A new instance uses one parameter per column, because parsing JSON would take a sixth of the statement's time. JSON
// parameters are cast from text, because postgres.js would encode a json parameter a second time.
const paramByName: Readonly<Record<string, string>> = {
  status: "$14::text",
  state: "$15::text::json",
  step: "$16::text",
  waits: "$17::text",
  since: "$18::double precision",
  error: "$19::text",
  retries: "$20::integer",
  due: "$21::double precision",
  attachments: "$22::text::text[]",
  cause: "$23::text",
  actor: "$24::text",
  lines: "$25::text::json",
  input: "$26::text::json",
  metadata: "$27::text::json",
  oldState: "$28::text::json",
  newState: "$29::text::json",
  steps: "$30::text::text[]",
  incident: "$31::text",
};
const paramFor: ColumnSource = (name) => paramByName[name] ?? "";

// Inserts an instance after its first decision, or nothing if its key is taken. Pending input is only detected here: it
// is rare, and a statement that could update one more table would be slower every time.
export const insertInstanceSql = (schema: string, fails: boolean): string =>
  `with saved as (
         insert into ${schema}.saga_instance
           (id, saga_type, definition_version, correlation_id, input, trace_id, traceparent, message_correlation_id,
            parent_id, parent_step, status, state, current_step, waits_for, waiting_since, last_error, retry_count,
            due_at, version, completed_at, claimed_by, claimed_until, claims, subject, attachments)
         values ($1::text, $2::text, $3::integer, $4::text, $5::text::json, $6::text, $7::text, $8::text, $9::text, $10::text,
                 ${paramFor("status")}, ${paramFor("state")}, ${paramFor("step")}, ${paramFor("waits")}, ${toTimestampSql(paramFor("since"))},
                 ${paramFor("error")}, ${paramFor("retries")}, ${toTimestampSql(paramFor("due"))}, 1, ${completedAtSql(paramFor("status"))},
                 $11::text, clock_timestamp() + $12::double precision * interval '1 ms',
                 case when $11::text is null then 0 else 1 end, $13::text, ${paramFor("attachments")})
         on conflict (saga_type, correlation_id) do nothing
         returning id, version, trace_id),
       ${logLinesSql(schema, paramFor)}${fails ? `,\n       ${openIncidentSql(schema, paramFor)}` : ""}
       select id, exists (select from ${schema}.saga_input as pending
                           where pending.saga_type = $2::text and pending.correlation_id = $4::text and pending.saga_id is null
                             and pending.expires_at > clock_timestamp()) as has_input
         from saved`;

/** Statements on the stored saga definitions and on the instances that began with them. */
export function definitionStatements(schema: string) {
  return {
    readDefinitions: defineStatement(
      "sagabox.saga.read_definitions",
      `select saga_type as type, version, hash, structure::text as structure from ${schema}.saga_definition
        where saga_type || '/' || version = any($1::text::text[])`,
    ),
    // The first worker that registers a version stores it. Later workers find the row and insert nothing.
    addDefinition: defineStatement(
      "sagabox.saga.add_definition",
      `insert into ${schema}.saga_definition (saga_type, version, hash, structure)
       values ($1::text, $2::integer, $3::text, $4::text::json)
       on conflict (saga_type, version) do nothing
       returning saga_type as type`,
    ),
    replaceDefinition: defineStatement(
      "sagabox.saga.replace_definition",
      `update ${schema}.saga_definition
          set hash = $3::text, structure = $4::text::json, registered_at = clock_timestamp()
        where saga_type = $1::text and version = $2::integer and hash = $5::text`,
    ),
    // Reads at most 100,000 unfinished instances. Instances beyond the limit are parked when a worker moves them. The row
    // without a path counts all instances. Records with an open incident are left out: an operator decides about them.
    unfitRecords: defineStatement(
      "sagabox.saga.unfit_records",
      `with unfinished as (
         select id, state from ${schema}.saga_instance
          where saga_type = $1::text and definition_version = $2::integer and completed_at is null limit 100000),
       begun as (
         select distinct unfinished.id, split_part(record.key, '@', 1) as path
           from unfinished
          cross join lateral json_each(unfinished.state -> 'records') as record
          where (record.value ->> 'status' = 'in_progress'
                 or record.value ->> 'outcome' in ('done', 'unknown')
                    and record.value ->> 'status' not in ('skipped', 'compensated'))
            and record.value #>> '{undo,status}' is distinct from 'failed'
            and unfinished.state -> 'mismatches' -> record.key is null)
       select path, count(distinct id)::integer as instances from begun
        where path <> all($3::text::text[])
        group by grouping sets ((path), ())
       having count(*) > 0
        order by path nulls first`,
    ),
    // Encrypted instances: the database cannot read their records, so the worker decrypts and compares them.
    encryptedUnfinished: defineStatement(
      "sagabox.saga.encrypted_unfinished",
      `select id from ${schema}.saga_instance
        where saga_type = $1::text and definition_version = $2::integer and completed_at is null
          and state -> '$sealed' is not null
        limit 1000`,
    ),
    countUnfinished: defineStatement(
      "sagabox.saga.count_unfinished",
      `select count(*)::integer as count
         from (select 1 from ${schema}.saga_instance
                where saga_type = $1::text and definition_version = $2::integer and completed_at is null limit 100000) as open`,
    ),
  };
}
