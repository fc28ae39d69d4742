import { defineStatement } from "../../storage/index.ts";

const utc = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

const columns = `handled.consumer_name as consumer, event_id, source_topic, event_type, ${utc("consumed_at")} as consumed_at,
              processing_duration_ms, effect, effect_of, undone_by`;

/** SQL about consumers. All but `reach` need only the viewer role. `schema` must be quoted already. */
export function consumerStatements(schema: string) {
  return {
    // The time has a block-range index, so the cost depends on the size of the time window, not of the table.
    list: (byKey: boolean) =>
      defineStatement(
        `sagabox.inbox_admin.list${byKey ? "_by_key" : ""}`,
        `select ${columns}
         from ${schema}.consumer_inbox as handled
        where consumed_at > clock_timestamp() - $2::double precision * interval '1 ms'
          and ($3::text is null or consumer_name = $3::text) and ($4::text is null or source_topic = $4::text)
          and ($5::text is null or event_type = $5::text)
          ${byKey ? `and exists (select 1 from ${schema}.message where message.id = handled.event_id and message.key = $6::text)` : ""}
        order by handled.consumed_at desc, consumer_name, event_id
        limit $1::integer`,
      ),
    // Skips through the primary key from consumer to consumer, and looks up the message for each.
    show: defineStatement(
      "sagabox.inbox_admin.show",
      `with recursive name as (
         (select consumer_name from ${schema}.consumer_inbox order by consumer_name limit 1)
         union all
         select (select next.consumer_name from ${schema}.consumer_inbox as next
                  where next.consumer_name > name.consumer_name order by next.consumer_name limit 1)
           from name where name.consumer_name is not null
       )
       select ${columns}
         from name join ${schema}.consumer_inbox as handled on handled.consumer_name = name.consumer_name
        where handled.event_id = $1::text
        order by handled.consumed_at, handled.consumer_name`,
    ),
    // Age of the oldest message that can be redelivered: in the archive, or as an open dead letter.
    reach: defineStatement(
      "sagabox.inbox_admin.reach",
      `select coalesce(extract(epoch from clock_timestamp() - least(
                (select min(to_date(right(relname, 8), 'YYYYMMDD'))::timestamp at time zone 'UTC' from pg_class
                  where relnamespace = $1::text::regnamespace and relkind = 'r' and relname ~ '^message_[0-9]{8}$'),
                (select min(written_on)::timestamp at time zone 'UTC' from ${schema}.message_default))) * 1000, 0)::double precision
                as archive_ms,
              coalesce(extract(epoch from clock_timestamp() - (
                select min(failed_at) from ${schema}.dead_letter where closed_at is null)) * 1000, 0)::double precision
                as dead_letter_ms`,
    ),
    // Subscriptions, waiting messages and running workers of a consumer.
    standing: defineStatement(
      "sagabox.inbox_admin.standing",
      `select known.id,
              array(select topic from ${schema}.subscription where group_id = known.id order by topic) as topics,
              (select count(*)::integer from ${schema}.queue
                where lane between known.id * 256 and known.id * 256 + 255) as deliveries,
              array(select distinct worker from ${schema}.member
                     where scope = known.id and lease_until > clock_timestamp() order by worker) as workers
         from ${schema}.consumer_group as known
        where known.name = $1::text`,
    ),
    // Consumers with a group here, and consumers with inbox rows, which may receive from a broker.
    names: defineStatement(
      "sagabox.inbox_admin.names",
      `with recursive handler as (
         (select consumer_name from ${schema}.consumer_inbox order by consumer_name limit 1)
         union all
         select (select next.consumer_name from ${schema}.consumer_inbox as next
                  where next.consumer_name > handler.consumer_name order by next.consumer_name limit 1)
           from handler where handler.consumer_name is not null
       )
       select name from ${schema}.consumer_group
       union
       select consumer_name from handler where consumer_name is not null and not $1::boolean
       order by name
       limit 500`,
    ),
    due: defineStatement(
      "sagabox.inbox_admin.due",
      `select count(*)::integer as count
         from (select 1 from ${schema}.consumer_inbox
                where consumed_at < clock_timestamp() - $1::double precision * interval '1 ms'
                limit 1000000) as old`,
    ),
  };
}
