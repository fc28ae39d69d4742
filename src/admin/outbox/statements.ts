import { sameStream } from "../../lanes/index.ts";
import { defineStatement } from "../../storage/index.ts";

const utc = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/** Upper bound for rows read per lane, so that a filter without matches does not read the whole table. */
const MAX_FRONT_ROWS = 2_000;

const stateFilter = `case $5::text
           when 'due' then attempts = 0 and due_at <= clock_timestamp()
           when 'failed' then attempts > 0 and due_at < 'infinity'
           when 'held' then due_at = 'infinity'
           else true end`;

// Inside the limit, because other keys share the lane.
const keyFilter = (schema: string): string =>
  `exists (select 1 from ${schema}.message as own
                                   where own.id = front.message_id and own.written_on = front.written_on
                                     and own.key = $8::text)`;

const scheduledSql = (schema: string, key: string, condition: string): string =>
  `select id as message_id, topic, type, lane::integer, null as seq, 0 as attempts, max_attempts, false as again,
              ${key}, null as last_error, null as behind, ${utc("due_at")} as due_at,
              ${utc("written_at")} as written_at, 'scheduled' as state
         from ${schema}.scheduled
        where ($2::text is null or topic = $2::text) and ($3::text is null or type = $3::text)
          and ${condition}
        order by scheduled.due_at, id limit $1::integer`;

/**
 * SQL about unsent messages. Keys, error texts and messages ahead are read only with `open`. `schema` must be quoted
 * already.
 */
export function outboxStatements(schema: string) {
  return {
    open: defineStatement(
      "sagabox.outbox_admin.open",
      `select has_column_privilege('${schema}.outbox', 'last_error', 'select')
              and has_column_privilege('${schema}.message', 'key', 'select')
              and has_table_privilege('${schema}.audit_log', 'select') as open`,
    ),
    list: (open: boolean) =>
      defineStatement(
        `sagabox.outbox_admin.list_${open ? "open" : "masked"}`,
        `select row.message_id, row.topic, row.type, row.lane, row.seq::text, row.attempts, row.max_attempts, row.again,
                ${open ? "message.key, row.last_error, ahead.message_id" : "null as key, null as last_error, null"} as behind,
                case when row.due_at = 'infinity' then null else ${utc("row.due_at")} end as due_at,
                ${utc("message.written_at")} as written_at,
                case when row.due_at = 'infinity' then 'held'
                     when row.attempts > 0 then 'failed'
                     when row.due_at > clock_timestamp() then 'later' else 'due' end as state
           from (select row.*
                   from generate_series(coalesce($4::integer, 0), coalesce($4::integer, 255)) as lane (number)
                  cross join lateral (
                    select * from (
                      select lane, seq, topic, type, message_id, written_on, attempts, max_attempts, due_at, again
                             ${open ? ", stream, last_error" : ""}
                        from ${schema}.outbox
                       where outbox.lane = lane.number and seq > $6::text::bigint
                       order by seq limit ${MAX_FRONT_ROWS}) as front
                     where ($2::text is null or topic = $2::text) and ($3::text is null or type = $3::text)
                       and attempts >= $7::integer and ${stateFilter}
                       and ($8::text is null or ${open ? keyFilter(schema) : "false"})
                     order by seq limit $1::integer) as row
                  order by row.seq limit $1::integer) as row
           left join ${schema}.message on message.id = row.message_id and message.written_on = row.written_on
           ${
             open
               ? `left join lateral (
                    select front.message_id from ${schema}.outbox as front
                     where ${sameStream("front", "row.lane", "row.stream")} and front.seq < row.seq
                     order by front.seq limit 1) as ahead on true`
               : ""
           }
          where message.written_at <= clock_timestamp() - $9::double precision * interval '1 ms'
          order by row.seq`,
      ),
    scheduled: (open: boolean) =>
      defineStatement(
        `sagabox.outbox_admin.scheduled_${open ? "open" : "masked"}`,
        scheduledSql(schema, open ? "key" : "null as key", "true"),
      ),
    // The index of the key holds hashes.
    scheduledByKey: defineStatement(
      "sagabox.outbox_admin.scheduled_by_key",
      scheduledSql(
        schema,
        "key",
        "hashtextextended(key, 0) = hashtextextended($4::text, 0) and key = $4::text",
      ),
    ),
    retryNow: defineStatement(
      "sagabox.outbox_admin.retry_now",
      `select retried_lane as lane, tried as attempts, ${utc("was_due")} as was_due
         from ${schema}.outbox_retry_now($1::text)`,
    ),
    archiveFrom: defineStatement(
      "sagabox.outbox_admin.archive_from",
      `select min(to_date(right(relname, 8), 'YYYYMMDD'))::text as day
         from pg_class
        where relnamespace = $1::text::regnamespace and relkind = 'r' and relispartition
          and relname ~ '^message_[0-9]{8}$'`,
    ),
    stats: defineStatement(
      "sagabox.outbox_admin.stats",
      `with seen as materialized (
         select topic, type, attempts, due_at from ${schema}.outbox limit $1::integer
       ), later as materialized (
         select topic, type, due_at from ${schema}.scheduled limit $1::integer
       ), counted as (
         select topic, type, count(*) filter (where due_at < 'infinity')::integer as waiting,
                count(*) filter (where attempts > 0 and due_at < 'infinity')::integer as failed,
                count(*) filter (where due_at = 'infinity')::integer as held, 0 as scheduled,
                max(attempts)::integer as most_attempts,
                min(due_at) filter (where due_at <= clock_timestamp()) as oldest
           from seen group by topic, type
         union all
         select topic, type, 0, 0, 0, count(*)::integer, 0, null from later group by topic, type
       )
       select topic, type, sum(waiting)::integer as waiting, sum(failed)::integer as failed, sum(held)::integer as held,
              sum(scheduled)::integer as scheduled, max(most_attempts) as most_attempts,
              (extract(epoch from clock_timestamp() - min(oldest)))::double precision as oldest_due_seconds,
              (select count(*) < $1::integer from seen) and (select count(*) < $1::integer from later) as exact
         from counted
        group by topic, type
        order by sum(waiting) desc, topic, type
        limit 1000`,
    ),
  };
}
