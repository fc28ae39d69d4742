import { statement } from "../../storage/index.ts";

const seconds = (expression: string): string =>
  `(extract(epoch from clock_timestamp() - ${expression}))::double precision`;

// The oldest row that is due, from the first few of each lane: those in front are the oldest.
const oldestDue = (schema: string, table: "outbox" | "queue", lanes: string): string =>
  `select ${seconds("min(head.due_at)")}
     from ${lanes} as lane (number)
    cross join lateral (
      select due_at from ${schema}.${table}
       where ${table}.lane = lane.number and due_at < 'infinity'
       order by seq limit 4) as head
    where head.due_at <= clock_timestamp()`;

/** SQL of the overview; rights of a viewer suffice. No count goes beyond its limit. `schema` is quoted already. */
export function overviewStatements(schema: string) {
  return {
    outbox: statement(
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
              (${oldestDue(schema, "outbox", "generate_series(0, 255)")}) as oldest_due_seconds,
              (select count(*)::integer from later) as scheduled,
              (select ${seconds("due_at")} from ${schema}.scheduled order by due_at, id limit 1) as schedule_late_seconds
         from seen`,
    ),
    deadLetters: statement(
      "sagabox.overview.dead_letters",
      `select count(*)::integer as open, count(*) < $1::integer as exact,
              count(*) filter (where held_lane is not null)::integer as held_keys
         from (select held_lane from ${schema}.dead_letter where closed_at is null limit $1::integer) as letter`,
    ),
    lanes: statement(
      "sagabox.overview.lanes",
      `select lane.scope, owner.worker, count(*)::integer as lanes
         from ${schema}.relay_lane as lane
         left join ${schema}.member as owner on owner.id = lane.owner and owner.lease_until > clock_timestamp()
        group by lane.scope, owner.worker
        order by lane.scope, owner.worker nulls last`,
    ),
    workers: statement(
      "sagabox.overview.workers",
      `select worker, bool_or(lease_until > clock_timestamp()) as live, count(*)::integer as parts,
              to_char(min(joined_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since,
              ${seconds("max(lease_until)")} as gone_seconds
         from ${schema}.member
        group by worker
        order by worker
        limit 500`,
    ),
    consumers: statement(
      "sagabox.overview.consumers",
      `select one.id, one.name, depth.waiting, depth.failed, depth.exact, depth.topics,
              (${oldestDue(schema, "queue", "generate_series(one.id * 256, one.id * 256 + 255)")}) as oldest_due_seconds
         from (select id, name from ${schema}.consumer_group order by name limit 500) as one
        cross join lateral (
          select count(*)::integer as waiting, count(*) filter (where attempts > 0)::integer as failed,
                 count(*) < $1::integer as exact,
                 (select count(*)::integer from ${schema}.subscription where group_id = one.id) as topics
            from (select attempts from ${schema}.queue
                   where lane between one.id * 256 and one.id * 256 + 255 and due_at < 'infinity'
                   limit $1::integer) as row) as depth
        order by one.name`,
    ),
    sagas: statement(
      "sagabox.overview.sagas",
      `select status, count(*)::integer as count
         from (select status from ${schema}.saga_instance where ended_at is null limit $1::integer) as open
        group by status`,
    ),
    version: statement(
      "sagabox.overview.version",
      `select version, name, to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as now
         from ${schema}.schema_migration order by version desc limit 1`,
    ),
  };
}
