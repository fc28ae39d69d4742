import {
  FENCED,
  freeRows,
  LEFT_OUT,
  leftRows,
  ownedLanes,
  pastLocks,
  sameRow,
  sameStream,
  sampleSql,
} from "../../lanes/index.ts";
import { SETTLE_LOCK_WAIT_MS, defineStatement } from "../../storage/index.ts";

/**
 * Inserts one delivery per subscribed group for the rows in `gone`, in their order; a group's lanes mirror the
 * outbox's. The rows are sorted after the join and numbered last, because a join may change the order of its input.
 */
function fanOutSql(schema: string): string {
  return `copied as (
         insert into ${schema}.queue
                (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at)
         select lane, nextval('${schema}.queue_seq'), stream, topic, type, message_id, written_on, priority, max_attempts,
                clock_timestamp(), expires_at
           from (select subscribed.group_id * 256 + gone.lane as lane, gone.stream, gone.topic, gone.type, gone.message_id,
                        gone.written_on, gone.priority, gone.max_attempts, gone.expires_at
                   from gone
                   join ${schema}.subscription as subscribed on subscribed.topic = gone.topic
                  order by gone.seq) as sorted
         returning lane
       )`;
}

function receiptsSql(schema: string, relay: string): string {
  return `noted as (
         insert into ${schema}.receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs, again_ids)
         select lane, min(seq), max(seq), array_agg(seq order by seq), ${relay}::text, clock_timestamp(),
                (clock_timestamp() at time zone 'utc')::date, coalesce(array_agg(seq) filter (where again), '{}'),
                array_agg(message_id) filter (where again)
           from gone group by lane
       )`;
}

const SETTLED_COLUMNS = `row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
                row.max_attempts, row.expires_at, row.again`;
const WOKEN_COLUMN = "(select coalesce(array_agg(distinct lane), '{}') from copied) as woken";

/**
 * The hop from outbox to queue. The delete assigns the transaction id; the deliveries draw their sequence numbers
 * after it.
 */
export function hopStatements(schema: string) {
  const settled = "unnest($4::text::integer[], $5::text::bigint[], $6::text::text[])";
  const leased = "unnest($1::text::integer[], $2::text::bigint[], $3::text::text[])";
  return {
    settle: defineStatement(
      "sagabox.queue.hop",
      `with ${ownedLanes(schema)}, gone as (
         delete from ${schema}.outbox as row
          using unnest($4::text::integer[], $5::text::bigint[], $6::text::text[]) as done (lane, seq, id)
          where ${sameRow("done")} and ${FENCED}
         returning ${SETTLED_COLUMNS}
       ), ${fanOutSql(schema)}, ${receiptsSql(schema, "$7")}
       select pg_current_xact_id()::text as xid, (select coalesce(array_agg(lane), '{}') from owned) as owned, ${WOKEN_COLUMN}`,
    ),
    settlePast: defineStatement(
      "sagabox.queue.hop_past_locks",
      `with ${pastLocks(schema, "outbox", settled, { keepOrder: true })}, gone as (
         delete from ${schema}.outbox as row using going
          where row.lane = going.lane and row.seq = going.seq
         returning ${SETTLED_COLUMNS}
       ), ${fanOutSql(schema)}, ${receiptsSql(schema, "$7")}
       select pg_current_xact_id()::text as xid, (select coalesce(array_agg(lane), '{}') from owned) as owned, ${WOKEN_COLUMN},
              ${LEFT_OUT}`,
    ),
    settleLeasedPast: defineStatement(
      "sagabox.queue.hop_leased_past_locks",
      `with ${freeRows(schema, "outbox", leased, { keepOrder: true })}, gone as (
         delete from ${schema}.outbox as row using going
          where row.lane = going.lane and row.seq = going.seq
         returning ${SETTLED_COLUMNS}
       ), ${fanOutSql(schema)}, ${receiptsSql(schema, "$4")}
       select ${WOKEN_COLUMN}, ${leftRows()}`,
    ),
    settleLeased: defineStatement(
      "sagabox.queue.hop_leased",
      `with gone as (
         delete from ${schema}.outbox as row
          using unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as done (lane, seq, id)
          where ${sameRow("done")}
         returning ${SETTLED_COLUMNS}
       ), ${fanOutSql(schema)}, ${receiptsSql(schema, "$4")}
       select ${WOKEN_COLUMN}`,
    ),
  };
}

/** Stores the messages in parameters 1 to 21. The transaction id is assigned before any sequence number is drawn. */
function incomingMessagesSql(schema: string): string {
  return `moment as materialized (select pg_current_xact_id() as xid, clock_timestamp() as at), incoming as materialized (
         select listed.*, (moment.at at time zone 'utc')::date as written_on
           from moment,
                unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[], $5::text::text[],
                       $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[],
                       $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[],
                       $16::text::text[], $17::text::smallint[], $18::text::text[], $19::text::text[],
                       $20::text::timestamptz[], $21::text::timestamptz[])
                with ordinality as listed (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type,
                       aggregate_id, saga_id, correlation_id, causation_id, traceparent, source, target, priority,
                       headers, data, written_at, expires_at, turn)
          where moment.xid is not null
       ), kept as (
         insert into ${schema}.message
                (id, written_on, seq, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
                 correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
                 written_at, expires_at)
         select id, written_on, 0, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
                correlation_id, causation_id, traceparent, source, target, priority, 10, headers, data, written_at,
                expires_at
           from incoming
         on conflict do nothing
       )`;
}

export function queueStatements(schema: string) {
  return {
    // For publishers without an outbox in this database: the statement stores the message too.
    publish: defineStatement(
      "sagabox.queue.publish",
      `with ${incomingMessagesSql(schema)}
       insert into ${schema}.queue
              (lane, seq, stream, topic, type, message_id, written_on, priority, due_at, expires_at)
       select lane, nextval('${schema}.queue_seq'), stream, topic, type, id, written_on, priority, clock_timestamp(), expires_at
         from (select subscribed.group_id * 256 + incoming.lane as lane, incoming.stream, incoming.topic, incoming.type, incoming.id,
                      incoming.written_on, incoming.priority, incoming.expires_at
                 from incoming
                 join ${schema}.subscription as subscribed on subscribed.topic = incoming.topic
                order by incoming.turn) as sorted
       returning lane`,
    ),
    // For one group only, with the failures so far. A message that is already parked is skipped. The lookup is a
    // scalar subquery so that it cannot become a join that reads the whole queue.
    park: defineStatement(
      "sagabox.queue.park",
      `with ${incomingMessagesSql(schema)}
       insert into ${schema}.queue
              (lane, seq, stream, topic, type, message_id, written_on, priority, attempts, last_error, due_at, expires_at)
       select lane, nextval('${schema}.queue_seq'), stream, topic, type, id, written_on, 5, attempts, error,
              clock_timestamp() + delay_ms * interval '1 ms', expires_at
         from (select $22::integer * 256 + incoming.lane as lane, incoming.stream, incoming.topic, incoming.type, incoming.id,
                      incoming.written_on, incoming.expires_at, failure.attempts, failure.delay_ms, failure.error
                 from incoming
                 join unnest($23::text::smallint[], $24::text::double precision[], $25::text::text[])
                      with ordinality as failure (attempts, delay_ms, error, turn) using (turn)
                where (select true from ${schema}.queue as there
                        where ${sameStream("there", "$22::integer * 256 + incoming.lane", "incoming.stream")}
                          and there.message_id = incoming.id
                        limit 1) is null
                order by incoming.turn) as sorted
       returning lane`,
    ),
    parked: defineStatement(
      "sagabox.queue.parked",
      `select requested.stream::text as stream
         from unnest($2::text::integer[], $3::text::bigint[]) as requested (lane, stream)
        where (select true from ${schema}.queue as row
                where ${sameStream("row", "$1::integer * 256 + requested.lane", "requested.stream")}
                limit 1)`,
    ),
  };
}

// Always true. Limits lock waits until the end of the transaction, so that a session that locks one delivery cannot
// keep a handler's transaction open. Evaluated once, before the first row is read.
const LIMIT_LOCK_WAIT = `(select set_config('lock_timeout', '${SETTLE_LOCK_WAIT_MS}ms', true)) is not null`;

/**
 * Statements that settle deliveries. An acknowledgement inside the effect's transaction fences it: both fail
 * together.
 */
export function deliveryStatements(schema: string) {
  const answer = `select pg_current_xact_id()::text as xid, (select coalesce(array_agg(lane), '{}') from owned) as owned`;
  const settled = "unnest($4::text::integer[], $5::text::bigint[], $6::text::text[])";
  const retrySql = (condition: string): string => `kept as (
         update ${schema}.queue as row
            set attempts = row.attempts + failure.counted_attempts, last_error = failure.error,
                due_at = clock_timestamp() + failure.delay_ms * interval '1 ms'
           from unnest($4::text::integer[], $5::text::bigint[], $6::text::text[], $7::text::double precision[],
                       $8::text::smallint[], $9::text::text[])
                as failure (lane, seq, id, delay_ms, counted_attempts, error)
          where ${sameRow("failure")} and ${condition}
       )`;
  return {
    acked: defineStatement(
      "sagabox.queue.acked",
      `with ${ownedLanes(schema)}, gone as (
         delete from ${schema}.queue as row
          using unnest($4::text::integer[], $5::text::bigint[], $6::text::text[]) as done (lane, seq, id)
          where ${sameRow("done")} and ${FENCED}
       )
       ${answer}`,
    ),
    ackInside: defineStatement(
      "sagabox.queue.ack_inside",
      // If the delivery is gone, another member has settled it: the division by zero fails the transaction.
      `with gone as (
         delete from ${schema}.queue
          where lane = $1::integer and seq = $2::text::bigint and message_id = $3::text and ${LIMIT_LOCK_WAIT}
         returning 1
       )
       select 1 / count(*) as acked from gone`,
    ),
    // Looks up each row separately, independent of the planner's estimate of the table size. If one row is gone, all
    // fail.
    ackInsideAll: defineStatement(
      "sagabox.queue.ack_inside_all",
      `with gone as (
         delete from ${schema}.queue
          where ctid = any(array(
            select found.row_id
              from unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as done (lane, seq, id)
             cross join lateral (
               select row.ctid as row_id from ${schema}.queue as row where ${sameRow("done")} offset 0
             ) as found)) and ${LIMIT_LOCK_WAIT}
         returning 1
       )
       select 1 / (count(*) = cardinality($1::text::integer[]))::integer as acked from gone`,
    ),
    ackedPast: defineStatement(
      "sagabox.queue.acked_past_locks",
      `with ${pastLocks(schema, "queue", settled)}, gone as (
         delete from ${schema}.queue as row using going
          where row.lane = going.lane and row.seq = going.seq
       )
       ${answer}, ${LEFT_OUT}`,
    ),
    retried: defineStatement(
      "sagabox.queue.retried",
      `with ${ownedLanes(schema)}, ${retrySql(FENCED)} ${answer}`,
    ),
    retriedPast: defineStatement(
      "sagabox.queue.retried_past_locks",
      `with ${pastLocks(schema, "queue", settled)},
            ${retrySql("(row.lane, row.seq) in (select lane, seq from going)")}
       ${answer}, ${LEFT_OUT}`,
    ),
  };
}

/** How many rows of a lane are read to find the oldest ones. */
const FIRST_ROWS = 16;

/** The statement that measures how far groups are behind. */
export function lagStatements(schema: string) {
  return {
    // Each lane is read by primary key from its first row, whatever the statistics say. A dead-lettered row that blocks
    // its key does not wait itself.
    measure: defineStatement(
      "sagabox.queue.lag",
      `with moment as materialized (
         select clock_timestamp() as at
       ), wanted as materialized (
         select id, name from ${schema}.consumer_group
          where $1::text is null or name = any($1::text::text[])
          order by name limit 500
       ), first_row as materialized (
         select wanted.id as group_id, lane.number as lane, row.topic, row.due_at
           from wanted
          cross join lateral generate_series(wanted.id * 256, wanted.id * 256 + 255) as lane (number)
          cross join lateral (
            select topic, due_at from ${schema}.queue
             where queue.lane = lane.number order by seq limit ${FIRST_ROWS}) as row
       ), longer as materialized (
         select distinct group_id
           from (select group_id from first_row group by group_id, lane having count(*) = ${FIRST_ROWS}) as lane
       ), counted as materialized (
         select group_id, topic, count(*) filter (where due_at < 'infinity')::integer as counted,
                (extract(epoch from moment.at - min(due_at) filter (where due_at <= moment.at)))::double precision
                as oldest_seconds
           from first_row, moment
          group by group_id, topic, moment.at
       ), ${sampleSql(schema, "queue", "topic, lane / 256 as group_id")}, sampled as materialized (
         select group_id, topic, count(*)::integer as seen from queue_waiting group by group_id, topic
       )
       select wanted.name as consumer, known.topic, coalesce(counted.counted, 0) as counted,
              wanted.id not in (select group_id from longer) as is_complete, coalesce(sampled.seen, 0) as seen,
              (select percent::double precision from queue_size) as percent, counted.oldest_seconds
         from wanted
         join (select group_id, topic from ${schema}.subscription
               union select group_id, topic from counted
               union select group_id, topic from sampled) as known on known.group_id = wanted.id
         left join counted using (group_id, topic)
         left join sampled using (group_id, topic)
        order by wanted.name, known.topic`,
    ),
  };
}
