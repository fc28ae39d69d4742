import { defineStatement } from "../../storage/index.ts";

const COLUMNS =
  "(lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at)";
const NARROW_COLUMNS = `message.id, message.lane, message.stream, message.topic, message.type, message.written_on, message.priority,
                message.max_attempts, message.expires_at, message.seq, message.written_at`;
const MOMENT_CTE = "moment as materialized (select pg_current_xact_id() as xid, clock_timestamp() as at)";

/** Statements that create and retire consumer groups and their subscriptions. `schema` is already quoted. */
export function subscribeStatements(schema: string) {
  // In outbox order. Messages published without an outbox have seq 0 and come first, ordered by time.
  const copySql = (from: string) => `insert into ${schema}.queue ${COLUMNS}
       select $2::integer * 256 + past.lane, nextval('${schema}.queue_seq'), past.stream, past.topic, past.type, past.id,
              past.written_on, past.priority, past.max_attempts, moment.at, past.expires_at
         from moment, (
           ${from}
            order by message.seq = 0 desc, case when message.seq = 0 then message.written_at end, message.seq
         ) as past
        where moment.xid is not null`;
  // `written_on` comes from the server's clock and `written_at` from the writer's, so one more day is searched.
  const ofTopic = `message.topic = $1::text and message.written_at >= $3::text::timestamptz
              and message.written_on >= ($3::text::timestamptz at time zone 'utc')::date - 1`;
  return {
    createGroup: defineStatement(
      "sagabox.queue.create_group",
      `insert into ${schema}.consumer_group (name) values ($1::text) on conflict (name) do nothing`,
    ),
    findGroup: defineStatement(
      "sagabox.queue.find_group",
      `select id from ${schema}.consumer_group where name = $1::text`,
    ),
    createLanes: defineStatement(
      "sagabox.queue.create_lanes",
      `insert into ${schema}.relay_lane (lane, scope)
       select $1::integer * 256 + n, $1::integer from generate_series(0, 255) as n
       on conflict do nothing`,
    ),
    standing: defineStatement(
      "sagabox.queue.standing",
      `select coalesce(bool_or(group_id = $2::integer), false) as present, count(*) > 0 as claimed,
              (select to_char(retired_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
                 from ${schema}.retired_subscription where topic = $1::text) as retired_at
         from ${schema}.subscription where topic = $1::text`,
    ),
    subscribe: defineStatement(
      "sagabox.queue.subscribe",
      `insert into ${schema}.subscription (topic, group_id) values ($1::text, $2::integer)
       on conflict do nothing
       returning (select count(*)::integer from ${schema}.subscription where topic = $1::text) as others`,
    ),
    // Serializes history copies: the transaction of another copy would count as an open writer.
    inTurn: defineStatement(
      "sagabox.queue.in_turn",
      `select pg_advisory_xact_lock(hashtextextended('sagabox.subscribe.' || $1::text, 0))`,
    ),
    // Every transaction id assigned after this has this day or a later one. One day of slack covers clock changes.
    horizon: defineStatement(
      "sagabox.queue.horizon",
      `select pg_snapshot_xmax(pg_current_snapshot())::text as xid,
              ((clock_timestamp() at time zone 'utc')::date - 1)::text as day`,
    ),
    passed: defineStatement(
      "sagabox.queue.passed",
      `select pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8 as passed`,
    ),
    // Copies the topic's messages since that time that have left the outbox, in order; the rest arrives through the
    // relay. Returns the ids written before the day that are still in the outbox or dead-lettered there.
    copyPast: defineStatement(
      "sagabox.queue.copy_past",
      `with ${MOMENT_CTE}, message as materialized (
         select ${NARROW_COLUMNS},
                outbox.seq is not null or dead.message_id is not null as stays
           from ${schema}.message
           left join ${schema}.outbox on outbox.lane = message.lane and outbox.seq = message.seq
           left join (select distinct message_id from ${schema}.dead_letter
                       where origin = 'outbox' and closed_at is null) as dead on dead.message_id = message.id
          where ${ofTopic}
       ), copied as (
         ${copySql("select message.* from message where not message.stays")}
       )
       select coalesce(array_agg(id), '{}') as stayed from message where stays and written_on < $4::text::date`,
    ),
    // Copies messages that have left the outbox since `copyPast`, while hops are blocked: written on that day or
    // later, or among the ids that `copyPast` returned.
    copyRest: defineStatement(
      "sagabox.queue.copy_rest",
      `with ${MOMENT_CTE}, message as materialized (
         select ${NARROW_COLUMNS} from ${schema}.message where ${ofTopic} and message.written_on >= $4::text::date
         union all
         select ${NARROW_COLUMNS} from ${schema}.message
          where message.id = any($5::text::text[]) and ${ofTopic} and message.written_on < $4::text::date
       ), missing as materialized (
         select id from message
         except
         select queue.message_id from ${schema}.queue
          where queue.lane >= $2::integer * 256 and queue.lane < ($2::integer + 1) * 256 and queue.topic = $1::text
       )
       ${copySql(`select message.*
             from message
            where message.id in (select id from missing)
              and not exists (select 1 from ${schema}.outbox
                               where outbox.lane = message.lane and outbox.seq = message.seq)
              and not exists (select 1 from ${schema}.dead_letter as dead
                               where dead.message_id = message.id and dead.origin = 'outbox' and dead.closed_at is null)`)}`,
    ),
    // Waits for running hops and blocks new ones, so that none falls between copy and subscription. Hops queue behind
    // this lock, so its own wait must be short: a dump holds the table as long as it runs.
    lockSubscriptions: defineStatement(
      "sagabox.queue.lock_subscriptions",
      `select ${schema}.lock_subscriptions()`,
    ),
    // Returns no row while a member of the group is alive.
    retire: defineStatement(
      "sagabox.queue.retire",
      `select subscriptions, deliveries from ${schema}.retire_consumer($1::integer)`,
    ),
    patience: defineStatement(
      "sagabox.queue.patience",
      "select set_config('lock_timeout', $1::integer::text || 'ms', true)",
    ),
    mark: defineStatement("sagabox.queue.mark", "savepoint before_lock"),
    backToMark: defineStatement("sagabox.queue.back_to_mark", "rollback to savepoint before_lock"),
  };
}

export type SubscribeStatements = ReturnType<typeof subscribeStatements>;
