import { sampleSql } from "../../lanes/index.ts";
import { defineStatement } from "../../storage/index.ts";
import { STORED_COLUMNS } from "../outgoing.ts";

/** Statements that count waiting messages. */
export function depthStatements(schema: string) {
  return {
    depths: defineStatement(
      "sagabox.outbox.depths",
      // Messages that wait for consumers count too: with the Postgres transport the outbox is always nearly
      // empty.
      `with ${sampleSql(schema, "outbox", "topic")}, ${sampleSql(schema, "queue", "topic")}
       select topic, count(*)::integer as seen, percent::double precision from outbox_waiting group by topic, percent
       union all
       select topic, count(*)::integer as seen, percent::double precision from queue_waiting group by topic, percent`,
    ),
    backlog: defineStatement(
      "sagabox.outbox.backlog",
      `with ${sampleSql(schema, "outbox", "1")}
       select (select coalesce(round(count(*) * 100 / min(percent)), 0)::double precision from outbox_waiting) as pending,
              (select greatest(0, coalesce(extract(epoch from clock_timestamp() - min(head.due_at)) * 1000, 0))
                 from generate_series(0, 255) as lane
                cross join lateral (
                  select due_at from ${schema}.outbox
                   where outbox.lane = lane.lane and due_at < 'infinity'
                   order by seq
                   limit 4) as head)::double precision as oldest_ms,
              (select count(*)::integer
                 from (select 1 from ${schema}.dead_letter where closed_at is null limit 100000) as counted) as dead_letters,
              (select count(*)::integer
                 from ${schema}.relay_lane as held
                where held.scope = 0 and not exists (
                  select 1 from ${schema}.member
                   where member.id = held.owner and member.lease_until > clock_timestamp())) as unowned`,
    ),
    // A lane of a group is the group's number times 256 plus the outbox lane. Topics with an empty queue are
    // included.
    queued: defineStatement(
      "sagabox.outbox.queued",
      `with ${sampleSql(schema, "queue", "topic, lane / 256 as group_id")}, filled as (
         select topic, max(seen) as seen, percent
           from (select topic, percent, count(*) as seen from queue_waiting group by topic, percent, group_id) as groups
          group by topic, percent
       )
       select topic, coalesce(filled.seen, 0)::integer as seen, coalesce(filled.percent, 100)::double precision as percent
         from (select distinct topic from ${schema}.subscription) as subscribed
         full join filled using (topic)`,
    ),
    deadLetters: defineStatement(
      "sagabox.outbox.letters",
      `select coalesce(consumer, 'outbox') as consumer, type, count(*)::integer as count
         from (select consumer, type from ${schema}.dead_letter
                where closed_at is null order by failed_at desc limit 10000) as newest
        group by 1, 2 order by 3 desc, 1, 2 limit 50`,
    ),
  };
}

const MESSAGE = `${STORED_COLUMNS}, seq, written_at, expires_at`;

/**
 * Statements for daily partitions. A change runs alone, and gives up instead of letting other queries queue
 * behind it.
 */
export function historyStatements(schema: string) {
  return {
    alone: defineStatement(
      "sagabox.history.alone",
      `select pg_try_advisory_xact_lock(hashtextextended('sagabox.history.' || $1::text, 0)) as alone`,
    ),
    lockTimeout: defineStatement(
      "sagabox.history.lock_timeout",
      `select set_config('lock_timeout', $1::text, true)`,
    ),
    today: defineStatement(
      "sagabox.history.today",
      `select to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD') as today`,
    ),
    // Includes detached partitions that wait to be dropped.
    partitions: defineStatement(
      "sagabox.history.partitions",
      `select relname as name, relispartition as attached
         from pg_class
        where relnamespace = $1::text::regnamespace and relkind = 'r'
          and relname ~ ('^' || $2::text || '_[0-9]{8}$')
        order by relname`,
    ),
    // Only the owner of the tables may call it and create partitions.
    reservePages: defineStatement("sagabox.history.reserve_pages", `select ${schema}.reserve_pages()`),
    stillNeeded: defineStatement(
      "sagabox.history.still_needed",
      `select exists (select 1 from ${schema}.outbox where written_on = $1::text::date)
           or exists (select 1 from ${schema}.queue where written_on = $1::text::date) as needed`,
    ),
    // An id is kept as long as a message with it can still be sent. OFFSET 0 keeps the subqueries from
    // becoming joins, which would read the whole archive.
    forgetIds: defineStatement(
      "sagabox.history.forget_ids",
      `with old as materialized (
         select id from ${schema}.published_id as known
          where written_on < $1::text::date
            and not exists (select 1 from ${schema}.message where message.id = known.id offset 0)
            and not exists (select 1 from ${schema}.scheduled where scheduled.id = known.id offset 0)
          limit $2::integer
            for update skip locked)
       delete from ${schema}.published_id where id = any(array(select id from old))`,
    ),
  };
}

/** Statements for one partition. The name comes from `partition()`, the days from the database. */
export function partitionStatements(
  schema: string,
  { table, column, name, day }: { table: string; column: string; name: string; day: string },
) {
  const parent = `${schema}.${table}`;
  const child = `${schema}.${name}`;
  const spare = `${schema}.${table}_default`;
  return {
    strays: `select distinct ${column}::text as day from ${spare} order by 1`,
    create: `create table ${child} (like ${parent} including all)`,
    // Rows that arrived before their partition existed. Columns are named, because partitions may order them
    // differently.
    adopt: (columns: string) => `with early as (
         delete from ${spare} where ${column} = date '${day}' returning ${columns})
       insert into ${child} (${columns}) select ${columns} from early`,
    columns: `select string_agg(quote_ident(attname), ', ' order by attnum) as columns
                from pg_attribute where attrelid = '${parent}'::regclass and attnum > 0 and not attisdropped`,
    // ATTACH takes both locks anyway. Taking them in this order before the last move keeps rows from slipping
    // in between.
    lock: `lock table ${parent} in share update exclusive mode; lock table ${spare} in access exclusive mode`,
    attach: `alter table ${parent} attach partition ${child}
             for values from (date '${day}') to (date '${day}' + 1)`,
    detach: `alter table ${parent} detach partition ${child}`,
    drop: `drop table if exists ${child}`,
    // Rows that are being settled are skipped: they are gone or moved at the next attempt.
    carry: `with referring as materialized (
         select lane, seq, message_id from ${schema}.outbox
          where written_on = date '${day}'
          order by lane, seq limit 1000
            for update skip locked
       ), delivering as materialized (
         select lane, seq, message_id from ${schema}.queue
          where written_on = date '${day}'
          order by lane, seq limit 1000
            for update skip locked
       ), today as materialized (
         select (clock_timestamp() at time zone 'utc')::date as day
       ), copied as (
         insert into ${schema}.message (${MESSAGE}, written_on)
         select ${MESSAGE}, today.day from ${child}, today
          where id in (select message_id from referring union select message_id from delivering)
         on conflict do nothing
       ), sending as (
         update ${schema}.outbox as row set written_on = today.day from referring, today
          where row.lane = referring.lane and row.seq = referring.seq
       ), delivered as (
         update ${schema}.queue as row set written_on = today.day from delivering, today
          where row.lane = delivering.lane and row.seq = delivering.seq
       )
       select (select count(*)::integer from referring) + (select count(*)::integer from delivering) as carried`,
  };
}

/**
 * Statements that send archived messages again. All messages of a key go in one statement, so a key is sent
 * whole or not at all.
 */
export function republishStatements(schema: string) {
  // A message that waits, is a dead letter or was discarded as one was not sent. A message that never was in
  // the outbox has seq 0. OFFSET 0 keeps the subqueries from becoming joins, which would read the whole
  // outbox.
  const wasSent = `message.seq > 0
            and not exists (select 1 from ${schema}.outbox where outbox.lane = message.lane and outbox.seq = message.seq offset 0)
            and not exists (select 1 from ${schema}.outbox where outbox.again and outbox.message_id = message.id offset 0)
            and not exists (select 1 from ${schema}.dead_letter
                             where message_id = message.id and origin = 'outbox'
                               and (closed_at is null or closed_as = 'discarded') offset 0)`;
  // If the data of a message was edited before it was sent, the edited copy was sent.
  const editedOn = `(select edit.kept_on
                     from ${schema}.dead_letter as letter
                     join ${schema}.dead_letter_edit as edit on edit.dead_letter_id = letter.id
                    where letter.message_id = message.id and letter.origin = 'outbox' and letter.closed_as = 'replayed'
                    order by letter.id desc limit 1)`;
  const inWindow = `written_at >= $1::text::timestamptz and written_at < $2::text::timestamptz
          and written_on >= ($1::text::timestamptz at time zone 'utc')::date - 1
          and ($3::text is null or topic = $3::text) and ($4::text is null or type = $4::text)`;
  // The order in which keys are sent again. A message without a key has a position of its own.
  const position = "lane::integer, stream is not null, coalesce(stream, seq)";
  const isBehindCursor = `(${position}) > ($5::integer, $6::boolean, $7::text::bigint)`;
  const place = (messages: string) => `with page as materialized (
         select message.id, message.written_on, coalesce(${editedOn}, message.written_on) as sent_on
           from ${messages}
            and ${wasSent}
       ), listed as materialized (
         select array_agg(id) as ids, array_agg(written_on) as days, array_agg(sent_on) as sent_days from page
       )
       select coalesce((select ${schema}.outbox_send_again(ids, days, sent_days) from listed where ids is not null), 0) as count`;
  return {
    // The viewer role may run this one: it does not read the stream, which is derived from the key.
    countAll: defineStatement(
      "sagabox.outbox.republish_count",
      `select count(*)::integer as count
         from ${schema}.message
        where ${inWindow} and ${wasSent}`,
    ),
    countRest: defineStatement(
      "sagabox.outbox.republish_count_rest",
      `select count(*)::integer as count
         from ${schema}.message
        where ${inWindow} and ${isBehindCursor} and ${wasSent}`,
    ),
    // Sorted by key, so that the messages of a key are adjacent. Whether each was sent is checked when it is
    // placed.
    list: defineStatement(
      "sagabox.outbox.republish_list",
      `select id, written_on::text as day,
              concat_ws('/', lane, case when stream is null then 'message' else 'key' end, coalesce(stream, seq)) as position
         from ${schema}.message
        where ${inWindow} and ${isBehindCursor} and seq > 0
        order by ${position}, seq
        limit $8::integer`,
    ),
    keepWritersOut: defineStatement(
      "sagabox.outbox.keep_writers_out",
      `select ${schema}.outbox_keep_writers_out($1::integer, $2::integer)`,
    ),
    // Both run in a transaction that keeps writers out. Newer messages of these keys that wait get new
    // numbers behind them.
    placePage: defineStatement(
      "sagabox.outbox.republish_page",
      place(`unnest($1::text::text[], $2::text::date[]) as wanted (id, written_on)
          cross join lateral (
            select id, written_on, lane, seq from ${schema}.message as kept
             where kept.id = wanted.id and kept.written_on = wanted.written_on offset 0
          ) as message
          where true`),
    ),
    placeKey: defineStatement(
      "sagabox.outbox.republish_key",
      place(`${schema}.message
          where ${inWindow} and message.lane = $5::integer and message.stream = $6::text::bigint`),
    ),
  };
}
