import {
  FENCED,
  freeRows,
  LEFT_OUT,
  leftRows,
  ownedLanes,
  pastLocks,
  sameRow,
  sameStream,
} from "../lanes/index.ts";
import { type MessageColumn, messageColumns, STORED_COLUMNS, usualColumns } from "./outgoing.ts";
import { defineStatement, type Statement } from "../storage/index.ts";
import type { LocalHop } from "../transport/index.ts";

/**
 * Statements that settle rows. A relay's statements are fenced: they name their claims and do nothing if one
 * is invalid. The optimistic sender's statements name the row only: a sent row is settled under any owner of
 * its lane.
 */
export function settleStatements(schema: string) {
  const rows = "unnest($4::text::integer[], $5::text::bigint[], $6::text::text[])";
  const answer = `select pg_current_xact_id()::text as xid,
              (select coalesce(array_agg(lane), '{}') from owned) as owned`;
  const leased = "unnest($1::text::integer[], $2::text::bigint[], $3::text::text[])";
  const isGoing = "row.lane = going.lane and row.seq = going.seq";
  const isAmongGoing = "(row.lane, row.seq) in (select lane, seq from going)";
  const failingSql = (condition: string): string => `kept as (
         update ${schema}.outbox as row
            set attempts = row.attempts + 1, lease_until = null, last_error = failure.error,
                due_at = clock_timestamp() + failure.delay_ms * interval '1 ms'
           from unnest($4::text::integer[], $5::text::bigint[], $6::text::text[], $7::text::double precision[], $8::text::text[])
                as failure (lane, seq, id, delay_ms, error)
          where ${sameRow("failure")} and ${condition}
         returning row.lane, row.seq
       )`;
  return {
    sent: defineStatement(
      "sagabox.outbox.sent",
      `with ${ownedLanes(schema)}, gone as (
         delete from ${schema}.outbox as row
          using ${rows} as done (lane, seq, id)
          where ${sameRow("done")} and ${FENCED}
         returning row.lane, row.seq, row.again, row.message_id
       ), noted as (${receiptsSql(schema, "$7")})
       ${answer}`,
    ),
    // Like `sent`, but finds the rows by ctid, without an index. A row that was changed since its read has a
    // new ctid, and another row may have the old one. So the statement fails as a whole unless it deleted
    // exactly these sequence numbers. Its error text appears in the log of the server.
    sentInPlace: defineStatement(
      "sagabox.outbox.sent_in_place",
      `with ${ownedLanes(schema)}, gone as (
         delete from ${schema}.outbox as row
          where row.ctid = any($4::text::tid[]) and ${FENCED}
         returning row.lane, row.seq, row.again, row.message_id
       ), noted as (${receiptsSql(schema, "$6")})
       ${answer},
              (select case when not ${FENCED} or array_agg(seq order by seq) = $5::text::bigint[] then count(*)::integer
                           else ('sagabox settles a batch by name instead, since rows of it have moved: ' || count(*))::integer
                      end from gone) as gone`,
    ),
    sentPast: defineStatement(
      "sagabox.outbox.sent_past_locks",
      `with ${pastLocks(schema, "outbox", rows)}, gone as (
         delete from ${schema}.outbox as row using going
          where ${isGoing}
         returning row.lane, row.seq, row.again, row.message_id
       ), noted as (${receiptsSql(schema, "$7")})
       ${answer}, ${LEFT_OUT}`,
    ),
    failed: defineStatement(
      "sagabox.outbox.failed",
      `with ${ownedLanes(schema)}, ${failingSql(FENCED)} ${answer}`,
    ),
    failedPast: defineStatement(
      "sagabox.outbox.failed_past_locks",
      `with ${pastLocks(schema, "outbox", rows)}, ${failingSql(isAmongGoing)} ${answer}, ${LEFT_OUT}`,
    ),
    dead: defineStatement(
      "sagabox.outbox.dead",
      `with ${ownedLanes(schema)}, ${dyingSql(schema, FENCED)} ${answer}`,
    ),
    deadPast: defineStatement(
      "sagabox.outbox.dead_past_locks",
      `with ${pastLocks(schema, "outbox", rows)}, ${dyingSql(schema, isAmongGoing)} ${answer}, ${LEFT_OUT}`,
    ),
    // Rows leased to the optimistic sender, which has sent them.
    sentLeased: defineStatement(
      "sagabox.outbox.sent_leased",
      `with gone as (
         delete from ${schema}.outbox as row
          using unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as done (lane, seq, id)
          where ${sameRow("done")}
         returning row.lane, row.seq, row.again, row.message_id
       )
       ${receiptsSql(schema, "$4")}`,
    ),
    // Like `sentLeased`, but skips rows that other sessions have locked: their leases expire, and a relay
    // sends them again.
    sentLeasedPast: defineStatement(
      "sagabox.outbox.sent_leased_past_locks",
      `with ${freeRows(schema, "outbox", leased, { keepOrder: false })}, gone as (
         delete from ${schema}.outbox as row using going
          where ${isGoing}
         returning row.lane, row.seq, row.again, row.message_id
       ), noted as (${receiptsSql(schema, "$4")})
       select ${leftRows()}`,
    ),
    committedLeased: defineStatement(
      "sagabox.outbox.committed_leased",
      `select found.seq::text
         from unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as given (lane, seq, id)
        cross join lateral (
          select row.seq, row.lease_until from ${schema}.outbox as row where ${sameRow("given")} offset 0
        ) as found
        where found.lease_until > clock_timestamp()`,
    ),
    // Skips rows that other sessions have locked: their leases expire.
    releaseLeased: defineStatement(
      "sagabox.outbox.release_leased",
      `with ${freeRows(schema, "outbox", leased, { keepOrder: false })}
       update ${schema}.outbox as row
          set lease_until = null
         from going
        where ${isGoing} and row.lease_until is not null`,
    ),
  };
}

/** Statements that settle sent rows. Those of a local hop also deliver the messages to the queue. */
export interface SentStatements {
  readonly sent: Statement;
  readonly sentPast: Statement;
  /** Undefined if rows can be settled by name only. */
  readonly sentInPlace: Statement | undefined;
  readonly sentLeased: Statement;
  readonly sentLeasedPast: Statement;
  /** Wakes consumers after the rows of these lanes were delivered. */
  readonly wake: (lanes: readonly number[]) => void;
}

export function sentStatements(schema: string, hop: LocalHop | undefined): SentStatements {
  if (hop === undefined) return { ...settleStatements(schema), wake: () => undefined };
  return {
    sent: hop.settle,
    sentPast: hop.settlePast,
    sentInPlace: undefined,
    sentLeased: hop.settleLeased,
    sentLeasedPast: hop.settleLeasedPast,
    wake: (lanes) => hop.wake(lanes),
  };
}

// A message that holds its key when it dies leaves a row that is never due, which keeps its position in the
// stream.
function dyingSql(schema: string, condition: string): string {
  return `dying as materialized (
         select row.lane as row_lane, row.seq as row_seq, row.attempts, message.*, death.counts_as_attempt, death.reason, death.error_type,
                death.error_message, death.stack_trace, death.fingerprint,
                message.holds_on_death and death.reason <> 'expired' as stays
           from unnest($4::text::integer[], $5::text::bigint[], $6::text::text[], $7::text::boolean[], $8::text::text[],
                       $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[])
                as death (lane, seq, id, counts_as_attempt, reason, error_type, error_message, stack_trace, fingerprint)
           join ${schema}.outbox as row on ${sameRow("death")}
           join ${schema}.message on message.id = row.message_id and message.written_on = row.written_on
          where ${condition}
       ), gone as (
         delete from ${schema}.outbox as row using dying
          where row.lane = dying.row_lane and row.seq = dying.row_seq and not dying.stays
       ), tomb as (
         update ${schema}.outbox as row
            set due_at = 'infinity', lease_until = null, attempts = row.attempts + dying.counts_as_attempt::integer::smallint,
                last_error = dying.error_message
           from dying
          where row.lane = dying.row_lane and row.seq = dying.row_seq and dying.stays
       ), buried as (
         insert into ${schema}.dead_letter
                (origin, message_id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
                 correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
                 written_at, expires_at, reason, attempts, error_type, error_message, stack_trace, held_lane, held_seq,
                 fingerprint)
         select 'outbox', id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
                correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
                written_at, expires_at, reason, attempts + counts_as_attempt::integer, error_type, error_message, stack_trace,
                case when stays then row_lane end, case when stays then row_seq end, fingerprint
           from dying
       )`;
}

/**
 * Columns of rows that were republished: their seq is not that of the message, so the receipt stores the ids.
 * Null only in receipts of older versions.
 */
const SENT_AGAIN = `coalesce(array_agg(seq) filter (where again), '{}'), array_agg(message_id) filter (where again)`;

/** Inserts one receipt per lane from the rows in `gone`. */
export function receiptsSql(schema: string, relay: string): string {
  return `insert into ${schema}.receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs, again_ids)
          select lane, min(seq), max(seq), array_agg(seq order by seq), ${relay}::text, clock_timestamp(),
                 (clock_timestamp() at time zone 'utc')::date, ${SENT_AGAIN}
            from gone group by lane`;
}

const LISTS = messageColumns.map(({ type }, i) => `$${i + 1}::text::${type}[]`).join(", ");
const NAMES = messageColumns.map(({ name }) => name).join(", ");
/** The first free parameter after the lists. */
const NEXT = messageColumns.length + 1;

/**
 * How a write starts. A guarded one writes nothing unless its transaction already has a transaction id. That
 * is checked before our own statement takes one, because everything else is derived from the row that
 * `ifInside` lets through. No condition may call `pg_current_xact_id`: the planner would evaluate it to
 * estimate row counts.
 */
interface Opening {
  readonly name: string;
  readonly first: string;
  readonly ifInside: string;
  /**
   * Ending of a statement that returns new ids. A guarded one returns a row with a null id if no id is new.
   */
  readonly ids: string;
}

const FREE: Opening = { name: "", first: "with", ifInside: "", ids: "select id from fresh" };
const GUARDED: Opening = {
  name: "_guarded",
  first: `with inside as materialized (select pg_current_xact_id_if_assigned() is not null as numbered),`,
  ifInside: "from inside where inside.numbered",
  ids: "select fresh.id from inside left join fresh on true where inside.numbered",
};

/** Statements that write messages in a transaction of our own. */
export function writeStatements(schema: string) {
  return {
    ...buildWriteStatements(schema, FREE),
    ...movingStatements(schema),
  };
}

/**
 * Statements that write messages in a transaction of the caller. Each returns no row if it found no
 * transaction id and wrote nothing.
 */
export function guardedStatements(schema: string) {
  return {
    ...buildWriteStatements(schema, GUARDED),
    // Inside a transaction the transaction id stays. Outside, the statement is its own transaction, and the
    // id is gone after it.
    takeNumber: defineStatement("sagabox.outbox.take_number", "select pg_current_xact_id()::text as number"),
    hasNumber: defineStatement(
      "sagabox.outbox.has_number",
      "select pg_current_xact_id_if_assigned() is not null as inside",
    ),
  };
}

function buildWriteStatements(schema: string, { name, first, ifInside, ids }: Opening) {
  const moment = `moment as materialized (select pg_current_xact_id() as xid, clock_timestamp() as at ${ifInside})`;
  // The writer takes its transaction id before it draws a seq: the readers' horizon depends on that.
  const numberRowsSql = (from: string) => `given as materialized (
         select nextval('${schema}.outbox_seq') as seq, moment.at, (moment.at at time zone 'utc')::date as written_on,
                moment.at + listed.ttl_ms * interval '1 ms' as expires_at, listed.*
           from moment, ${from}
          where moment.xid is not null
       )`;
  const lists = `unnest(${LISTS}) as listed (${NAMES})`;
  // Sorted after the join and only then numbered, because a join may change the order of its input.
  const fresh = `(select * from unnest(${LISTS}) with ordinality as listed (${NAMES}, turn)
                    where listed.id in (select id from fresh)
                    order by turn) as listed`;
  const kept = `kept as (
         insert into ${schema}.message (${STORED_COLUMNS}, seq, written_on, written_at, expires_at)
         select ${STORED_COLUMNS}, seq, written_on, at, expires_at from given
       )`;
  // For ids that the caller chose. A generated id is stored with its message only. Looking it up searches all
  // days of the history, so only ids of that form are looked up. Of two concurrent writers the second waits
  // at `published_id`.
  const unknown = `where not ${schema}.has_message(listed.id)`;
  const reserveIdsSql = (listed: string, also: string) => `fresh as (
         insert into ${schema}.published_id (id, written_on)
         select listed.id, (moment.at at time zone 'utc')::date from moment, ${listed} ${also}
         on conflict do nothing
         returning id
       )`;
  const publishOnceSql = (
    also: string,
  ) => `${first} ${moment}, ${reserveIdsSql(lists, also)}, ${numberRowsSql(fresh)}, ${kept}, sending as (
       ${outboxRows(schema, "null")}
       )
       ${ids}`;
  const reserveOnlySql = (
    also: string,
  ) => `${first} moment as materialized (select clock_timestamp() as at ${ifInside}),
       ${reserveIdsSql("unnest($1::text::text[]) as listed (id)", also)}
       ${ids}`;
  const publishManySql = (lease: string) => `${first} ${moment}, ${numberRowsSql(lists)}, ${kept}
       ${outboxRows(schema, lease)}`;
  // Leased to the process that writes it, unless an earlier row of the stream still exists. Under repeatable
  // read the snapshot may miss rows that other writers of the key have committed, so nothing is leased. With
  // EXISTS instead, a plan made while the table was empty would scan the whole table.
  const leaseSql = (lane: string, stream: string, leaseMs: number) =>
    `case when current_setting('transaction_isolation') = 'read committed' and (${stream} is null or (
                        select true from ${schema}.outbox as earlier
                         where ${sameStream("earlier", lane, stream)} limit 1) is null)
                      then at + $${leaseMs}::double precision * interval '1 ms' end`;
  const written = `
       returning message_id as id, lane, seq::text, lease_until is not null as leased,
                 to_char(due_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as written_at`;
  return {
    publish: defineStatement(`sagabox.outbox.publish${name}`, publishManySql("null")),
    publishLeased: defineStatement(
      `sagabox.outbox.publish_leased${name}`,
      publishManySql(leaseSql("given.lane", "given.stream", NEXT)) + written,
    ),
    ...oneByOne(schema, { name, first, ifInside }, leaseSql, written),
    // Ids that exist already write nothing. The writer role may read ids and no other columns.
    publishOnce: defineStatement(`sagabox.outbox.publish_once${name}`, publishOnceSql(unknown)),
    /** For ids that cannot be generated ones. */
    publishNamed: defineStatement(`sagabox.outbox.publish_named${name}`, publishOnceSql("")),
    schedule: defineStatement(
      `sagabox.outbox.schedule${name}`,
      `${first} moment as materialized (select clock_timestamp() as at ${ifInside})
       ${scheduledRows(schema)}`,
    ),
    // For scheduled messages with an id of the caller's own.
    reserveIds: defineStatement(`sagabox.outbox.reserve_ids${name}`, reserveOnlySql(unknown)),
    reserveNames: defineStatement(`sagabox.outbox.reserve_names${name}`, reserveOnlySql("")),
  };
}

/** The last parameters of each schedule statement are the delays and the times. */
function scheduledRows(schema: string, also = ""): string {
  return `insert into ${schema}.scheduled (${STORED_COLUMNS}, due_at, written_at, expires_at)
       select ${STORED_COLUMNS}, due_at, clock_timestamp(), due_at + ttl_ms * interval '1 ms'
         from (select listed.*, coalesce(to_timestamp(listed.at_ms / 1000), clock_timestamp() + listed.delay_ms * interval '1 ms') as due_at
                 from moment, unnest(${LISTS}, $${NEXT}::text::double precision[], $${NEXT + 1}::text::double precision[])
                      as listed (${NAMES}, delay_ms, at_ms)) as listed${also}`;
}

/** Reserves and schedules in one statement, for drivers that take a list of statements and return no results between. */
function scheduleOnceStatements(schema: string) {
  const once = (
    also: string,
  ): string => `with moment as materialized (select clock_timestamp() as at), fresh as (
         insert into ${schema}.published_id (id, written_on)
         select listed.id, (moment.at at time zone 'utc')::date from moment, unnest($1::text::text[]) as listed (id) ${also}
         on conflict do nothing
         returning id
       )
       ${scheduledRows(schema, " where listed.id in (select id from fresh)")}
       returning id`;
  return {
    scheduleOnce: defineStatement(
      "sagabox.outbox.schedule_once",
      once(`where not ${schema}.has_message(listed.id)`),
    ),
    /** For ids that cannot be generated ones. */
    scheduleNamed: defineStatement("sagabox.outbox.schedule_named", once("")),
  };
}

function movingStatements(schema: string) {
  return {
    ...scheduleOnceStatements(schema),
    // Sorted, so that two transactions with common keys cannot deadlock here.
    lockStreams: defineStatement(
      "sagabox.outbox.lock_streams",
      `select pg_advisory_xact_lock(hashtextextended('sagabox.stream.' || stream, 0))
         from (select stream from unnest($1::text::text[]) as stream order by stream) as sorted`,
    ),
    // The DELETE takes the transaction id, and only then a seq is drawn. Rows are found by ctid, so the plan
    // does not depend on the size of the table.
    moveDue: defineStatement(
      "sagabox.outbox.move_due",
      `with turn as materialized (
         select pg_try_advisory_xact_lock(hashtextextended('sagabox.schedule.' || $2::text, 0)) as alone
       ), due as materialized (
         delete from ${schema}.scheduled
          where ctid = any(array(select ctid from ${schema}.scheduled
                                  where due_at <= (select clock_timestamp()) and (select alone from turn)
                                  order by due_at, id
                                  limit $1::integer
                                    for update skip locked))
         returning *
       ), given as materialized (
         select nextval('${schema}.outbox_seq') as seq, clock_timestamp() as at,
                (clock_timestamp() at time zone 'utc')::date as written_on, due.*
           from (select * from due order by due_at, id) as due
       ), kept as (
         insert into ${schema}.message (${STORED_COLUMNS}, seq, written_on, written_at, expires_at)
         select ${STORED_COLUMNS}, seq, written_on, written_at, expires_at from given
       )
       ${outboxRows(schema, "null::timestamptz")}
       returning lane`,
    ),
    nextDue: defineStatement(
      "sagabox.outbox.next_due",
      `select extract(epoch from (select due_at from ${schema}.scheduled order by due_at, id limit 1)
                          - clock_timestamp())::double precision * 1000 as wait_ms`,
    ),
  };
}

function outboxRows(schema: string, lease: string): string {
  return `insert into ${schema}.outbox
              (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
       select lane, seq, stream, topic, type, id, written_on, priority, max_attempts, at, expires_at, ${lease} from given`;
}

/**
 * Statements for a single message. Decoding 22 arrays would cost the server more than the two inserts, and
 * the columns that most messages leave empty are neither sent nor checked.
 */
function oneByOne(
  schema: string,
  { name, first, ifInside }: Omit<Opening, "ids">,
  leased: (lane: string, stream: string, leaseMs: number) => string,
  written: string,
) {
  // The sequence depends on the transaction id, so that it is drawn after it.
  const drawn = `drawn as materialized (
         select nextval(case when pg_current_xact_id() is not null then '${schema}.outbox_seq'::regclass end) as seq,
                clock_timestamp() as at
           ${ifInside}
       )`;
  const day = "(at at time zone 'utc')::date";
  const one = (columns: readonly MessageColumn[], lease: (param: (name: string) => string) => string) => {
    const names = columns.map(({ name }) => name);
    const param = (name: string): string => {
      const index = names.indexOf(name);
      return `$${index + 1}::text::${columns[index]?.type}`;
    };
    const own = names.filter((name) => name !== "ttl_ms");
    const expires = names.includes("ttl_ms")
      ? `at + ${param("ttl_ms")} * interval '1 ms'`
      : "null::timestamptz";
    return `${first} ${drawn}, kept as (
         insert into ${schema}.message (${own.join(", ")}, seq, written_on, written_at, expires_at)
         select ${own.map(param).join(", ")}, seq, ${day}, at, ${expires} from drawn
       )
       insert into ${schema}.outbox
              (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
       select ${param("lane")}, seq, ${param("stream")}, ${param("topic")}, ${param("type")}, ${param("id")}, ${day},
              ${param("priority")}, ${param("max_attempts")}, at, ${expires}, ${lease(param)}
         from drawn`;
  };
  const plain = (columns: readonly MessageColumn[]) => one(columns, () => "null::timestamptz");
  const leasing = (columns: readonly MessageColumn[]) =>
    one(columns, (param) => leased(param("lane"), param("stream"), columns.length + 1)) + written;
  return {
    publishOne: defineStatement(`sagabox.outbox.publish_one${name}`, plain(messageColumns)),
    publishUsual: defineStatement(`sagabox.outbox.publish_usual${name}`, plain(usualColumns)),
    publishLeasedOne: defineStatement(`sagabox.outbox.publish_leased_one${name}`, leasing(messageColumns)),
    publishLeasedUsual: defineStatement(`sagabox.outbox.publish_leased_usual${name}`, leasing(usualColumns)),
  };
}
