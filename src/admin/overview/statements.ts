import { isWorking } from "../../lanes/index.ts";
import { defineStatement } from "../../storage/index.ts";

const seconds = (expression: string): string =>
  `(extract(epoch from clock_timestamp() - ${expression}))::double precision`;

// Age of the oldest due row, from the first four rows of each lane.
const oldestDue = (schema: string): string =>
  `select ${seconds("min(head.due_at)")}
     from generate_series(0, 255) as lane (number)
    cross join lateral (
      select due_at from ${schema}.outbox
       where outbox.lane = lane.number and due_at < 'infinity'
       order by seq limit 4) as head
    where head.due_at <= clock_timestamp()`;

const LONG_AGO = `clock_timestamp() - interval '2 minutes'`;

// A row with an infinite due time blocks its key, so later rows wait as intended and the lane is not judged.
const lateHeads = (schema: string, table: "outbox" | "queue", which: string): string =>
  `select owned.lane, owned.scope, owned.worker, head.topic, head.due_at, head.written_on
     from owned
    cross join lateral (
      select topic, due_at, lease_until, written_on from ${schema}.${table} as row
       where ${which} and row.lane = owned.lane
       order by row.seq limit 1) as head
    where head.due_at < ${LONG_AGO} and (head.lease_until is null or head.lease_until < ${LONG_AGO})`;

const passedBySender = (schema: string): string =>
  `not exists (
     select 1 from (select sent_at from ${schema}.receipt
                     where receipt.lane = late.lane and sent_on >= (${LONG_AGO})::date - 1
                     order by last_seq desc limit 20) as last
      where last.sent_at > ${LONG_AGO})
   and exists (
     select 1 from (select lane, seq, topic from ${schema}.message
                     where written_on >= late.written_on and written_at > late.due_at limit 1000) as later
      where later.topic = late.topic and later.lane <> late.lane
        and not exists (select 1 from ${schema}.outbox as row where row.lane = later.lane and row.seq = later.seq))`;

const passedByConsumer = (schema: string): string =>
  `(select coalesce(bool_and(done.lane <> late.lane % 256), false)
       and coalesce(bool_or(done.topic = late.topic and done.written_at > late.due_at), false)
      from (select event_id from ${schema}.consumer_inbox
             where consumer_name = known.name and consumed_at > ${LONG_AGO} limit 1000) as lately
      join ${schema}.message as done on done.id = lately.event_id and done.written_on >= late.written_on - 1)`;

/** SQL of the overview, with bounded counts, for the viewer role. `schema` must be quoted already. */
export function overviewStatements(schema: string) {
  return {
    outbox: defineStatement(
      "sagabox.overview.outbox",
      `with seen as materialized (
         select due_at, attempts from ${schema}.outbox limit $1::integer
       ), later as materialized (
         select 1 from ${schema}.scheduled limit $1::integer
       )
       select count(*) filter (where due_at < 'infinity')::integer as waiting,
              count(*) filter (where attempts > 0 and due_at < 'infinity')::integer as failed,
              count(*) filter (where attempts >= 3 and due_at < 'infinity')::integer as stubborn,
              count(*) < $1::integer as exact,
              (${oldestDue(schema)}) as oldest_due_seconds,
              (select count(*)::integer from later) as scheduled,
              (select ${seconds("due_at")} from ${schema}.scheduled order by due_at, id limit 1) as schedule_late_seconds
         from seen`,
    ),
    deadLetters: defineStatement(
      "sagabox.overview.dead_letters",
      `select count(*)::integer as open, count(*) < $1::integer as exact,
              count(*) filter (where held_lane is not null)::integer as held_keys
         from (select held_lane from ${schema}.dead_letter where closed_at is null limit $1::integer) as letter`,
    ),
    lanes: defineStatement(
      "sagabox.overview.lanes",
      `select lane.scope, owner.worker, count(*)::integer as lanes
         from ${schema}.relay_lane as lane
         left join ${schema}.member as owner on owner.id = lane.owner and ${isWorking("owner")}
        group by lane.scope, owner.worker
        order by lane.scope, owner.worker nulls last`,
    ),
    // A running worker has a member row; an earlier one left receipts, groups or a conservation check.
    traces: defineStatement(
      "sagabox.overview.traces",
      `select exists (select 1 from ${schema}.member) or exists (select 1 from ${schema}.receipt)
           or exists (select 1 from ${schema}.consumer_group)
           or exists (select 1 from ${schema}.conservation where checked_at is not null) as has_run`,
    ),
    // Leases that are bound to a session take precedence over those that are not.
    workers: defineStatement(
      "sagabox.overview.workers",
      `select worker, coalesce(bool_or(${isWorking("member")}) filter (where backend is not null),
                               bool_or(${isWorking("member")})) as live, count(*)::integer as parts,
              to_char(min(joined_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since,
              greatest(0, ${seconds("max(lease_until)")}) as gone_seconds
         from ${schema}.member
        group by worker
        order by worker
        limit 500`,
    ),
    // Reads the lanes of each consumer by primary key.
    consumers: defineStatement(
      "sagabox.overview.consumers",
      `select one.id, one.name,
              (select count(*)::integer from ${schema}.subscription where group_id = one.id) as topics,
              (select count(*) filter (where attempts > 0)::integer
                 from (select row.attempts
                         from generate_series(one.id * 256, one.id * 256 + 255) as lane (number)
                        cross join lateral (
                          select attempts from ${schema}.queue
                           where queue.lane = lane.number and due_at < 'infinity' order by seq) as row
                        limit $1::integer) as counted) as failed
         from (select id, name from ${schema}.consumer_group order by name limit 500) as one
        order by one.name`,
    ),
    sagas: defineStatement(
      "sagabox.overview.sagas",
      `select status, count(*)::integer as count
         from (select status from ${schema}.saga_instance where completed_at is null limit $1::integer) as open
        group by status`,
    ),
    // A lane counts as unread if its first row is long overdue while later messages of the same topic were sent or handled,
    // so that its destination is available.
    unread: defineStatement(
      "sagabox.overview.unread",
      `with owned as materialized (
         select lane.lane, lane.scope, owner.worker
           from ${schema}.relay_lane as lane
           join ${schema}.member as owner on owner.id = lane.owner and owner.lease_until > clock_timestamp()
          where lane.leased_at < ${LONG_AGO}
       ), late as materialized (
         select * from (
           ${lateHeads(schema, "outbox", "owned.scope = 0")}
           union all
           ${lateHeads(schema, "queue", "owned.scope > 0")}) as head
          order by due_at limit 20
       )
       select late.lane, late.worker, known.name as consumer, ${seconds("late.due_at")} as waiting_seconds
         from late
         left join ${schema}.consumer_group as known on known.id = late.scope
        where case when late.scope = 0 then ${passedBySender(schema)} else ${passedByConsumer(schema)} end
        order by late.due_at, late.lane`,
    ),
    version: defineStatement(
      "sagabox.overview.version",
      `select version, name, to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as now
         from ${schema}.schema_migration order by version desc limit 1`,
    ),
  };
}
