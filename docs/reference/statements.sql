-- The final text of every SQL statement in src/, with its name and the file that defines it.
-- Written by scripts/build-sql.ts. Do not edit.
--
-- The schema is the default, "sagabox". A statement that is put together from parts is shown once per variant, or with
-- representative arguments, as its comment says. Indentation and line breaks are added. The tables are in schema.sql.

-- ══ src/admin/conservation/message-statements.ts ═══════════════════════════════════════════════════════════════════

-- sagabox.conservation.days
with parts as materialized (
  select child.relname as name, pg_relation_size(child.oid) / current_setting('block_size')::bigint as pages
    from pg_inherits
    join pg_class as child on child.oid = pg_inherits.inhrelid
    where pg_inherits.inhparent = ($1::text || '.message')::regclass
), span as materialized (
  select greatest($2::text::date, today - 3650) as first, today
    from (select (clock_timestamp() at time zone 'utc')::date as today) as clock
)
select to_char(day.day, 'YYYY-MM-DD') as day, day.day::date = span.today as newest,
    coalesce(own.pages, spare.pages, 0)::integer as pages
  from span
  cross join lateral generate_series(span.first, span.today, interval '1 day') as day (day)
  left join parts as own on own.name = 'message_' || to_char(day.day, 'YYYYMMDD')
  left join parts as spare on spare.name = 'message_default'
  where coalesce(own.pages, spare.pages, 0) > 0
  order by day.day;

-- sagabox.conservation.window
with page as materialized (
  select id, lane::integer as lane, seq, written_on - (written_at at time zone 'utc')::date > 1 as old
    from "sagabox".message
    where written_on = $1::text::date and ctid >= $2::text::tid and ctid < $3::text::tid and seq > 0
), edge as materialized (
  -- From here on numbers were drawn on this day: a lower one of an old message came from a day that was dropped.
  select coalesce(least(min(seq) filter (where not old), $4::text::bigint + 1), max(seq) + 1) as fresh,
      max(seq) as high
    from page
), noted as materialized (
  select receipt.lane, named.seq, receipt.sent_at,
      case when receipt.again_seqs is null then null else named.seq = any(receipt.again_seqs) end as again
    from edge
    cross join generate_series(0, 255) as walk (lane)
    cross join lateral (
      select lane, seqs, sent_at, again_seqs
        from "sagabox".receipt
        where receipt.lane = walk.lane and receipt.last_seq between edge.fresh and edge.high + 20000
          and receipt.sent_on between $1::text::date and $1::text::date + 1
          offset 0 -- looked up lane by lane, however few the planner thinks there are
    ) as receipt
    cross join lateral unnest(receipt.seqs) as named (seq)
    where named.seq between edge.fresh and edge.high
), sent as materialized (
  select lane, seq, count(*)::integer as times, min(sent_at) as at from noted group by lane, seq
), facts as materialized (
  select page.id, page.lane, page.seq, page.old and page.seq < edge.fresh as carried,
      coalesce(sent.times, 0) as times, sent.at as sent_at,
      case when row.due_at = 'infinity' then 'held' when row.seq is not null then 'waiting' end as standing,
      letters.*
    from page
    cross join edge
    left join sent on sent.lane = page.lane and sent.seq = page.seq
    left join lateral (
      select own.seq, own.due_at from "sagabox".outbox as own
        where own.lane = page.lane and own.seq = page.seq and own.message_id = page.id offset 0
    ) as row on true
    left join lateral (
      select count(*)::integer as letters,
          count(*) filter (where letter.closed_at is null)::integer as open,
          min(letter.failed_at) filter (where letter.closed_at is null) as open_since,
          count(*) filter (where letter.closed_as = 'replayed')::integer as replayed,
          max(letter.closed_at) filter (where letter.closed_as = 'replayed') as replayed_at
        from "sagabox".dead_letter as letter
        where letter.message_id = page.id and letter.origin = 'outbox'
    ) as letters on true
), judged as materialized (
  -- The account of what needs no explanation; however many died while a broker refused them all.
  select facts.*,
      case when times = 1 and standing is null and open = 0 then 'sent'
      when times <> 0 then null
      when standing = 'waiting' then case when open = 0 then 'waiting' end
      when standing = 'held' or open > 0 then 'dead'
      when letters > replayed then 'discarded' end as plain
    from facts
)
select (select count(*)::integer from page) as messages, (select high::text from edge) as high,
    (select coalesce(json_agg(json_build_object('lane', lane, 'written', written, 'sent', sent,
          'waiting', waiting, 'dead', dead, 'discarded', discarded)), '[]')
        from (select lane, count(*) as written, count(*) filter (where plain = 'sent') as sent,
              count(*) filter (where plain = 'waiting') as waiting,
              count(*) filter (where plain = 'dead') as dead,
              count(*) filter (where plain = 'discarded') as discarded
            from judged group by lane) as lanes)::text as lanes,
    (select coalesce(json_agg(json_build_object('id', id, 'lane', lane, 'seq', seq::text, 'carried', carried,
          'times', times, 'sentAt', sent_at, 'row', standing, 'letters', letters, 'open', open,
          'openSince', open_since, 'replayed', replayed, 'replayedAt', replayed_at)), '[]')
        from (select * from judged where plain is null order by lane, seq limit 2000) as few)::text as suspects,
    (select count(*)::integer from judged where plain is null) as suspected,
    (select coalesce(json_agg(json_build_object('lane', lane, 'seq', seq::text)), '[]')
        from (select lane, seq from noted
            where again = false and not exists (
              select 1 from page where page.lane = noted.lane and page.seq = noted.seq)
            order by seq limit 2000) as few)::text as strangers;

-- sagabox.conservation.traces
select asked.id,
    exists (select 1 from "sagabox".receipt
        where receipt.lane = asked.lane and receipt.last_seq >= asked.seq and receipt.first_seq <= asked.seq
          and receipt.sent_on >= $4::text::date and asked.seq = any(receipt.seqs) offset 0) as sent,
    exists (select 1 from "sagabox".outbox where again and message_id = asked.id offset 0) as waits_again,
    exists (select 1 from "sagabox".receipt
        where receipt.lane = asked.lane and receipt.last_seq > asked.seq
          and asked.id = any(receipt.again_ids) offset 0) as sent_again,
    exists (select 1 from "sagabox".receipt
        where receipt.lane = asked.lane and receipt.last_seq > asked.seq
            and receipt.again_seqs is null offset 0) as untold,
    exists (select 1 from "sagabox".consumer_group as known
        join "sagabox".consumer_inbox as inbox on inbox.consumer_name = known.name
            and inbox.event_id = asked.id offset 0)
    or exists (select 1 from "sagabox".dead_letter as letter
        where letter.message_id = asked.id and letter.origin = 'consumer' offset 0)
    or exists (select 1 from "sagabox".consumer_group as known
        join "sagabox".queue on queue.lane = known.id * 256 + asked.lane and queue.message_id = asked.id offset 0)
    or exists (select 1 from "sagabox".message as twin
        where twin.id = asked.id and twin.written_on <> $4::text::date offset 0) as delivered
  from unnest($1::text::text[], $2::text::integer[], $3::text::bigint[]) as asked (id, lane, seq);

-- sagabox.conservation.present_near
select message.lane::integer as lane, message.seq::text as seq
  from "sagabox".message
  where message.written_on = $3::text::date and message.ctid >= $4::text::tid and message.ctid < $5::text::tid
    and (message.lane::integer, message.seq) in (select * from unnest($1::text::integer[], $2::text::bigint[]));

-- sagabox.conservation.present_anywhere
select message.lane::integer as lane, message.seq::text as seq
  from "sagabox".message
  where message.written_on >= $3::text::date - 1
    and (message.lane::integer, message.seq) in (select * from unnest($1::text::integer[], $2::text::bigint[]));

-- ══ src/admin/conservation/statements.ts ═══════════════════════════════════════════════════════════════════════════

-- sagabox.conservation.outbox
select row.lane, row.seq::text, row.message_id as id,
    row.lease_until > clock_timestamp() + interval '1 hour 5 minutes' as overlong,
    not exists (select 1 from "sagabox".message
        where message.id = row.message_id and message.written_on = row.written_on offset 0)
    as orphan,
    not row.again and exists (select 1 from "sagabox".message
        where message.id = row.message_id and message.written_on = row.written_on
          and (message.lane, message.seq) <> (row.lane, row.seq) and message.seq > 0 offset 0) as is_mismatch,
    row.due_at = 'infinity' and not exists (
      select 1 from "sagabox".dead_letter as letter
        where letter.message_id = row.message_id and letter.closed_at is null
          and letter.held_lane = row.lane and letter.held_seq = row.seq offset 0) as is_stale_block
  from "sagabox".outbox as row
  where (row.lane, row.seq) > ($1::integer, $2::text::bigint) and row.written_on >= $4::text::date
  order by row.lane, row.seq
  limit $3::integer;

-- sagabox.conservation.queue
select row.lane, row.seq::text, row.message_id as id,
    not exists (select 1 from "sagabox".consumer_group where id = row.lane / 256) as has_no_group,
    not exists (select 1 from "sagabox".message
        where message.id = row.message_id and message.written_on = row.written_on offset 0)
    as orphan
  from "sagabox".queue as row
  where (row.lane, row.seq) > ($1::integer, $2::text::bigint) and row.written_on >= $4::text::date
  order by row.lane, row.seq
  limit $3::integer;

-- sagabox.conservation.scheduled
select scheduled.id, scheduled.lane::integer as lane,
    exists (select 1 from "sagabox".message where message.id = scheduled.id offset 0) as written
  from "sagabox".scheduled
  where scheduled.id > $1::text
  order by scheduled.id
  limit $2::integer;

-- sagabox.conservation.letters
select letter.id::text as letter, letter.message_id as id, letter.held_lane as lane,
    case when letter.origin = 'consumer' then coalesce(letter.closed_as, 'open') end as of_consumer,
    letter.closed_at is null and letter.held_lane is not null and not exists (
      select 1 from "sagabox".outbox as row
        where row.lane = letter.held_lane and row.seq = letter.held_seq
            and row.due_at = 'infinity' offset 0) as lacks_row,
    letter.closed_as = 'replayed' and letter.origin = 'consumer' and letter.kind = 'command'
    and not exists (select 1 from "sagabox".consumer_inbox as inbox
        where inbox.consumer_name = letter.consumer and inbox.event_id = letter.message_id offset 0)
    and not exists (select 1 from "sagabox".dead_letter as later
        where later.message_id = letter.message_id and later.consumer = letter.consumer
          and later.id > letter.id offset 0)
    and not exists (select 1 from "sagabox".consumer_group as known
        join "sagabox".queue as row on row.lane between known.id * 256 and known.id * 256 + 255
          and row.message_id = letter.message_id
        where known.name = letter.consumer offset 0) as vanished
  from "sagabox".dead_letter as letter
  where letter.id > $1::text::bigint
  order by letter.id
  limit $2::integer;

-- sagabox.conservation.inbox
select count(*)::integer as rows,
    coalesce(json_agg(json_build_object('consumer', row.consumer_name, 'id',
        row.event_id)) filter (where row.undone_by is not null
          and not exists (select 1 from "sagabox".consumer_inbox as undo
              where undo.consumer_name = row.consumer_name and undo.event_id = row.undone_by offset 0)),
                  '[]')::text as undone,
    coalesce(json_agg(json_build_object('consumer', row.consumer_name, 'id',
        row.event_id)) filter (where row.effect_of is not null
          and exists (select 1 from "sagabox".consumer_inbox as origin
              where origin.consumer_name = row.consumer_name and origin.event_id = row.effect_of
                and not origin.effect offset 0)), '[]')::text as borrowed
  from "sagabox".consumer_inbox as row
  where row.ctid >= $1::text::tid and row.ctid < $2::text::tid;

-- sagabox.conservation.inbox_pages
select (pg_relation_size(($1::text || '.consumer_inbox')::regclass) / current_setting('block_size')::bigint)::integer
    as pages;

-- sagabox.conservation.leases
with clock as materialized (select clock_timestamp() as now)
select 'lease_overlong' as kind, member.id
  from clock, "sagabox".member where member.lease_until > clock.now + interval '1 hour 5 minutes'
union all
select 'lease_over', gone.id
  from clock, "sagabox".member as gone
  where gone.scope >= 0 and gone.lease_until < clock.now - interval '2 minutes'
    and exists (select 1 from "sagabox".member as peer
        where peer.scope = gone.scope and peer.joined_at < clock.now - interval '2 minutes'
          and peer.lease_until > clock.now)
  limit 200;

-- sagabox.conservation.sagas
    (select 'saga_without_incident' as kind, instance.id
        from "sagabox".saga_instance as instance
        where instance.completed_at is null and instance.status = 'failed'
          and not exists (select 1 from "sagabox".saga_incident as incident
              where incident.saga_id = instance.id and incident.closed_at is null)
        limit 200)
union all
    (select 'incident_without_saga', incident.saga_id
        from "sagabox".saga_incident as incident
        where incident.closed_at is null
          and not exists (select 1 from "sagabox".saga_instance as instance
              where instance.id = incident.saga_id and instance.status = 'failed')
        limit 200)
union all
    (select 'claim_overlong', instance.id
        from "sagabox".saga_instance as instance
        where instance.due_at is not null
          and instance.claimed_until > (select clock_timestamp()) + interval '1 hour 5 minutes'
        order by instance.due_at
        limit 200);

-- sagabox.conservation.limits
select set_config('statement_timeout', $1::text, true), set_config('lock_timeout', '250ms', true),
    set_config('transaction_read_only', 'on', true), set_config('enable_seqscan', 'off', true);

-- sagabox.conservation.kept
select dead_letter_ms, archive_ms, state::text as state,
    to_char(checked_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as checked_at
  from "sagabox".conservation;

-- sagabox.conservation.today
select to_char((clock_timestamp() - $1::double precision * interval '1 ms') at time zone 'utc', 'YYYY-MM-DD') as day;

-- sagabox.conservation.claim
update "sagabox".conservation
  set claimed_by = $1::text, claimed_until = clock_timestamp() + $2::double precision * interval '1 ms',
    dead_letter_ms = least($3::double precision,
        dead_letter_ms + extract(epoch from clock_timestamp() - coalesce(checked_at, clock_timestamp())) * 1000),
    archive_ms = least($4::double precision, archive_ms + extract(epoch from clock_timestamp() - coalesce(checked_at,
        clock_timestamp())) * 1000)
  where claimed_until is null or claimed_until < clock_timestamp() or claimed_by = $1::text
  returning state::text as state, dead_letter_ms, archive_ms;

-- sagabox.conservation.shorten
update "sagabox".conservation
  set dead_letter_ms = least(dead_letter_ms, $1::double precision),
    archive_ms = least(archive_ms, $2::double precision)
  where dead_letter_ms > $1::double precision or archive_ms > $2::double precision;

-- sagabox.conservation.save
update "sagabox".conservation set state = $2::text::json, checked_at = clock_timestamp()
  where claimed_by = $1::text;

-- sagabox.conservation.release
update "sagabox".conservation set claimed_by = null, claimed_until = null where claimed_by = $1::text;

-- ══ src/admin/consumers/statements.ts ══════════════════════════════════════════════════════════════════════════════

-- sagabox.inbox_admin.list: of every key
select handled.consumer_name as consumer, event_id, source_topic, event_type, to_char(consumed_at at time zone 'UTC',
    'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as consumed_at,
    processing_duration_ms, effect, effect_of, undone_by
  from "sagabox".consumer_inbox as handled
  where consumed_at > clock_timestamp() - $2::double precision * interval '1 ms'
    and ($3::text is null or consumer_name = $3::text) and ($4::text is null or source_topic = $4::text)
    and ($5::text is null or event_type = $5::text)
  order by handled.consumed_at desc, consumer_name, event_id
  limit $1::integer;

-- sagabox.inbox_admin.list_by_key: of one key
select handled.consumer_name as consumer, event_id, source_topic, event_type, to_char(consumed_at at time zone 'UTC',
    'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as consumed_at,
    processing_duration_ms, effect, effect_of, undone_by
  from "sagabox".consumer_inbox as handled
  where consumed_at > clock_timestamp() - $2::double precision * interval '1 ms'
    and ($3::text is null or consumer_name = $3::text) and ($4::text is null or source_topic = $4::text)
    and ($5::text is null or event_type = $5::text)
    and exists (select 1 from "sagabox".message where message.id = handled.event_id and message.key = $6::text)
  order by handled.consumed_at desc, consumer_name, event_id
  limit $1::integer;

-- sagabox.inbox_admin.show
with recursive name as (
      (select consumer_name from "sagabox".consumer_inbox order by consumer_name limit 1)
  union all
  select (select next.consumer_name from "sagabox".consumer_inbox as next
      where next.consumer_name > name.consumer_name order by next.consumer_name limit 1)
    from name where name.consumer_name is not null
)
select handled.consumer_name as consumer, event_id, source_topic, event_type, to_char(consumed_at at time zone 'UTC',
    'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as consumed_at,
    processing_duration_ms, effect, effect_of, undone_by
  from name join "sagabox".consumer_inbox as handled on handled.consumer_name = name.consumer_name
  where handled.event_id = $1::text
  order by handled.consumed_at, handled.consumer_name;

-- sagabox.inbox_admin.reach
select coalesce(extract(epoch from clock_timestamp() - least(
      (select min(to_date(right(relname, 8), 'YYYYMMDD'))::timestamp at time zone 'UTC' from pg_class
          where relnamespace = $1::text::regnamespace and relkind = 'r' and relname ~ '^message_[0-9]{8}$'),
      (select min(written_on)::timestamp at time zone 'UTC' from "sagabox".message_default))) * 1000,
          0)::double precision
    as archive_ms,
    coalesce(extract(epoch from clock_timestamp() - (
      select min(failed_at) from "sagabox".dead_letter where closed_at is null)) * 1000, 0)::double precision
    as dead_letter_ms;

-- sagabox.inbox_admin.standing
select known.id,
    array(select topic from "sagabox".subscription where group_id = known.id order by topic) as topics,
    (select count(*)::integer from "sagabox".queue
        where lane between known.id * 256 and known.id * 256 + 255) as deliveries,
    array(select distinct worker from "sagabox".member
        where scope = known.id and lease_until > clock_timestamp() order by worker) as workers
  from "sagabox".consumer_group as known
  where known.name = $1::text;

-- sagabox.inbox_admin.names
with recursive handler as (
      (select consumer_name from "sagabox".consumer_inbox order by consumer_name limit 1)
  union all
  select (select next.consumer_name from "sagabox".consumer_inbox as next
      where next.consumer_name > handler.consumer_name order by next.consumer_name limit 1)
    from handler where handler.consumer_name is not null
)
select name from "sagabox".consumer_group
union
select consumer_name from handler where consumer_name is not null and not $1::boolean
  order by name
  limit 500;

-- sagabox.inbox_admin.due
select count(*)::integer as count
  from (select 1 from "sagabox".consumer_inbox
      where consumed_at < clock_timestamp() - $1::double precision * interval '1 ms'
      limit 1000000) as old;

-- ══ src/admin/dead-letters/statements.ts ═══════════════════════════════════════════════════════════════════════════

-- sagabox.dead_letter_admin.ungrouped
select id::text, consumer, type, reason, error_type, error_message
  from "sagabox".dead_letter
  where fingerprint is null and closed_at is null
  order by key_order, written_at, message_id
  limit $1::integer;

-- sagabox.dead_letter_admin.set_fingerprints
update "sagabox".dead_letter as letter
  set fingerprint = given.fingerprint,
    key_order = case when letter.key_order >= 0 then letter.key_order else coalesce(
          (select min(message.seq) from "sagabox".message
              where message.id = letter.message_id and message.seq > 0 and letter.key is not null), 0) end
  from unnest($1::text::bigint[], $2::text::text[]) as given (id, fingerprint)
  where letter.id = given.id and letter.fingerprint is null;

-- sagabox.dead_letter_admin.groups: without a filter
with counted as materialized (
  select letter.fingerprint, count(*)::integer as open, min(letter.failed_at) as first_at,
      max(letter.failed_at) as last_at, max(letter.id) as sample
    from "sagabox".dead_letter as letter
    where letter.closed_at is null and letter.fingerprint is not null
      and true
      and letter.closed_at is null
    group by letter.fingerprint
)
select counted.fingerprint, counted.open, to_char(counted.first_at at time zone 'UTC',
    'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as first_at,
    to_char(counted.last_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as last_at, letter.id::text as sample,
        letter.message_id, letter.origin,
    letter.consumer, letter.type, letter.topic, letter.reason, letter.error_type,
  left(letter.error_message, 500) as error_message, closed.replayed, closed.discarded,
    (select count(*)::integer from counted) as groups, (select coalesce(sum(open), 0)::integer from counted) as total
  from counted
  join "sagabox".dead_letter as letter on letter.id = counted.sample
  cross join lateral (
    select count(*) filter (where gone.closed_as = 'replayed')::integer as replayed,
        count(*) filter (where gone.closed_as = 'discarded')::integer as discarded
      from "sagabox".dead_letter as gone
      where gone.fingerprint = counted.fingerprint and gone.closed_at is not null
  ) as closed
  order by counted.open desc, counted.fingerprint
    offset $2::integer
  limit $1::integer;

-- sagabox.dead_letter_admin.groups: with every filter
with counted as materialized (
  select letter.fingerprint, count(*)::integer as open, min(letter.failed_at) as first_at,
      max(letter.failed_at) as last_at, max(letter.id) as sample
    from "sagabox".dead_letter as letter
    where letter.closed_at is null and letter.fingerprint is not null
      and true
      and letter.closed_at is null
      and letter.fingerprint = $3::text
      and letter.origin = $4::text
      and letter.consumer = $5::text
      and letter.type = $6::text
      and letter.topic = $7::text
      and letter.reason = $8::text
      and letter.message_id = $9::text
      and hashtextextended(letter.key, 0) = hashtextextended($10::text, 0) and letter.key = $10::text
      and hashtextextended(letter.key, 0) = hashtextextended($11::text, 0) and letter.key = $11::text
      and strpos(lower(letter.error_type || ': ' || letter.error_message), lower($12::text)) > 0
      and letter.failed_at >= $13::text::timestamptz
      and letter.failed_at < $14::text::timestamptz
    group by letter.fingerprint
)
select counted.fingerprint, counted.open, to_char(counted.first_at at time zone 'UTC',
    'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as first_at,
    to_char(counted.last_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as last_at, letter.id::text as sample,
        letter.message_id, letter.origin,
    letter.consumer, letter.type, letter.topic, letter.reason, letter.error_type,
  left(letter.error_message, 500) as error_message, closed.replayed, closed.discarded,
    (select count(*)::integer from counted) as groups, (select coalesce(sum(open), 0)::integer from counted) as total
  from counted
  join "sagabox".dead_letter as letter on letter.id = counted.sample
  cross join lateral (
    select count(*) filter (where gone.closed_as = 'replayed')::integer as replayed,
        count(*) filter (where gone.closed_as = 'discarded')::integer as discarded
      from "sagabox".dead_letter as gone
      where gone.fingerprint = counted.fingerprint and gone.closed_at is not null
  ) as closed
  order by counted.open desc, counted.fingerprint
    offset $2::integer
  limit $1::integer;

-- sagabox.dead_letter_admin.newest
select coalesce(max(id), 0)::text as id from "sagabox".dead_letter;

-- sagabox.dead_letter_admin.workers
select asked.name as consumer, known.id is not null as known,
    exists (select 1 from "sagabox".member
        where member.scope = known.id and member.lease_until > clock_timestamp()) as working
  from unnest($1::text::text[]) as asked (name)
  left join (select id, name from "sagabox".consumer_group union all select 0, null) as known
  on known.name is not distinct from asked.name;

-- sagabox.dead_letter_admin.outcomes
select given.id::text, coalesce(delivery.seq, sending.seq) is not null as waiting,
    coalesce(delivery.attempts, sending.attempts, 0)::integer as attempts,
    coalesce(delivery.last_error, sending.last_error) as last_error,
    again.id::text as letter, again.fingerprint, again.consumer, again.type, again.reason, again.error_type,
    again.error_message
  from unnest($1::text::bigint[], $2::text::text[], $3::text::integer[], $4::text::bigint[])
    as given (id, line, lane, seq)
  join "sagabox".dead_letter as letter on letter.id = given.id
  left join "sagabox".queue as delivery
  on given.line = 'queue' and delivery.lane = given.lane and delivery.seq = given.seq
    and delivery.message_id = letter.message_id
  left join "sagabox".outbox as sending
  on given.line = 'outbox' and sending.lane = given.lane and sending.seq = given.seq
    and sending.message_id = letter.message_id
  left join lateral (
    select * from "sagabox".dead_letter as next
      where next.message_id = letter.message_id and next.origin = letter.origin
        and next.consumer is not distinct from letter.consumer and next.id > letter.id
      order by next.id limit 1
  ) as again on true;

-- sagabox.dead_letter_admin.held: without a filter
select count(*)::integer as count
  from (select 1 from "sagabox".dead_letter as letter
      where letter.closed_at is null and letter.fingerprint = $1::text and letter.id <= $2::text::bigint
        and true
        and letter.closed_at is null
      limit 100000) as left_over;

-- sagabox.dead_letter_admin.held: with every filter
select count(*)::integer as count
  from (select 1 from "sagabox".dead_letter as letter
      where letter.closed_at is null and letter.fingerprint = $1::text and letter.id <= $2::text::bigint
        and true
        and letter.closed_at is null
        and letter.fingerprint = $3::text
        and letter.origin = $4::text
        and letter.consumer = $5::text
        and letter.type = $6::text
        and letter.topic = $7::text
        and letter.reason = $8::text
        and letter.message_id = $9::text
        and hashtextextended(letter.key, 0) = hashtextextended($10::text, 0) and letter.key = $10::text
        and hashtextextended(letter.key, 0) = hashtextextended($11::text, 0) and letter.key = $11::text
        and strpos(lower(letter.error_type || ': ' || letter.error_message), lower($12::text)) > 0
        and letter.failed_at >= $13::text::timestamptz
        and letter.failed_at < $14::text::timestamptz
      limit 100000) as left_over;

-- sagabox.dead_letter_admin.discard: without a filter
with picked as materialized (
  select letter.id from "sagabox".dead_letter as letter
    where letter.closed_at is null and letter.id <= $1::text::bigint
      and true
      and letter.closed_at is null
    order by letter.id
    limit $2::integer
    for update skip locked
)
update "sagabox".dead_letter as letter
  set closed_at = clock_timestamp(), closed_as = 'discarded'
  from picked
  where letter.id = picked.id
  returning letter.id::text, letter.origin, letter.consumer, letter.message_id, letter.type, letter.topic,
    letter.reason, letter.attempts, letter.error_message, letter.traceparent, letter.fingerprint,
    letter.held_lane, letter.held_seq::text;

-- sagabox.dead_letter_admin.discard: with every filter
with picked as materialized (
  select letter.id from "sagabox".dead_letter as letter
    where letter.closed_at is null and letter.id <= $1::text::bigint
      and true
      and letter.closed_at is null
      and letter.fingerprint = $3::text
      and letter.origin = $4::text
      and letter.consumer = $5::text
      and letter.type = $6::text
      and letter.topic = $7::text
      and letter.reason = $8::text
      and letter.message_id = $9::text
      and hashtextextended(letter.key, 0) = hashtextextended($10::text, 0) and letter.key = $10::text
      and hashtextextended(letter.key, 0) = hashtextextended($11::text, 0) and letter.key = $11::text
      and strpos(lower(letter.error_type || ': ' || letter.error_message), lower($12::text)) > 0
      and letter.failed_at >= $13::text::timestamptz
      and letter.failed_at < $14::text::timestamptz
    order by letter.id
    limit $2::integer
    for update skip locked
)
update "sagabox".dead_letter as letter
  set closed_at = clock_timestamp(), closed_as = 'discarded'
  from picked
  where letter.id = picked.id
  returning letter.id::text, letter.origin, letter.consumer, letter.message_id, letter.type, letter.topic,
    letter.reason, letter.attempts, letter.error_message, letter.traceparent, letter.fingerprint,
    letter.held_lane, letter.held_seq::text;

-- sagabox.dead_letter_admin.left_open: without a filter
select count(*)::integer as left_open
  from "sagabox".dead_letter as letter
  where letter.closed_at is null and letter.id <= $1::text::bigint
    and true
    and letter.closed_at is null;

-- sagabox.dead_letter_admin.left_open: with every filter
select count(*)::integer as left_open
  from "sagabox".dead_letter as letter
  where letter.closed_at is null and letter.id <= $1::text::bigint
    and true
    and letter.closed_at is null
    and letter.fingerprint = $2::text
    and letter.origin = $3::text
    and letter.consumer = $4::text
    and letter.type = $5::text
    and letter.topic = $6::text
    and letter.reason = $7::text
    and letter.message_id = $8::text
    and hashtextextended(letter.key, 0) = hashtextextended($9::text, 0) and letter.key = $9::text
    and hashtextextended(letter.key, 0) = hashtextextended($10::text, 0) and letter.key = $10::text
    and strpos(lower(letter.error_type || ': ' || letter.error_message), lower($11::text)) > 0
    and letter.failed_at >= $12::text::timestamptz
    and letter.failed_at < $13::text::timestamptz;

-- sagabox.dead_letter_admin.others
select letter.id::text, letter.reason, letter.error_type, left(letter.error_message, 500) as error_message,
    to_char(letter.failed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as failed_at,
        to_char(letter.closed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as closed_at, letter.closed_as,
    letter.fingerprint, to_char(edit.edited_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as edited_at,
        edit.actor, edit.reason as why, edit.before_hash,
    edit.after_hash, edit.contract
  from "sagabox".dead_letter as letter
  left join "sagabox".dead_letter_edit as edit on edit.dead_letter_id = letter.id
  where letter.message_id = $1::text and letter.origin = $2::text and letter.consumer is not distinct from $3::text
  order by letter.id
  limit 100;

-- sagabox.dead_letter_admin.actions
select to_char(log.timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at, log.actor, log.action,
    log.reason, log.outcome, log.target_id
  from "sagabox".audit_log as log
  where log.target_kind = 'dead_letter' and log.target_id = any($1::text::text[])
  order by log.timestamp
  limit 100;

-- sagabox.dead_letter_admin.waiting
with found as materialized (
  select message.lane::integer as lane, message.seq from "sagabox".message where message.id = $1::text
  union
  select again.lane, again.seq from "sagabox".outbox as again where again.again and again.message_id = $1::text
)
select 'outbox' as "table", moving.lane, moving.seq::text, null::text as consumer, moving.type, moving.attempts
  from found
  join "sagabox".outbox as moving on moving.lane = found.lane and moving.seq = found.seq
  where moving.message_id = $1::text and moving.due_at < 'infinity'
union all
select 'queue', moving.lane, moving.seq::text, reader.name, moving.type, moving.attempts
  from "sagabox".queue as moving
  join "sagabox".consumer_group as reader on reader.id = moving.lane / 256
  where moving.message_id = $1::text
    and moving.lane = any(array(
      select known.id * 256 + message.lane from "sagabox".consumer_group as known, "sagabox".message
        where message.id = $1::text))
  order by 1, 4;

-- sagabox.dead_letter_admin.bury_delivery
select "sagabox".dead_letter_bury_delivery($1::integer, $2::text::bigint, $3::text, $4::text, $5::text)::text as letter;

-- sagabox.dead_letter_admin.bury_waiting
select "sagabox".dead_letter_bury_waiting($1::integer, $2::text::bigint, $3::text, $4::text, $5::text)::text as letter;

-- ══ src/admin/doctor/statements.ts ═════════════════════════════════════════════════════════════════════════════════

-- sagabox.doctor.server
select current_setting('server_version_num')::integer as version_number, current_setting('server_version') as version,
    pg_is_in_recovery() as standby, current_setting('fsync') as fsync,
    current_setting('full_page_writes') as full_page_writes,
    current_setting('synchronous_commit') as synchronous_commit, current_setting('autovacuum') as autovacuum,
    current_setting('wal_level') as wal_level, current_setting('archive_mode') as archive_mode,
    current_setting('max_connections')::integer as max_connections,
    current_setting('superuser_reserved_connections')::integer as reserved,
    (select count(*)::integer from pg_stat_activity
        where backend_type = 'client backend' or ((backend_type is null and usesysid is not null)
            and datid is not null)) as used,
    (select count(distinct worker)::integer from "sagabox".member where lease_until > clock_timestamp()) as workers,
    pg_notification_queue_usage() as notify_queue, current_database() as database_name,
    current_user as user_name, (select rolsuper from pg_roles where rolname = current_user) as superuser,
    (select ssl from pg_stat_ssl where pid = pg_backend_pid()) as ssl,
    coalesce(inet_client_addr() <<= any(array['127.0.0.0/8'::inet, '::1'::inet]), true) as local;

-- sagabox.doctor.encoding
select current_setting('server_encoding') as encoding, current_database() as database_name;

-- sagabox.doctor.clock
select (extract(epoch from clock_timestamp()) * 1000)::double precision as now_ms;

-- sagabox.doctor.slots
select slot_name as name, active, wal_status as status,
    coalesce(case when pg_is_in_recovery() then 0 else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) end, 0)
    ::double precision as retained
  from pg_replication_slots order by slot_name;

-- sagabox.doctor.sessions
select pid, usename as user_name, application_name as application, state, null as prepared,
    (extract(epoch from clock_timestamp() - xact_start) * 1000)::double precision as age_ms
  from pg_stat_activity
  where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
    and backend_type = 'client backend'
union all
select 0, owner, null, 'prepared', gid, (extract(epoch from clock_timestamp() - prepared) * 1000)::double precision
  from pg_prepared_xacts where database = current_database()
  order by age_ms desc
  limit 100;

-- sagabox.doctor.hidden
select count(*)::integer as hidden, current_user as user_name
  from pg_stat_activity
  where datname = current_database() and pid <> pg_backend_pid() and (backend_type is null and usesysid is not null);

-- sagabox.doctor.tables
select class.oid::regclass::text as name, coalesce(stat.n_live_tup, 0)::double precision as live,
    coalesce(stat.n_dead_tup, 0)::double precision as dead,
    pg_table_size(class.oid)::double precision as size, class.relpersistence = 'u' as unlogged,
    coalesce('autovacuum_enabled=false' = any(class.reloptions) or 'autovacuum_enabled=off' = any(class.reloptions),
        false)
    as vacuum_off,
    class.relname not in ('outbox', 'queue') or coalesce(array_to_string(class.reloptions,
        ',') like '%autovacuum_vacuum_scale_factor%', false)
    as tuned,
    to_char(greatest(stat.last_vacuum, stat.last_autovacuum) at time zone 'utc',
        'YYYY-MM-DD"T"HH24:MI:SS"Z"') as vacuumed_at
  from pg_class as class
  left join pg_stat_all_tables as stat on stat.relid = class.oid
  where class.relnamespace = $1::text::regnamespace and class.relkind = 'r' and class.relname in ('outbox', 'queue',
      'member', 'relay_lane', 'consumer_inbox', 'saga_instance', 'dead_letter', 'scheduled')
  order by class.relname;

-- sagabox.doctor.partitions
with today as materialized (select (clock_timestamp() at time zone 'utc')::date as day),
wanted as (
  select parent || to_char(today.day + ahead, '"_"YYYYMMDD') as name
    from today, unnest(array['message', 'receipt']) as parent, generate_series(1, 3) as ahead
  union all
  select parent || to_char(today.day + interval '1 month', '"_"YYYYMM')
    from today, unnest(array['saga_audit_log', 'audit_log', 'audit_seal']) as parent)
select array(select name from wanted
    where to_regclass($1::text || '.' || name) is null order by name) as missing,
    array(select relname::text from pg_class
        where relnamespace = $1::text::regnamespace and relname ~ '_default$' and relkind = 'r'
          and pg_relation_size(oid) > 0 order by relname) as strays;

-- sagabox.doctor.relay
select (select count(*)::integer from "sagabox".member where scope = 0 and lease_until > clock_timestamp()) as relays,
    (select extract(epoch from clock_timestamp() - min(head.due_at)) * 1000
        from generate_series(0, 255) as lane
        cross join lateral (
          select due_at from "sagabox".outbox
            where outbox.lane = lane.lane
                and due_at < clock_timestamp() order by seq limit 4) as head)::double precision
    as oldest_ms;

-- sagabox.doctor.consumers
select known.name,
    (select count(*)::integer from "sagabox".member
        where scope = known.id and lease_until > clock_timestamp()) as members,
    (select count(*)::integer from (
      select 1 from "sagabox".queue where lane between known.id * 256 and known.id * 256 + 255 limit 1) as some_)
    as waiting,
    (select count(*)::integer from "sagabox".subscription where group_id = known.id) as topics
  from "sagabox".consumer_group as known
  order by known.name
  limit 1000;

-- sagabox.doctor.topics
with day as materialized (select (clock_timestamp() at time zone 'utc')::date as today),
size as materialized (
  select pg_relation_size(coalesce(to_regclass($1::text || '.message_' || to_char(today, 'YYYYMMDD')),
        to_regclass($1::text || '.message_default'))) / current_setting('block_size')::bigint as pages
    from day),
recent as materialized (
  select message.topic, bool_and(message.kind = 'event') as events_only from "sagabox".message
    where message.written_on = (select today from day)
      and message.ctid >= (select ('(' || greatest(0, pages - 500) || ',0)')::tid from size)
    group by message.topic),
unwanted as materialized (
  select topic, events_only from recent
    where not exists (select 1 from "sagabox".subscription where subscription.topic = recent.topic)
    order by topic limit 100)
select (select count(*)::integer from "sagabox".subscription) as subscriptions,
    array(select topic from unwanted where not events_only order by topic) as topics,
    array(select topic from unwanted where events_only order by topic) as events;

-- sagabox.doctor.letters
select (select count(*)::integer from (
  select 1 from "sagabox".dead_letter where closed_at is null limit 10000) as some_) as open,
    (extract(epoch from clock_timestamp() - (
      select min(failed_at) from "sagabox".dead_letter where closed_at is null)) * 1000)::double precision as oldest_ms,
    (select dead_letter_ms from "sagabox".conservation) as retention_ms;

-- sagabox.doctor.seals
with sealed as materialized (
  select coalesce(max(xid_to::text::numeric), 0)::text::xid8 as to_ from (
    select xid_to from "sagabox".audit_seal order by number desc limit 10) as last)
select (extract(epoch from clock_timestamp() - least(
      (select min(timestamp) from (select timestamp from "sagabox".saga_audit_log, sealed
          where xid >= sealed.to_ order by xid, id limit 100) as log),
      (select min(timestamp) from (select timestamp from "sagabox".audit_log, sealed
          where xid >= sealed.to_ order by xid, id limit 100) as log))) * 1000)::double precision
    as unsealed_ms;

-- sagabox.doctor.conservation
select (extract(epoch from clock_timestamp() - checked_at) * 1000)::double precision as age_ms,
    (select count(*)::integer from json_object_keys(coalesce(state -> 'wrong', '{}'))) as wrong,
    json_array_length(coalesce(state -> 'missed', '[]')) as missed,
    dead_letter_ms, archive_ms
  from "sagabox".conservation;

-- sagabox.doctor.subjects
select exists (select 1 from "sagabox".subject_key where erased_at is null) as subjects;

-- sagabox.doctor.parts
with own as materialized (
  select oid, relname, relkind from pg_class
    where relnamespace = $1::text::regnamespace
      and (relkind not in ('r', 'i') or not relispartition)
      and relname !~ '_([0-9]{8}|[0-9]{6}|default)$')
select 'table' as kind, relname::text as name, 'table' as shape, false as invalid
  from own where relkind in ('r', 'p')
union all
select 'view', relname::text, 'view', false from own where relkind = 'v'
union all
select 'sequence', relname::text, 'sequence', false from own
  where relkind = 'S' and relname !~ '_id_seq$'
union all
select 'column', own.relname || '.' || attname,
    replace(format_type(atttypid, atttypmod), quote_ident(trim(both '"' from $1::text)) || '.',
        '') || case when attnotnull then ' not null' else '' end, false
  from own join pg_attribute on attrelid = own.oid and attnum > 0 and not attisdropped
  where own.relkind in ('r', 'p')
union all
select 'index', index_.relname::text,
    replace(pg_get_indexdef(index_.oid), quote_ident(trim(both '"' from $1::text)) || '.', ''), not indisvalid
  from own join pg_index on indrelid = own.oid
  join pg_class as index_ on index_.oid = indexrelid
  where own.relkind in ('r', 'p')
union all
select 'constraint', own.relname || '.' || conname, contype::text, false
  from own join pg_constraint on conrelid = own.oid
  where own.relkind in ('r', 'p') and contype in ('c', 'p', 'u', 'f')
union all
select 'constraint', typname || '.' || conname, pg_constraint.contype::text, false
  from pg_type join pg_constraint on contypid = pg_type.oid
  where typnamespace = $1::text::regnamespace
union all
select 'trigger', own.relname || '.' || tgname, case when tgenabled = 'D' then 'disabled' else 'enabled' end, false
  from own join pg_trigger on tgrelid = own.oid and not tgisinternal
  where own.relkind in ('r', 'p')
union all
select 'function', proname || '(' || replace(pg_get_function_identity_arguments(oid), $1::text::regnamespace || '.',
    '') || ')',
    md5(replace(prosrc, $1::text, '{schema}')), false
  from pg_proc where pronamespace = $1::text::regnamespace
  order by kind, name;

-- remedies.logged: printed by `sagabox doctor`
alter table "sagabox".outbox set logged;

-- remedies.vacuumAgain: printed by `sagabox doctor`
alter table "sagabox".outbox reset (autovacuum_enabled);

-- remedies.vacuumSettings: printed by `sagabox doctor`
alter table "sagabox".outbox set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0);

-- remedies.commitSafely: printed by `sagabox doctor`
alter database "shop" set synchronous_commit = on; -- or: alter role "shop_app" reset synchronous_commit;

-- remedies.dropSlot: printed by `sagabox doctor`
select pg_drop_replication_slot('old_slot');

-- remedies.endSession: printed by `sagabox doctor`
select pg_terminate_backend(4711); -- and set idle_in_transaction_session_timeout for that user

-- remedies.readStatistics: printed by `sagabox doctor`
grant pg_read_all_stats to "shop_app"; -- as a superuser, or run the doctor as one who has it

-- ══ src/admin/explain/statements.ts ════════════════════════════════════════════════════════════════════════════════

-- sagabox.explain.message: for roles that may read contents
select * from (
  select 1 as rank, id, kind, type, schema_version, topic, key, saga_id, correlation_id, causation_id, traceparent,
      source, priority, lane::integer, seq::text, headers,
      (select masked.data_bytes from "sagabox".masked_message as masked where masked.id = message.id
          and masked.written_on = message.written_on) as bytes, to_char(written_at at time zone 'UTC',
          'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as written_at,
      to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as expires_at,
          null::text as scheduled_for, to_char(written_on, 'YYYY-MM-DD') as written_on
    from "sagabox".message where id = $1::text
  union all
  select 2, id, kind, type, schema_version, topic, key, saga_id, correlation_id, causation_id, traceparent, source,
      priority, lane::integer, null, headers,
          (select masked.data_bytes from "sagabox".masked_scheduled as masked where masked.id = scheduled.id),
          to_char(written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
          to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
      to_char(due_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), null
    from "sagabox".scheduled where id = $1::text
  union all
  select 3, message_id, kind, type, schema_version, topic, key, saga_id, correlation_id, causation_id, traceparent,
      source, priority, null, null, headers, octet_length(data), to_char(written_at at time zone 'UTC',
          'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
          null, null
    from "sagabox".dead_letter where message_id = $1::text
) as found order by rank, written_on desc limit 1;

-- sagabox.explain.outbox: for roles that may read contents
select moving.lane, moving.seq::text, moving.attempts, moving.max_attempts, moving.again,
    moving.last_error as last_error,
    null::text as consumer,
    case when moving.due_at = 'infinity' then null else to_char(moving.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end as due_at,
    moving.due_at = 'infinity' as held, moving.due_at <= clock_timestamp() as is_due,
    moving.lease_until > clock_timestamp() as optimistic, to_char(moving.expires_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as expires_at,
    owner.worker as owner,
    ahead.message_id as ahead_id, ahead.attempts as ahead_attempts, ahead.last_error as ahead_error,
    case when ahead.due_at = 'infinity' then null else to_char(ahead.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end as ahead_due_at,
    ahead.due_at = 'infinity' as ahead_held
  from "sagabox".outbox as moving
  left join "sagabox".relay_lane as lane on lane.lane = moving.lane
  left join "sagabox".member as owner on owner.id = lane.owner and (owner.lease_until > clock_timestamp()
      and (owner.backend is null or exists (select 1 from pg_stat_get_activity(coalesce(owner.backend, 0)))))
  left join lateral (
    select front.message_id, front.attempts, front.last_error, front.due_at
      from "sagabox".outbox as front
      where front.lane::bigint = (moving.lane)::bigint and front.stream = moving.stream and front.seq < moving.seq
      order by front.seq limit 1
  ) as ahead on true
  where (moving.lane = $2::integer and moving.seq = $3::text::bigint)
    or (moving.again and moving.message_id = $1::text)
  order by moving.seq;

-- sagabox.explain.queue: for roles that may read contents
select moving.lane, moving.seq::text, moving.attempts, moving.max_attempts, moving.again,
    moving.last_error as last_error,
    "sagabox".consumer_group.name as consumer,
    case when moving.due_at = 'infinity' then null else to_char(moving.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end as due_at,
    moving.due_at = 'infinity' as held, moving.due_at <= clock_timestamp() as is_due,
    moving.lease_until > clock_timestamp() as optimistic, to_char(moving.expires_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as expires_at,
    owner.worker as owner,
    ahead.message_id as ahead_id, ahead.attempts as ahead_attempts, ahead.last_error as ahead_error,
    case when ahead.due_at = 'infinity' then null else to_char(ahead.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end as ahead_due_at,
    ahead.due_at = 'infinity' as ahead_held
  from "sagabox".queue as moving
  left join "sagabox".relay_lane as lane on lane.lane = moving.lane
  left join "sagabox".member as owner on owner.id = lane.owner and (owner.lease_until > clock_timestamp()
      and (owner.backend is null or exists (select 1 from pg_stat_get_activity(coalesce(owner.backend, 0)))))
  left join lateral (
    select front.message_id, front.attempts, front.last_error, front.due_at
      from "sagabox".queue as front
      where front.lane::bigint = (moving.lane)::bigint and front.stream = moving.stream and front.seq < moving.seq
      order by front.seq limit 1
  ) as ahead on true
  join "sagabox".consumer_group on consumer_group.id = moving.lane / 256
  where moving.lane = any(array(select known.id * 256 + $2::integer from "sagabox".consumer_group as known))
    and moving.message_id = $1::text
  order by consumer_group.name;

-- sagabox.explain.receipts: for roles that may read contents
select relay, to_char(sent_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as sent_at from "sagabox".receipt
  where lane = $1::integer and last_seq >= $2::text::bigint and first_seq <= $2::text::bigint
    and $2::text::bigint = any(seqs)
  order by sent_at limit 20;

-- sagabox.explain.groups: for roles that may read contents
select consumer_group.name, to_char(subscription.created_at at time zone 'UTC',
    'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as since
  from "sagabox".subscription join "sagabox".consumer_group on consumer_group.id = subscription.group_id
  where subscription.topic = $1::text order by consumer_group.name;

-- sagabox.explain.subscriptions: for roles that may read contents
select exists (select 1 from "sagabox".subscription) as known;

-- sagabox.explain.inbox: for roles that may read contents
select inbox.consumer_name as consumer, to_char(inbox.consumed_at at time zone 'UTC',
    'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as consumed_at, inbox.processing_duration_ms, inbox.effect,
    inbox.effect_of, inbox.undone_by
  from (select name from "sagabox".consumer_group
    union select consumer from "sagabox".dead_letter where message_id = $1::text and consumer is not null
    union select unnest($2::text::text[])) as known (name)
  join "sagabox".consumer_inbox as inbox on inbox.consumer_name = known.name and inbox.event_id = $1::text
  order by inbox.consumed_at;

-- sagabox.explain.letters: for roles that may read contents
select id::text, origin, consumer, reason, attempts, error_type, left(error_message, 500) as error_message,
    to_char(failed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as failed_at,
        to_char(closed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as closed_at, closed_as
  from "sagabox".dead_letter as letter where message_id = $1::text order by letter.id;

-- sagabox.explain.saga: for roles that may read contents
select id, saga_type as type, status, current_step from "sagabox".saga_instance where id = $1::text;

-- sagabox.explain.actions: for roles that may read contents
select to_char(log.timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at, log.actor, log.action,
    log.reason, log.outcome
  from "sagabox".audit_log as log
  where (log.target_kind = 'message' and log.target_id = $1::text)
    or (log.target_kind = 'dead_letter' and log.target_id = any($2::text::text[]))
  order by log.timestamp limit 100;

-- sagabox.explain.message_masked: for roles that may not read contents
select * from (
  select 1 as rank, id, kind, type, schema_version, topic, null::text as key, saga_id, correlation_id, causation_id,
      traceparent,
      source, priority, lane::integer, seq::text, '{}' as headers,
      (select masked.data_bytes from "sagabox".masked_message as masked where masked.id = message.id
          and masked.written_on = message.written_on) as bytes, to_char(written_at at time zone 'UTC',
          'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as written_at,
      to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as expires_at,
          null::text as scheduled_for, to_char(written_on, 'YYYY-MM-DD') as written_on
    from "sagabox".message where id = $1::text
  union all
  select 2, id, kind, type, schema_version, topic, null::text as key, saga_id, correlation_id, causation_id,
      traceparent, source,
      priority, lane::integer, null, '{}' as headers,
          (select masked.data_bytes from "sagabox".masked_scheduled as masked where masked.id = scheduled.id),
          to_char(written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
          to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
      to_char(due_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), null
    from "sagabox".scheduled where id = $1::text
  union all
  select 3, message_id, kind, type, schema_version, topic, null::text as key, saga_id, correlation_id, causation_id,
      traceparent,
      source, priority, null, null, '{}' as headers,
          (select masked.data_bytes from "sagabox".masked_dead_letter as masked where masked.id = dead_letter.id),
          to_char(written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
          to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), null, null
    from "sagabox".dead_letter where message_id = $1::text
) as found order by rank, written_on desc limit 1;

-- sagabox.explain.outbox_masked: for roles that may not read contents
select moving.lane, moving.seq::text, moving.attempts, moving.max_attempts, moving.again,
    null::text as last_error,
    null::text as consumer,
    case when moving.due_at = 'infinity' then null else to_char(moving.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end as due_at,
    moving.due_at = 'infinity' as held, moving.due_at <= clock_timestamp() as is_due,
    moving.lease_until > clock_timestamp() as optimistic, to_char(moving.expires_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as expires_at,
    owner.worker as owner,
    ahead.message_id as ahead_id, ahead.attempts as ahead_attempts, ahead.last_error as ahead_error,
    case when ahead.due_at = 'infinity' then null else to_char(ahead.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end as ahead_due_at,
    ahead.due_at = 'infinity' as ahead_held
  from "sagabox".outbox as moving
  left join "sagabox".relay_lane as lane on lane.lane = moving.lane
  left join "sagabox".member as owner on owner.id = lane.owner and (owner.lease_until > clock_timestamp()
      and (owner.backend is null or exists (select 1 from pg_stat_get_activity(coalesce(owner.backend, 0)))))
  left join lateral (
    select null::text as message_id, null::smallint as attempts, null::text as last_error, null::timestamptz as due_at
  ) as ahead on true
  where (moving.lane = $2::integer and moving.seq = $3::text::bigint)
    or (moving.again and moving.message_id = $1::text)
  order by moving.seq;

-- sagabox.explain.queue_masked: for roles that may not read contents
select moving.lane, moving.seq::text, moving.attempts, moving.max_attempts, moving.again,
    null::text as last_error,
    "sagabox".consumer_group.name as consumer,
    case when moving.due_at = 'infinity' then null else to_char(moving.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end as due_at,
    moving.due_at = 'infinity' as held, moving.due_at <= clock_timestamp() as is_due,
    moving.lease_until > clock_timestamp() as optimistic, to_char(moving.expires_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as expires_at,
    owner.worker as owner,
    ahead.message_id as ahead_id, ahead.attempts as ahead_attempts, ahead.last_error as ahead_error,
    case when ahead.due_at = 'infinity' then null else to_char(ahead.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end as ahead_due_at,
    ahead.due_at = 'infinity' as ahead_held
  from "sagabox".queue as moving
  left join "sagabox".relay_lane as lane on lane.lane = moving.lane
  left join "sagabox".member as owner on owner.id = lane.owner and (owner.lease_until > clock_timestamp()
      and (owner.backend is null or exists (select 1 from pg_stat_get_activity(coalesce(owner.backend, 0)))))
  left join lateral (
    select null::text as message_id, null::smallint as attempts, null::text as last_error, null::timestamptz as due_at
  ) as ahead on true
  join "sagabox".consumer_group on consumer_group.id = moving.lane / 256
  where moving.lane = any(array(select known.id * 256 + $2::integer from "sagabox".consumer_group as known))
    and moving.message_id = $1::text
  order by consumer_group.name;

-- sagabox.explain.letters_masked: for roles that may not read contents
select id::text, origin, consumer, reason, attempts, error_type, '(its text is for operators)' as error_message,
    to_char(failed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as failed_at,
        to_char(closed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as closed_at, closed_as
  from "sagabox".dead_letter as letter where message_id = $1::text order by letter.id;

-- sagabox.explain.actions_masked: for roles that may not read contents
select null as at, null as actor, null as action, null as reason, null as outcome
  where $1::text is null and $2::text is null and false;

-- sagabox.explain.avoid_full_scans: for roles that may read contents
select set_config('enable_seqscan', 'off', true);

-- sagabox.explain.find_ids: for roles that may read contents
select exists (select 1 from "sagabox".message where id = $1::text)
    or exists (select 1 from "sagabox".scheduled where id = $1::text)
    or exists (select 1 from "sagabox".dead_letter where message_id = $1::text) as message,
    exists (select 1 from "sagabox".saga_instance where id = $1::text) as saga,
    (select message_id from "sagabox".dead_letter where id = $2::text::bigint) as letter;

-- sagabox.explain.find_messages_by_key: for roles that may read contents, by key
select id from (
  select id, written_at from "sagabox".message where (key = $1::text or saga_id = any($3::text::text[]))
  union all
  select id, written_at from "sagabox".scheduled where ((hashtextextended(key, 0) = hashtextextended($1::text, 0)
      and key = $1::text) or saga_id = any($3::text::text[]))
  union all
  select message_id, written_at from "sagabox".dead_letter where ((hashtextextended(key, 0) = hashtextextended($1::text,
      0) and key = $1::text) or saga_id = any($3::text::text[]))
) as found
  group by id order by min(written_at) desc, id desc limit $2::integer;

-- sagabox.explain.find_messages_by_correlationid: for roles that may read contents, by correlation id
select id from (
  select id, written_at from "sagabox".message where correlation_id = $1::text
  union all
  select id, written_at from "sagabox".scheduled where hashtextextended(correlation_id, 0) = hashtextextended($1::text,
      0) and correlation_id = $1::text
  union all
  select message_id, written_at from "sagabox".dead_letter where hashtextextended(correlation_id,
      0) = hashtextextended($1::text, 0) and correlation_id = $1::text
) as found
  group by id order by min(written_at) desc, id desc limit $2::integer;

-- sagabox.explain.find_messages_by_traceid: for roles that may read contents, by trace id
select id from (
  select id, written_at from "sagabox".message where substr(traceparent, 4, 32) = $1::text
  union all
  select id, written_at from "sagabox".scheduled where hashtextextended(substr(traceparent, 4, 32),
      0) = hashtextextended($1::text, 0) and substr(traceparent, 4, 32) = $1::text
  union all
  select message_id, written_at from "sagabox".dead_letter where hashtextextended(substr(traceparent, 4, 32),
      0) = hashtextextended($1::text, 0) and substr(traceparent, 4, 32) = $1::text
) as found
  group by id order by min(written_at) desc, id desc limit $2::integer;

-- sagabox.explain.find_messages_by_sagaid: for roles that may read contents, by saga
select id from (
  select id, written_at from "sagabox".message where saga_id = $1::text
  union all
  select id, written_at from "sagabox".scheduled where saga_id = $1::text
  union all
  select message_id, written_at from "sagabox".dead_letter where saga_id = $1::text
) as found
  group by id order by min(written_at) desc, id desc limit $2::integer;

-- sagabox.explain.find_sagas_by_key: for roles that may read contents
select instance.id from "sagabox".saga_instance as instance where instance.correlation_id = $1::text order by instance.id desc limit $2::integer;

-- sagabox.explain.find_sagas_by_correlation: for roles that may read contents
select instance.id from "sagabox".saga_instance as instance where instance.message_correlation_id = $1::text order by instance.id desc limit $2::integer;

-- sagabox.explain.find_sagas_by_trace: for roles that may read contents
select instance.id from "sagabox".saga_instance as instance where instance.id in (select begun.saga_id from "sagabox".saga_audit_log as begun where begun.trace_id = $1::text
    and begun.version = 1) order by instance.id desc limit $2::integer;

-- sagabox.explain.find_saga: for roles that may read contents
select instance.id, instance.saga_type as type, instance.correlation_id as key, instance.status,
    instance.current_step as "currentStep", instance.waits_for as "waitsFor",
    to_char(instance.waiting_since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "waitingSince",
        instance.last_error as "lastError",
    instance.message_correlation_id as "correlationId", to_char(instance.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "dueAt",
    instance.due_at <= clock_timestamp() as "isDue", instance.claimed_by as "claimedBy",
    instance.claimed_until > clock_timestamp() as "isClaimed", to_char(instance.created_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
    to_char(instance.completed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "completedAt",
    (select count(*)::integer from "sagabox".saga_input as pending
        where pending.saga_id = instance.id) as "pendingInputs"
  from "sagabox".saga_instance as instance where instance.id = $1::text;

-- sagabox.explain.find_history: for roles that may read contents
select to_char(line.timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at, line.event_type as event,
    line.step, line.old_status as "from",
    line.new_status as "to", line.note as note
  from "sagabox".saga_audit_log as line
  where line.saga_id = $1::text and line.event_type <> 'ignored'
  order by line.id limit $2::integer;

-- sagabox.explain.find_messages_by_key_masked: for roles that may not read contents, by key
select id from (
  select id, written_at from "sagabox".message where (key = $1::text or saga_id = any($3::text::text[]))
  union all
  select id, written_at from "sagabox".scheduled where ((hashtextextended(key, 0) = hashtextextended($1::text, 0)
      and key = $1::text) or saga_id = any($3::text::text[]))
  union all
  select message_id, written_at from "sagabox".dead_letter where ((hashtextextended(key, 0) = hashtextextended($1::text,
      0) and key = $1::text) or saga_id = any($3::text::text[]))
) as found
  group by id order by min(written_at) desc, id desc limit $2::integer;

-- sagabox.explain.find_messages_by_correlationid_masked: for roles that may not read contents, by correlation id
select id from (
  select id, written_at from "sagabox".message where correlation_id = $1::text
  union all
  select id, written_at from "sagabox".scheduled where hashtextextended(correlation_id, 0) = hashtextextended($1::text,
      0) and correlation_id = $1::text
  union all
  select message_id, written_at from "sagabox".dead_letter where hashtextextended(correlation_id,
      0) = hashtextextended($1::text, 0) and correlation_id = $1::text
) as found
  group by id order by min(written_at) desc, id desc limit $2::integer;

-- sagabox.explain.find_messages_by_traceid_masked: for roles that may not read contents, by trace id
select id from (
  select id, written_at from "sagabox".message where substr(traceparent, 4, 32) = $1::text
  union all
  select id, written_at from "sagabox".scheduled where hashtextextended(substr(traceparent, 4, 32),
      0) = hashtextextended($1::text, 0) and substr(traceparent, 4, 32) = $1::text
  union all
  select message_id, written_at from "sagabox".dead_letter where hashtextextended(substr(traceparent, 4, 32),
      0) = hashtextextended($1::text, 0) and substr(traceparent, 4, 32) = $1::text
) as found
  group by id order by min(written_at) desc, id desc limit $2::integer;

-- sagabox.explain.find_messages_by_sagaid_masked: for roles that may not read contents, by saga
select id from (
  select id, written_at from "sagabox".message where saga_id = $1::text
  union all
  select id, written_at from "sagabox".scheduled where saga_id = $1::text
  union all
  select message_id, written_at from "sagabox".dead_letter where saga_id = $1::text
) as found
  group by id order by min(written_at) desc, id desc limit $2::integer;

-- sagabox.explain.find_sagas_by_key_masked: for roles that may not read contents
select instance.id from "sagabox".masked_saga_instance as instance where $1::text is null order by instance.id desc limit $2::integer;

-- sagabox.explain.find_sagas_by_correlation_masked: for roles that may not read contents
select instance.id from "sagabox".masked_saga_instance as instance where instance.message_correlation_id = $1::text order by instance.id desc limit $2::integer;

-- sagabox.explain.find_sagas_by_trace_masked: for roles that may not read contents
select instance.id from "sagabox".masked_saga_instance as instance where instance.id in (select begun.saga_id from "sagabox".masked_saga_audit_log as begun where begun.trace_id = $1::text
    and begun.version = 1) order by instance.id desc limit $2::integer;

-- sagabox.explain.find_saga_masked: for roles that may not read contents
select instance.id, instance.saga_type as type, null::text as key, instance.status,
    instance.current_step as "currentStep", instance.waits_for as "waitsFor",
    to_char(instance.waiting_since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "waitingSince",
        null::text as "lastError",
    instance.message_correlation_id as "correlationId", to_char(instance.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "dueAt",
    instance.due_at <= clock_timestamp() as "isDue", instance.claimed_by as "claimedBy",
    instance.claimed_until > clock_timestamp() as "isClaimed", to_char(instance.created_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
    to_char(instance.completed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "completedAt",
    (select count(*)::integer from "sagabox".masked_saga_input as pending
        where pending.saga_id = instance.id) as "pendingInputs"
  from "sagabox".masked_saga_instance as instance where instance.id = $1::text;

-- sagabox.explain.find_history_masked: for roles that may not read contents
select to_char(line.timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at, line.event_type as event,
    line.step, line.old_status as "from",
    line.new_status as "to", null::text as note
  from "sagabox".masked_saga_audit_log as line
  where line.saga_id = $1::text and line.event_type <> 'ignored'
  order by line.id limit $2::integer;

-- ══ src/admin/outbox/statements.ts ═════════════════════════════════════════════════════════════════════════════════

-- sagabox.outbox_admin.open
select has_column_privilege('"sagabox".outbox', 'last_error', 'select')
    and has_column_privilege('"sagabox".message', 'key', 'select')
    and has_table_privilege('"sagabox".audit_log', 'select') as open;

-- sagabox.outbox_admin.list_open: for roles that may read contents
select row.message_id, row.topic, row.type, row.lane, row.seq::text, row.attempts, row.max_attempts, row.again,
    message.key, row.last_error, ahead.message_id as behind,
    case when row.due_at = 'infinity' then null else to_char(row.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end as due_at,
    to_char(message.written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as written_at,
    case when row.due_at = 'infinity' then 'held'
    when row.attempts > 0 then 'failed'
    when row.due_at > clock_timestamp() then 'later' else 'due' end as state
  from (select row.*
      from generate_series(coalesce($4::integer, 0), coalesce($4::integer, 255)) as lane (number)
      cross join lateral (
        select * from (
          select lane, seq, topic, type, message_id, written_on, attempts, max_attempts, due_at, again
              , stream, last_error
            from "sagabox".outbox
            where outbox.lane = lane.number and seq > $6::text::bigint
            order by seq limit 2000) as front
          where ($2::text is null or topic = $2::text) and ($3::text is null or type = $3::text)
            and attempts >= $7::integer and case $5::text
            when 'due' then attempts = 0 and due_at <= clock_timestamp()
            when 'failed' then attempts > 0 and due_at < 'infinity'
            when 'held' then due_at = 'infinity'
            else true end
            and ($8::text is null or exists (select 1 from "sagabox".message as own
                where own.id = front.message_id and own.written_on = front.written_on
                  and own.key = $8::text))
          order by seq limit $1::integer) as row
      order by row.seq limit $1::integer) as row
  left join "sagabox".message on message.id = row.message_id and message.written_on = row.written_on
  left join lateral (
    select front.message_id from "sagabox".outbox as front
      where front.lane::bigint = (row.lane)::bigint and front.stream = row.stream and front.seq < row.seq
      order by front.seq limit 1) as ahead on true
  where message.written_at <= clock_timestamp() - $9::double precision * interval '1 ms'
  order by row.seq;

-- sagabox.outbox_admin.list_masked: for roles that may not read contents
select row.message_id, row.topic, row.type, row.lane, row.seq::text, row.attempts, row.max_attempts, row.again,
    null as key, null as last_error, null as behind,
    case when row.due_at = 'infinity' then null else to_char(row.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end as due_at,
    to_char(message.written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as written_at,
    case when row.due_at = 'infinity' then 'held'
    when row.attempts > 0 then 'failed'
    when row.due_at > clock_timestamp() then 'later' else 'due' end as state
  from (select row.*
      from generate_series(coalesce($4::integer, 0), coalesce($4::integer, 255)) as lane (number)
      cross join lateral (
        select * from (
          select lane, seq, topic, type, message_id, written_on, attempts, max_attempts, due_at, again
            from "sagabox".outbox
            where outbox.lane = lane.number and seq > $6::text::bigint
            order by seq limit 2000) as front
          where ($2::text is null or topic = $2::text) and ($3::text is null or type = $3::text)
            and attempts >= $7::integer and case $5::text
            when 'due' then attempts = 0 and due_at <= clock_timestamp()
            when 'failed' then attempts > 0 and due_at < 'infinity'
            when 'held' then due_at = 'infinity'
            else true end
            and ($8::text is null or false)
          order by seq limit $1::integer) as row
      order by row.seq limit $1::integer) as row
  left join "sagabox".message on message.id = row.message_id and message.written_on = row.written_on
  where message.written_at <= clock_timestamp() - $9::double precision * interval '1 ms'
  order by row.seq;

-- sagabox.outbox_admin.scheduled_open: for roles that may read contents
select id as message_id, topic, type, lane::integer, null as seq, 0 as attempts, max_attempts, false as again,
    key, null as last_error, null as behind, to_char(due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as due_at,
    to_char(written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as written_at, 'scheduled' as state
  from "sagabox".scheduled
  where ($2::text is null or topic = $2::text) and ($3::text is null or type = $3::text)
    and true
  order by scheduled.due_at, id limit $1::integer;

-- sagabox.outbox_admin.scheduled_masked: for roles that may not read contents
select id as message_id, topic, type, lane::integer, null as seq, 0 as attempts, max_attempts, false as again,
    null as key, null as last_error, null as behind, to_char(due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as due_at,
    to_char(written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as written_at, 'scheduled' as state
  from "sagabox".scheduled
  where ($2::text is null or topic = $2::text) and ($3::text is null or type = $3::text)
    and true
  order by scheduled.due_at, id limit $1::integer;

-- sagabox.outbox_admin.scheduled_by_key
select id as message_id, topic, type, lane::integer, null as seq, 0 as attempts, max_attempts, false as again,
    key, null as last_error, null as behind, to_char(due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as due_at,
    to_char(written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as written_at, 'scheduled' as state
  from "sagabox".scheduled
  where ($2::text is null or topic = $2::text) and ($3::text is null or type = $3::text)
    and hashtextextended(key, 0) = hashtextextended($4::text, 0) and key = $4::text
  order by scheduled.due_at, id limit $1::integer;

-- sagabox.outbox_admin.retry_now
select retried_lane as lane, tried as attempts, to_char(was_due at time zone 'UTC',
    'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as was_due
  from "sagabox".outbox_retry_now($1::text);

-- sagabox.outbox_admin.archive_from
select min(to_date(right(relname, 8), 'YYYYMMDD'))::text as day
  from pg_class
  where relnamespace = $1::text::regnamespace and relkind = 'r' and relispartition
    and relname ~ '^message_[0-9]{8}$';

-- sagabox.outbox_admin.stats
with seen as materialized (
  select topic, type, attempts, due_at from "sagabox".outbox limit $1::integer
), later as materialized (
  select topic, type, due_at from "sagabox".scheduled limit $1::integer
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
  limit 1000;

-- ══ src/admin/overview/statements.ts ═══════════════════════════════════════════════════════════════════════════════

-- sagabox.overview.outbox
with seen as materialized (
  select due_at, attempts from "sagabox".outbox limit $1::integer
), later as materialized (
  select 1 from "sagabox".scheduled limit $1::integer
)
select count(*) filter (where due_at < 'infinity')::integer as waiting,
    count(*) filter (where attempts > 0 and due_at < 'infinity')::integer as failed,
    count(*) filter (where attempts >= 3 and due_at < 'infinity')::integer as stubborn,
    count(*) < $1::integer as exact,
    (select (extract(epoch from clock_timestamp() - min(head.due_at)))::double precision
        from generate_series(0, 255) as lane (number)
        cross join lateral (
          select due_at from "sagabox".outbox
            where outbox.lane = lane.number and due_at < 'infinity'
            order by seq limit 4) as head
        where head.due_at <= clock_timestamp()) as oldest_due_seconds,
    (select count(*)::integer from later) as scheduled,
    (select (extract(epoch from clock_timestamp() - due_at))::double precision from "sagabox".scheduled order by due_at,
        id limit 1) as schedule_late_seconds
  from seen;

-- sagabox.overview.dead_letters
select count(*)::integer as open, count(*) < $1::integer as exact,
    count(*) filter (where held_lane is not null)::integer as held_keys
  from (select held_lane from "sagabox".dead_letter where closed_at is null limit $1::integer) as letter;

-- sagabox.overview.lanes
select lane.scope, owner.worker, count(*)::integer as lanes
  from "sagabox".relay_lane as lane
  left join "sagabox".member as owner on owner.id = lane.owner and (owner.lease_until > clock_timestamp()
      and (owner.backend is null or exists (select 1 from pg_stat_get_activity(coalesce(owner.backend, 0)))))
  group by lane.scope, owner.worker
  order by lane.scope, owner.worker nulls last;

-- sagabox.overview.traces
select exists (select 1 from "sagabox".member) or exists (select 1 from "sagabox".receipt)
    or exists (select 1 from "sagabox".consumer_group)
    or exists (select 1 from "sagabox".conservation where checked_at is not null) as has_run;

-- sagabox.overview.workers
select worker, coalesce(bool_or((member.lease_until > clock_timestamp() and (member.backend is null
    or exists (select 1 from pg_stat_get_activity(coalesce(member.backend, 0)))))) filter (where backend is not null),
      bool_or((member.lease_until > clock_timestamp() and (member.backend is null
          or exists (select 1 from pg_stat_get_activity(coalesce(member.backend, 0))))))) as live,
          count(*)::integer as parts,
    to_char(min(joined_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since,
    greatest(0, (extract(epoch from clock_timestamp() - max(lease_until)))::double precision) as gone_seconds
  from "sagabox".member
  group by worker
  order by worker
  limit 500;

-- sagabox.overview.consumers
select one.id, one.name,
    (select count(*)::integer from "sagabox".subscription where group_id = one.id) as topics,
    (select count(*) filter (where attempts > 0)::integer
        from (select row.attempts
            from generate_series(one.id * 256, one.id * 256 + 255) as lane (number)
            cross join lateral (
              select attempts from "sagabox".queue
                where queue.lane = lane.number and due_at < 'infinity' order by seq) as row
            limit $1::integer) as counted) as failed
  from (select id, name from "sagabox".consumer_group order by name limit 500) as one
  order by one.name;

-- sagabox.overview.sagas
select status, count(*)::integer as count
  from (select status from "sagabox".saga_instance where completed_at is null limit $1::integer) as open
  group by status;

-- sagabox.overview.unread
with owned as materialized (
  select lane.lane, lane.scope, owner.worker
    from "sagabox".relay_lane as lane
    join "sagabox".member as owner on owner.id = lane.owner and owner.lease_until > clock_timestamp()
    where lane.leased_at < clock_timestamp() - interval '2 minutes'
), late as materialized (
  select * from (
    select owned.lane, owned.scope, owned.worker, head.topic, head.due_at, head.written_on
      from owned
      cross join lateral (
        select topic, due_at, lease_until, written_on from "sagabox".outbox as row
          where owned.scope = 0 and row.lane = owned.lane
          order by row.seq limit 1) as head
      where head.due_at < clock_timestamp() - interval '2 minutes' and (head.lease_until is null
          or head.lease_until < clock_timestamp() - interval '2 minutes')
    union all
    select owned.lane, owned.scope, owned.worker, head.topic, head.due_at, head.written_on
      from owned
      cross join lateral (
        select topic, due_at, lease_until, written_on from "sagabox".queue as row
          where owned.scope > 0 and row.lane = owned.lane
          order by row.seq limit 1) as head
      where head.due_at < clock_timestamp() - interval '2 minutes' and (head.lease_until is null
          or head.lease_until < clock_timestamp() - interval '2 minutes')) as head
    order by due_at limit 20
)
select late.lane, late.worker, known.name as consumer,
    (extract(epoch from clock_timestamp() - late.due_at))::double precision as waiting_seconds
  from late
  left join "sagabox".consumer_group as known on known.id = late.scope
  where case when late.scope = 0 then not exists (
    select 1 from (select sent_at from "sagabox".receipt
        where receipt.lane = late.lane and sent_on >= (clock_timestamp() - interval '2 minutes')::date - 1
        order by last_seq desc limit 20) as last
      where last.sent_at > clock_timestamp() - interval '2 minutes')
    and exists (
      select 1 from (select lane, seq, topic from "sagabox".message
          where written_on >= late.written_on and written_at > late.due_at limit 1000) as later
        where later.topic = late.topic and later.lane <> late.lane
          and not exists (select 1 from "sagabox".outbox as row where row.lane = later.lane
              and row.seq = later.seq)) else (select coalesce(bool_and(done.lane <> late.lane % 256), false)
                and coalesce(bool_or(done.topic = late.topic and done.written_at > late.due_at), false)
              from (select event_id from "sagabox".consumer_inbox
                  where consumer_name = known.name
                      and consumed_at > clock_timestamp() - interval '2 minutes' limit 1000) as lately
              join "sagabox".message as done on done.id = lately.event_id
                  and done.written_on >= late.written_on - 1) end
  order by late.due_at, late.lane;

-- sagabox.overview.version
select version, name, to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as now
  from "sagabox".schema_migration order by version desc limit 1;

-- ══ src/admin/roles/statements.ts ══════════════════════════════════════════════════════════════════════════════════

-- rolesScript: the output of `sagabox roles sql`
-- The roles of sagabox and their rights on schema "sagabox". Run it after every migration; running it again is harmless.
-- It needs a superuser, or a role that may create roles and owns the schema.
begin;
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '10s';

do $roles$
declare
  wanted text;
begin
  foreach wanted in array array['sagabox_owner', 'sagabox_publisher', 'sagabox_writer', 'sagabox_relay', 'sagabox_consumer', 'sagabox_saga', 'sagabox_worker', 'sagabox_viewer', 'sagabox_operator', 'sagabox_privacy'] loop
    begin
      execute format('create role %I nologin', wanted);
    exception when duplicate_object or unique_violation then null;
    end;
  end loop;
end
$roles$;

-- The owner role owns everything. A user without superuser rights must be a member of it to transfer ownership.
do $owner$
declare
  thing record;
begin
  if not (select rolsuper from pg_roles where rolname = current_user)
     and not pg_has_role(current_user, '"sagabox_owner"'::regrole::oid, 'USAGE') then
    execute format('grant %s to %I', '"sagabox_owner"'::regrole, current_user);
  end if;
  if (select nspowner from pg_namespace where oid = '"sagabox"'::regnamespace) <> '"sagabox_owner"'::regrole then
    execute format('alter schema %s owner to %s', '"sagabox"'::regnamespace, '"sagabox_owner"'::regrole);
  end if;
  for thing in
    select 'table' as kind, class.oid::regclass::text as name
      from pg_class as class
     where class.relnamespace = '"sagabox"'::regnamespace and class.relkind in ('r', 'p', 'v', 'S')
       and class.relowner <> '"sagabox_owner"'::regrole
       and not (class.relkind = 'S' and exists (
             select 1 from pg_depend
              where classid = 'pg_class'::regclass and objid = class.oid and deptype in ('a', 'i')))
    union all
    select 'function', proc.oid::regprocedure::text
      from pg_proc as proc
     where proc.pronamespace = '"sagabox"'::regnamespace and proc.proowner <> '"sagabox_owner"'::regrole
  loop
    execute format('alter %s %s owner to %s', thing.kind, thing.name, '"sagabox_owner"'::regrole);
  end loop;
end
$owner$;

-- Revokes all rights first, so that a right that is no longer in the list is removed.
revoke all on schema "sagabox" from public, "sagabox_publisher", "sagabox_writer", "sagabox_relay", "sagabox_consumer", "sagabox_saga", "sagabox_worker", "sagabox_viewer", "sagabox_operator", "sagabox_privacy";
revoke all on all tables in schema "sagabox" from public, "sagabox_publisher", "sagabox_writer", "sagabox_relay", "sagabox_consumer", "sagabox_saga", "sagabox_worker", "sagabox_viewer", "sagabox_operator", "sagabox_privacy";
revoke all on all sequences in schema "sagabox" from public, "sagabox_publisher", "sagabox_writer", "sagabox_relay", "sagabox_consumer", "sagabox_saga", "sagabox_worker", "sagabox_viewer", "sagabox_operator", "sagabox_privacy";
revoke all on all functions in schema "sagabox" from public, "sagabox_publisher", "sagabox_writer", "sagabox_relay", "sagabox_consumer", "sagabox_saga", "sagabox_worker", "sagabox_viewer", "sagabox_operator", "sagabox_privacy";
grant usage on schema "sagabox" to "sagabox_publisher", "sagabox_writer", "sagabox_relay", "sagabox_consumer", "sagabox_saga", "sagabox_worker", "sagabox_viewer", "sagabox_operator", "sagabox_privacy";
grant "sagabox_publisher" to "sagabox_writer";
grant "sagabox_writer" to "sagabox_consumer";
grant "sagabox_consumer" to "sagabox_saga";
grant "sagabox_relay" to "sagabox_worker";
grant "sagabox_saga" to "sagabox_worker";
grant "sagabox_viewer" to "sagabox_operator";
grant "sagabox_writer" to "sagabox_privacy";

grant execute on function "sagabox"."publish" to "sagabox_publisher";
grant execute on function "sagabox"."wake_relays" to "sagabox_publisher";
grant select on table "sagabox"."schema_migration" to "sagabox_writer";
grant insert, select ("id", "seq") on table "sagabox"."message" to "sagabox_writer";
grant insert on table "sagabox"."outbox" to "sagabox_writer";
grant usage on sequence "sagabox"."outbox_seq" to "sagabox_writer";
grant insert, select ("id") on table "sagabox"."scheduled" to "sagabox_writer";
grant execute on function "sagabox"."has_message" to "sagabox_writer";
grant insert, select ("id") on table "sagabox"."published_id" to "sagabox_writer";
grant insert ("key_id", "subject", "wrapped", "kek_id"), select ("key_id", "subject", "wrapped", "kek_id", "created_xid", "created_at", "erased_at") on table "sagabox"."subject_key" to "sagabox_writer";
grant insert ("fingerprint"), select ("id", "fingerprint", "xid") on table "sagabox"."index_fingerprint" to "sagabox_writer";
grant select, insert ("type", "service", "fields"), update ("fields", "registered_at") on table "sagabox"."personal_type" to "sagabox_writer";
grant select ("id") on table "sagabox"."blob_home" to "sagabox_writer";
grant insert, select ("key", "doomed_at"), update ("bytes", "sha256", "stored_at") on table "sagabox"."blob" to "sagabox_writer";
grant insert, select ("key", "used_by") on table "sagabox"."blob_use" to "sagabox_writer";
grant insert on table "sagabox"."blob_chunk" to "sagabox_writer";
grant select on table "sagabox"."schema_migration" to "sagabox_relay";
grant select, insert, update ("lease_until", "backend"), delete on table "sagabox"."member" to "sagabox_relay";
grant select, update ("owner", "fence", "token", "leased_at") on table "sagabox"."relay_lane" to "sagabox_relay";
grant select, insert, update ("transport", "claimed_at", "measured_at", "lags") on table "sagabox"."consumer_lag" to "sagabox_relay";
grant select ("id", "name") on table "sagabox"."consumer_group" to "sagabox_relay";
grant select ("topic", "group_id") on table "sagabox"."subscription" to "sagabox_relay";
grant select ("lane", "seq", "topic", "due_at"), insert on table "sagabox"."queue" to "sagabox_relay";
grant select, insert on table "sagabox"."message" to "sagabox_relay";
grant select, update ("attempts", "due_at", "lease_until", "last_error"), delete, insert on table "sagabox"."outbox" to "sagabox_relay";
grant usage, select on sequence "sagabox"."outbox_seq" to "sagabox_relay";
grant select, update ("due_at"), delete on table "sagabox"."scheduled" to "sagabox_relay";
grant insert on table "sagabox"."receipt" to "sagabox_relay";
grant insert, select ("closed_at", "failed_at", "consumer", "type") on table "sagabox"."dead_letter" to "sagabox_relay";
grant usage on sequence "sagabox"."queue_seq" to "sagabox_relay";
grant select, insert, update ("lease_until", "backend"), delete on table "sagabox"."member" to "sagabox_consumer";
grant select, update ("owner", "fence", "token", "leased_at"), insert on table "sagabox"."relay_lane" to "sagabox_consumer";
grant select, insert, update ("transport", "claimed_at", "measured_at", "lags") on table "sagabox"."consumer_lag" to "sagabox_consumer";
grant select, insert on table "sagabox"."consumer_group" to "sagabox_consumer";
grant select, insert on table "sagabox"."subscription" to "sagabox_consumer";
grant select, insert, update ("attempts", "last_error", "due_at"), delete on table "sagabox"."queue" to "sagabox_consumer";
grant select on table "sagabox"."message" to "sagabox_consumer";
grant select on table "sagabox"."blob_chunk" to "sagabox_consumer";
grant select on table "sagabox"."retired_subscription" to "sagabox_consumer";
grant execute on function "sagabox"."lock_subscriptions" to "sagabox_consumer";
grant select ("lane", "seq") on table "sagabox"."outbox" to "sagabox_consumer";
grant usage, select on sequence "sagabox"."queue_seq" to "sagabox_consumer";
grant select, insert, update ("processing_duration_ms", "result", "effect", "effect_of", "undone_by") on table "sagabox"."consumer_inbox" to "sagabox_consumer";
grant select, insert, update ("event_ids", "alone", "started_at"), delete on table "sagabox"."running" to "sagabox_consumer";
grant select, insert, update ("crashes", "noticed_at"), delete on table "sagabox"."suspect" to "sagabox_consumer";
grant insert, select ("id", "message_id", "origin", "consumer", "closed_at", "reason", "error_message") on table "sagabox"."dead_letter" to "sagabox_consumer";
grant select, insert, update ("outcome", "body", "arrived_at") on table "sagabox"."reply" to "sagabox_consumer";
grant select, insert, update ("open") on table "sagabox"."flow_event" to "sagabox_consumer";
grant select, insert, update ("status", "state", "current_step", "waits_for", "waiting_since", "last_error", "retry_count", "due_at", "version", "claims", "updated_at", "completed_at", "claimed_by", "claimed_until", "attachments") on table "sagabox"."saga_instance" to "sagabox_saga";
grant select, insert, update ("saga_id", "correlation_id"), delete on table "sagabox"."saga_input" to "sagabox_saga";
grant select, insert, update ("steps", "error", "closed_at", "resolution") on table "sagabox"."saga_incident" to "sagabox_saga";
grant select ("message_id", "origin", "closed_at"), update ("closed_at", "closed_as") on table "sagabox"."dead_letter" to "sagabox_saga";
grant insert ("saga_id", "version", "event_type", "step", "old_status", "new_status", "note", "cause", "user_id", "reason", "trace_id", "input", "metadata", "old_state", "new_state") on table "sagabox"."saga_audit_log" to "sagabox_saga";
grant usage on sequence "sagabox"."saga_audit_log_seq" to "sagabox_saga";
grant select, insert ("saga_type", "version", "hash", "structure"), update ("hash", "structure", "registered_at") on table "sagabox"."saga_definition" to "sagabox_saga";
grant select on table "sagabox"."schema_migration" to "sagabox_viewer";
grant select on table "sagabox"."masked_message" to "sagabox_viewer";
grant select on table "sagabox"."masked_outbox_events" to "sagabox_viewer";
grant select on table "sagabox"."masked_outbox" to "sagabox_viewer";
grant select on table "sagabox"."masked_scheduled" to "sagabox_viewer";
grant select on table "sagabox"."masked_queue" to "sagabox_viewer";
grant select on table "sagabox"."masked_consumer_inbox" to "sagabox_viewer";
grant select on table "sagabox"."masked_dead_letter" to "sagabox_viewer";
grant select on table "sagabox"."masked_reply" to "sagabox_viewer";
grant select on table "sagabox"."masked_flow_event" to "sagabox_viewer";
grant select on table "sagabox"."masked_saga_instance" to "sagabox_viewer";
grant select on table "sagabox"."masked_saga_input" to "sagabox_viewer";
grant select on table "sagabox"."masked_saga_incident" to "sagabox_viewer";
grant select on table "sagabox"."masked_saga_audit_log" to "sagabox_viewer";
grant select on table "sagabox"."masked_audit_log" to "sagabox_viewer";
grant select on table "sagabox"."masked_audit_seal" to "sagabox_viewer";
grant select on table "sagabox"."masked_blob" to "sagabox_viewer";
grant select on table "sagabox"."masked_subject_key" to "sagabox_viewer";
grant select on table "sagabox"."masked_erasure" to "sagabox_viewer";
grant select on table "sagabox"."consumer_group" to "sagabox_viewer";
grant select on table "sagabox"."subscription" to "sagabox_viewer";
grant select on table "sagabox"."consumer_lag" to "sagabox_viewer";
grant select on table "sagabox"."receipt" to "sagabox_viewer";
grant select on table "sagabox"."member" to "sagabox_viewer";
grant select ("lane", "scope", "owner", "leased_at") on table "sagabox"."relay_lane" to "sagabox_viewer";
grant select on table "sagabox"."conservation" to "sagabox_viewer";
grant select ("lane", "seq", "topic", "type", "message_id", "written_on", "priority", "attempts", "max_attempts", "due_at", "lease_until", "expires_at", "again") on table "sagabox"."outbox" to "sagabox_viewer";
grant select ("id", "due_at", "kind", "type", "schema_version", "topic", "saga_id", "correlation_id", "causation_id", "traceparent", "source", "priority", "max_attempts", "lane", "written_at", "expires_at") on table "sagabox"."scheduled" to "sagabox_viewer";
grant select ("lane", "seq", "topic", "type", "message_id", "written_on", "priority", "attempts", "max_attempts", "due_at", "lease_until", "expires_at", "again") on table "sagabox"."queue" to "sagabox_viewer";
grant select ("id", "kind", "type", "schema_version", "topic", "saga_id", "correlation_id", "causation_id", "traceparent", "source", "priority", "max_attempts", "lane", "seq", "written_on", "written_at", "expires_at") on table "sagabox"."message" to "sagabox_viewer";
grant select ("consumer_name", "event_id", "source_topic", "event_type", "consumed_at", "processing_duration_ms", "effect", "effect_of", "undone_by") on table "sagabox"."consumer_inbox" to "sagabox_viewer";
grant select ("id", "origin", "consumer", "message_id", "kind", "type", "schema_version", "topic", "saga_id", "correlation_id", "causation_id", "traceparent", "source", "priority", "attempts", "max_attempts", "reason", "error_type", "written_at", "expires_at", "failed_at", "closed_at", "closed_as", "held_lane") on table "sagabox"."dead_letter" to "sagabox_viewer";
grant select ("id", "saga_type", "status", "current_step", "completed_at") on table "sagabox"."saga_instance" to "sagabox_viewer";
grant select, update ("closed_at", "closed_as", "fingerprint", "key_order") on table "sagabox"."dead_letter" to "sagabox_operator";
grant select, insert ("dead_letter_id", "actor", "reason", "before_hash", "after_hash", "contract") on table "sagabox"."dead_letter_edit" to "sagabox_operator";
grant execute on function "sagabox"."dead_letter_rearm" to "sagabox_operator";
grant execute on function "sagabox"."dead_letter_free_key" to "sagabox_operator";
grant execute on function "sagabox"."dead_letter_keep_copy" to "sagabox_operator";
grant execute on function "sagabox"."dead_letter_move_row" to "sagabox_operator";
grant execute on function "sagabox"."dead_letter_bury_delivery" to "sagabox_operator";
grant execute on function "sagabox"."dead_letter_bury_waiting" to "sagabox_operator";
grant select ("id", "kind", "type", "schema_version", "topic", "key", "saga_id", "correlation_id", "causation_id", "traceparent", "source", "priority", "max_attempts", "lane", "stream", "headers", "written_at", "expires_at", "seq", "written_on", "ctid") on table "sagabox"."message" to "sagabox_operator";
grant select ("id", "kind", "type", "schema_version", "topic", "key", "saga_id", "correlation_id", "causation_id", "traceparent", "source", "priority", "max_attempts", "lane", "stream", "headers", "written_at", "expires_at", "due_at") on table "sagabox"."scheduled" to "sagabox_operator";
grant insert, select on table "sagabox"."outbox" to "sagabox_operator";
grant usage on sequence "sagabox"."outbox_seq" to "sagabox_operator";
grant execute on function "sagabox"."outbox_keep_writers_out" to "sagabox_operator";
grant execute on function "sagabox"."outbox_send_again" to "sagabox_operator";
grant execute on function "sagabox"."outbox_retry_now" to "sagabox_operator";
grant insert, select on table "sagabox"."queue" to "sagabox_operator";
grant usage on sequence "sagabox"."queue_seq" to "sagabox_operator";
grant execute on function "sagabox"."retire_consumer" to "sagabox_operator";
grant execute on function "sagabox"."lock_subscriptions" to "sagabox_operator";
grant select ("ctid", "consumer_name", "event_id", "consumed_at", "processing_duration_ms", "effect", "effect_of", "undone_by") on table "sagabox"."consumer_inbox" to "sagabox_operator";
grant select, update ("open") on table "sagabox"."flow_event" to "sagabox_operator";
grant select, update ("updated_at") on table "sagabox"."saga_instance" to "sagabox_operator";
grant select, insert on table "sagabox"."saga_input" to "sagabox_operator";
grant select on table "sagabox"."saga_incident" to "sagabox_operator";
grant select on table "sagabox"."saga_definition" to "sagabox_operator";
grant select, insert ("saga_id", "version", "event_type", "step", "old_status", "new_status", "note", "cause", "user_id", "reason", "trace_id", "input", "metadata", "old_state", "new_state") on table "sagabox"."saga_audit_log" to "sagabox_operator";
grant usage on sequence "sagabox"."saga_audit_log_seq" to "sagabox_operator";
grant select, insert ("actor", "action", "target_kind", "target_id", "reason", "trace_id", "before", "after", "outcome", "error_code") on table "sagabox"."audit_log" to "sagabox_operator";
grant usage on sequence "sagabox"."audit_log_seq" to "sagabox_operator";
grant select on table "sagabox"."audit_seal" to "sagabox_operator";
grant select, insert ("key_id", "subject", "created_at", "erased_at"), update ("wrapped", "kek_id", "erased_at") on table "sagabox"."subject_key" to "sagabox_privacy";
grant select, insert ("subject", "erased_at", "reason", "actor", "key_ids", "to_scrub", "scrubbed", "proof", "swept_at"), update ("key_ids", "to_scrub", "proof", "scrubbed", "swept_at") on table "sagabox"."gdpr_erasure_log" to "sagabox_privacy";
grant select, insert, update ("released_at", "released_by", "release_reason") on table "sagabox"."legal_hold" to "sagabox_privacy";
grant select on table "sagabox"."message" to "sagabox_privacy";
grant select on table "sagabox"."scheduled" to "sagabox_privacy";
grant select, update ("error_message", "stack_trace") on table "sagabox"."dead_letter" to "sagabox_privacy";
grant select, update ("result") on table "sagabox"."consumer_inbox" to "sagabox_privacy";
grant select ("message_id", "written_on", "last_error"), update ("last_error") on table "sagabox"."outbox" to "sagabox_privacy";
grant select ("message_id", "written_on", "last_error"), update ("last_error") on table "sagabox"."queue" to "sagabox_privacy";
grant select ("request_id", "outcome", "body"), update ("body") on table "sagabox"."reply" to "sagabox_privacy";
grant select on table "sagabox"."blob_chunk" to "sagabox_privacy";
grant select, update ("status", "due_at", "claimed_by", "claimed_until", "claims", "version", "updated_at", "last_error", "completed_at") on table "sagabox"."saga_instance" to "sagabox_privacy";
grant select on table "sagabox"."saga_input" to "sagabox_privacy";
grant select, insert, update ("error", "closed_at", "resolution") on table "sagabox"."saga_incident" to "sagabox_privacy";
grant insert ("saga_id", "version", "event_type", "step", "old_status", "new_status", "note", "cause", "user_id", "reason", "trace_id", "input", "metadata", "old_state", "new_state"), select ("saga_id") on table "sagabox"."saga_audit_log" to "sagabox_privacy";
grant usage on sequence "sagabox"."saga_audit_log_seq" to "sagabox_privacy";
grant insert ("actor", "action", "target_kind", "target_id", "reason", "trace_id", "before", "after", "outcome", "error_code") on table "sagabox"."audit_log" to "sagabox_privacy";
grant usage on sequence "sagabox"."audit_log_seq" to "sagabox_privacy";
commit;

-- Optional: lets `sagabox doctor` report long transactions of other users to operators. The right covers the whole server,
-- including the text of queries, and only a superuser or an administrator of that role can grant it:
-- grant pg_read_all_stats to "sagabox_operator";

-- sagabox.roles.lacking
select wanted.name, wanted.privilege, wanted."column", current_user as role
  from json_to_recordset($2::json) as wanted (kind text, name text, privilege text, "column" text)
  where not coalesce(
        case wanted.kind
        when 'function' then (
          select has_function_privilege(proc.oid, 'execute') from pg_proc as proc
            where proc.pronamespace = $1::text::regnamespace and proc.proname = wanted.name)
        else (
          select case
              when wanted.kind = 'sequence' then has_sequence_privilege(class.oid, wanted.privilege)
              when wanted."column" is null then has_table_privilege(class.oid, wanted.privilege)
              else has_column_privilege(class.oid, wanted."column", wanted.privilege)
              end
            from pg_class as class
            where class.relnamespace = $1::text::regnamespace and class.relname = wanted.name)
        end, true);

-- sagabox.roles.owns
select pg_has_role(class.relowner, 'USAGE') as owns, current_user as role
  from pg_class as class
  where class.relnamespace = $1::text::regnamespace and class.relname = 'message';

-- ══ src/admin/sagas/statements.ts ══════════════════════════════════════════════════════════════════════════════════

-- sagabox.admin.list_sagas: without a filter
select instance.id, instance.saga_type as type, instance.definition_version as "definitionVersion",
    instance.correlation_id as key, instance.status, instance.current_step as "currentStep",
    instance.waits_for as "waitsFor", to_char(instance.waiting_since at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "waitingSince", instance.version,
    instance.last_error as "lastError", instance.retry_count as "retryCount", instance.trace_id as "traceId",
    instance.message_correlation_id as "correlationId", instance.parent_id as "parentId",
    instance.parent_step as "parentStep", to_char(instance.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "dueAt", instance.claimed_by as "claimedBy",
    to_char(instance.claimed_until at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "claimedUntil",
        to_char(instance.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
    to_char(instance.updated_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "updatedAt",
        to_char(instance.completed_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "completedAt" from "sagabox".saga_instance as instance  order by instance.id desc limit $1::integer;

-- sagabox.admin.list_sagas: with every filter
select instance.id, instance.saga_type as type, instance.definition_version as "definitionVersion",
    instance.correlation_id as key, instance.status, instance.current_step as "currentStep",
    instance.waits_for as "waitsFor", to_char(instance.waiting_since at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "waitingSince", instance.version,
    instance.last_error as "lastError", instance.retry_count as "retryCount", instance.trace_id as "traceId",
    instance.message_correlation_id as "correlationId", instance.parent_id as "parentId",
    instance.parent_step as "parentStep", to_char(instance.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "dueAt", instance.claimed_by as "claimedBy",
    to_char(instance.claimed_until at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "claimedUntil",
        to_char(instance.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
    to_char(instance.updated_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "updatedAt",
        to_char(instance.completed_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "completedAt" from "sagabox".saga_instance as instance where instance.saga_type = $2::text
        and instance.status = $3::text and (instance.current_step = $4::text or split_part(instance.current_step, '@',
        1) = $4::text) and instance.correlation_id = $5::text and instance.message_correlation_id = $6::text
        and instance.created_at < clock_timestamp() - $7::double precision * interval '1 ms'
        and instance.id < $8::text order by instance.id desc limit $1::integer;

-- sagabox.admin.show_saga
select instance.id, instance.saga_type as type, instance.definition_version as "definitionVersion",
    instance.correlation_id as key, instance.status, instance.current_step as "currentStep",
    instance.waits_for as "waitsFor", to_char(instance.waiting_since at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "waitingSince", instance.version,
    instance.last_error as "lastError", instance.retry_count as "retryCount", instance.trace_id as "traceId",
    instance.message_correlation_id as "correlationId", instance.parent_id as "parentId",
    instance.parent_step as "parentStep", to_char(instance.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "dueAt", instance.claimed_by as "claimedBy",
    to_char(instance.claimed_until at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "claimedUntil",
        to_char(instance.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
    to_char(instance.updated_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "updatedAt",
        to_char(instance.completed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "completedAt",
        instance.input::text as input, instance.state::text as state,
    (select count(*)::integer from "sagabox".saga_input as pending where pending.saga_id = instance.id) as "pendingInputs"
  from "sagabox".saga_instance as instance where instance.id = $1::text;

-- sagabox.admin.children
select instance.id, instance.saga_type as type, instance.definition_version as "definitionVersion",
    instance.correlation_id as key, instance.status, instance.current_step as "currentStep",
    instance.waits_for as "waitsFor", to_char(instance.waiting_since at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "waitingSince", instance.version,
    instance.last_error as "lastError", instance.retry_count as "retryCount", instance.trace_id as "traceId",
    instance.message_correlation_id as "correlationId", instance.parent_id as "parentId",
    instance.parent_step as "parentStep", to_char(instance.due_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "dueAt", instance.claimed_by as "claimedBy",
    to_char(instance.claimed_until at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "claimedUntil",
        to_char(instance.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
    to_char(instance.updated_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "updatedAt",
        to_char(instance.completed_at at time zone 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "completedAt" from "sagabox".saga_instance as instance where instance.parent_id = $1::text order by instance.id limit 1000;

-- sagabox.admin.history
select line.id::text, to_char(line.timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at, line.version,
    line.event_type as event, line.step,
    line.old_status as "from", line.new_status as "to", line.note, line.cause, line.user_id as actor,
    line.reason, line.trace_id as "traceId", line.input::text as input, line.old_state::text as "oldState",
    line.new_state::text as "newState"
  from "sagabox".saga_audit_log as line
  where line.saga_id = $1::text and line.id > $2::bigint
  order by line.id limit $3::integer;

-- sagabox.admin.saga_exists
select instance.id from "sagabox".saga_instance as instance where instance.id = $1::text;

-- sagabox.admin.signal_heard
select line.id from "sagabox".saga_audit_log as line
  where line.saga_id = $1::text and line.cause = $2::text limit 1;

-- sagabox.admin.incidents
select incident.id::text, incident.saga_id as "sagaId", instance.saga_type as type,
    instance.correlation_id as key, to_json(incident.steps)::text as steps, incident.error,
    to_char(incident.opened_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "openedAt",
        to_char(incident.closed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "closedAt",
        incident.resolution,
    instance.version, case when incident.closed_at is null then instance.state::text end as state
  from "sagabox".saga_incident as incident
  join "sagabox".saga_instance as instance on instance.id = incident.saga_id
  where ($2::boolean is null or (incident.closed_at is null) = $2::boolean)
    and ($3::text is null or instance.saga_type = $3::text)
    and ($4::text is null or incident.saga_id = $4::text)
    and ($5::bigint is null or incident.id < $5::bigint)
  order by incident.id desc limit $1::integer;

-- sagabox.admin.open_dead_letters
select letter.id::text, letter.message_id as "messageId" from "sagabox".dead_letter as letter
  where letter.message_id = any($1::text::text[]) and letter.closed_at is null order by letter.id;

-- sagabox.admin.stuck
with horizon as materialized (
  select clock_timestamp() as now, clock_timestamp() - $1::double precision * interval '1 ms' as at),
overdue as materialized (
  select pending.saga_id, min(pending.arrived_at) as since from "sagabox".saga_input as pending
    where pending.saga_id is not null and pending.arrived_at < (select at from horizon)
    group by pending.saga_id),
suspects as (
  select id from "sagabox".saga_instance where completed_at is null and status = 'failed'
  union
  select id from "sagabox".saga_instance
    where completed_at is null and status in ('started', 'running', 'completing', 'compensating')
      and updated_at < (select at from horizon)
  union
  select id from "sagabox".saga_instance where due_at < (select at from horizon)
  union
  select saga_id from overdue),
judged as (
  select instance.id, instance.saga_type as type, instance.definition_version as "definitionVersion",
      instance.correlation_id as key, instance.status, instance.current_step as "currentStep",
      instance.waits_for as "waitsFor", to_char(instance.waiting_since at time zone 'UTC',
          'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "waitingSince", instance.version,
      instance.last_error as "lastError", instance.retry_count as "retryCount", instance.trace_id as "traceId",
      instance.message_correlation_id as "correlationId", instance.parent_id as "parentId",
      instance.parent_step as "parentStep", to_char(instance.due_at at time zone 'UTC',
          'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "dueAt", instance.claimed_by as "claimedBy",
      to_char(instance.claimed_until at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "claimedUntil",
          to_char(instance.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
      to_char(instance.updated_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "updatedAt",
          to_char(instance.completed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "completedAt",
      to_char(least(overdue.since, case when instance.due_at < horizon.at then instance.due_at end) at time zone 'UTC',
          'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "overdueSince",
      case when instance.status = 'failed' then instance.state::text end as state,
      case
      when instance.status = 'failed' then 'incident'
      when (instance.due_at < horizon.at or overdue.since is not null)
      and instance.claimed_until > horizon.now then 'held'
      when instance.due_at < horizon.at or overdue.since is not null then 'unclaimed'
      when instance.completed_at is null and instance.updated_at < horizon.at
      and instance.waits_for !~ '^(wait|delay|child):' then 'slow'
      end as reason
    from suspects
    join "sagabox".saga_instance as instance on instance.id = suspects.id
    cross join horizon
    left join overdue on overdue.saga_id = instance.id)
select * from judged
  where reason is not null and ($2::text is null or type = $2::text)
  order by array_position(array['incident', 'unclaimed', 'held', 'slow'], reason), "updatedAt"
  limit $3::integer;

-- sagabox.admin.page
select instance.id from "sagabox".saga_instance as instance
  where (instance.completed_at is null) = $1::boolean
    and ($2::text is null or instance.saga_type = $2::text)
    and ($3::text is null or instance.id < $3::text)
    and instance.saga_type in (select json_array_elements_text($5::json))
  order by instance.id desc limit $4::integer;

-- sagabox.admin.strangers
select instance.saga_type as type, count(*)::integer as open from "sagabox".saga_instance as instance
  where instance.completed_at is null and ($2::text is null or instance.saga_type = $2::text)
    and instance.saga_type not in (select json_array_elements_text($1::json))
  group by instance.saga_type order by instance.saga_type;

-- sagabox.admin.turns
select line.version, line.event_type, line.step, line.old_status, line.new_status, line.input::text as input,
    line.metadata::text as drawn, extract(epoch from line.timestamp) * 1000 as at_ms
  from "sagabox".saga_audit_log as line
  where line.saga_id = $1::text and line.event_type <> 'ignored'
  order by line.id;

-- ══ src/admin/tune/statements.ts ═══════════════════════════════════════════════════════════════════════════════════

-- sagabox.tune.own
update "sagabox".relay_lane set owner = 'tune', token = 'tune', fence = 1, leased_at = clock_timestamp() where scope = 0;

-- sagabox.tune.empty
    truncate "sagabox".outbox, "sagabox".message, "sagabox".receipt;

-- sagabox.tune.drop
drop schema if exists "sagabox" cascade;

-- sagabox.tune.may_create
select has_database_privilege(current_database(), 'create') as allowed, current_user as user_name,
    coalesce(inet_client_addr() <<= any(array['127.0.0.0/8'::inet, '::1'::inet]), true) as local,
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer as usable;

-- ══ src/audit/statements.ts ════════════════════════════════════════════════════════════════════════════════════════

-- sagabox.audit.write
insert into "sagabox".audit_log
    (actor, action, target_kind, target_id, reason, trace_id, before, after, outcome, error_code)
values ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::json, $8::json, $9::text, $10::text);

-- sagabox.audit.write_all
insert into "sagabox".audit_log
    (actor, action, target_kind, target_id, reason, trace_id, before, after, outcome)
select actor, action, target_kind, target_id, reason, trace_id, before::json, after::json, 'done'
  from unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[],
        $6::text::text[], $7::text::text[], $8::text::text[])
with ordinality as line (actor, action, target_kind, target_id, reason, trace_id, before, after, turn)
  order by turn;

-- sagabox.audit.alone
select pg_try_advisory_xact_lock(hashtextextended('sagabox.audit.' || $1::text, 0)) as alone;

-- sagabox.audit.head
select pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
    to_char(greatest(clock_timestamp(), head.sealed_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as now,
    head.number::text, head.chain, head.xid_to::text, head.saga_after::text, head.action_after::text,
    head.saga_top::text, head.action_top::text, encode(head.hash, 'hex') as hash,
    (select encode(hash, 'hex') from "sagabox".audit_seal where number = $1::text::bigint limit 1) as known
  from (select 1) as always
  left join (select * from "sagabox".audit_seal order by number desc limit 1) as head on true;

-- sagabox.audit.waiting
with waiting as materialized (
  select xid from ((select row.xid from "sagabox".saga_audit_log as row
      where row.xid >= $1::text::xid8 and row.xid < $2::text::xid8 and row.id > $3::text::bigint
      order by row.xid, row.id limit $5::integer) union all (select row.xid from "sagabox".audit_log as row
          where row.xid >= $1::text::xid8 and row.xid < $2::text::xid8 and row.id > $4::text::bigint
          order by row.xid, row.id limit $5::integer)) as logs
    order by xid limit $5::integer)
select (select count(*)::integer from waiting) as count,
    (select waiting.xid::text from waiting order by waiting.xid limit 1) as first,
    (select waiting.xid::text from waiting order by waiting.xid desc limit 1) as last;

-- sagabox.audit.leaves
select log, month, id::text, digest
  from (select 'saga' as log, to_char(date_trunc('month', row.timestamp at time zone 'UTC')::date,
      'YYYY-MM-DD') as month, row.xid, row.id,
        encode(sha256(convert_to(json_build_array('saga', row.id, row.xid::text,
            to_char(row.timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), row.saga_id, row.version,
            row.event_type,
              row.step, row.old_status, row.new_status, row.note, row.cause, row.user_id, row.reason, row.trace_id,
              row.input::text, row.metadata::text, row.old_state::text, row.new_state::text)::text, 'UTF8')),
                  'hex') as digest
      from "sagabox".saga_audit_log as row
      where row.xid >= $1::text::xid8 and row.xid < $2::text::xid8
        and row.id > $3::text::bigint and row.id <= $4::text::bigint union all select 'action' as log,
            to_char(date_trunc('month', row.timestamp at time zone 'UTC')::date, 'YYYY-MM-DD') as month, row.xid,
            row.id,
        encode(sha256(convert_to(json_build_array('action', row.id, row.xid::text,
            to_char(row.timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), row.actor, row.action,
            row.target_kind,
              row.target_id, row.reason, row.trace_id, row.before::text, row.after::text, row.outcome,
              row.error_code)::text, 'UTF8')), 'hex') as digest
      from "sagabox".audit_log as row
      where row.xid >= $1::text::xid8 and row.xid < $2::text::xid8
        and row.id > $5::text::bigint and row.id <= $6::text::bigint) as row
  order by row.log, row.month, row.xid, row.id;

-- sagabox.audit.seal
insert into "sagabox".audit_seal
    (number, chain, log, month, xid_from, xid_to, saga_after, action_after, saga_top, action_top, row_count, leaves,
          hash, previous_hash, sealed_at)
values ($1::text::bigint, $2::integer, $3::text, $4::text::date, $5::text::xid8, $6::text::xid8,
      $7::text::bigint, $8::text::bigint, $9::text::bigint, $10::text::bigint, $11::integer,
      decode($12::text, 'hex'), decode($13::text, 'hex'), decode($14::text, 'hex'), $15::text::timestamptz);

-- sagabox.audit.seals
select number::text, chain, log, to_char(month, 'YYYY-MM-DD') as month, xid_from::text, xid_to::text, saga_after::text,
    action_after::text, saga_top::text, action_top::text, row_count, encode(leaves, 'hex') as leaves,
    encode(hash, 'hex') as hash, encode(previous_hash, 'hex') as previous_hash,
    to_char(sealed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as sealed_at
  from "sagabox".audit_seal as seal
  where seal.number > $1::text::bigint
  order by seal.number limit $2::integer;

-- sagabox.audit.seal_totals
select chain, saga_after::text, action_after::text, count(*)::integer as seals
  from "sagabox".audit_seal group by chain, saga_after, action_after order by chain;

-- sagabox.audit.chains
with ends as materialized (
      (select chain, saga_after, action_after from "sagabox".audit_seal order by number limit 1)
  union
      (select chain, saga_after, action_after from "sagabox".audit_seal order by number desc limit 1))
select chain, saga_after::text, action_after::text
  from (select * from ends where (select count(*) from ends) = 1
    union
    select chain, saga_after, action_after from "sagabox".audit_seal
      where (select count(*) from ends) > 1) as found
  order by found.chain;

-- sagabox.audit.unsealed
select count(*)::integer as count, to_char(min(at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as oldest,
    (array_agg(log || ' ' || id order by log, id))[1:5]::text as some
  from (select 'saga' as log, row.id, row.timestamp as at from "sagabox".saga_audit_log as row
      where row.xid >= $1::text::xid8 and row.xid < pg_snapshot_xmax(pg_current_snapshot())
          and row.id > $2::text::bigint union all select 'action' as log, row.id,
          row.timestamp as at from "sagabox".audit_log as row
      where row.xid >= $1::text::xid8 and row.xid < pg_snapshot_xmax(pg_current_snapshot())
          and row.id > $3::text::bigint) as found;

-- sagabox.audit.impossible
select count(*)::integer as count, to_char(min(at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as oldest,
    (array_agg(log || ' ' || id order by log, id))[1:5]::text as some
  from (select 'saga' as log, row.id, row.timestamp as at from "sagabox".saga_audit_log as row
      where row.xid >= $1::text::xid8 and row.xid >= pg_snapshot_xmax(pg_current_snapshot())
          and row.id > $2::text::bigint union all select 'action' as log, row.id,
          row.timestamp as at from "sagabox".audit_log as row
      where row.xid >= $1::text::xid8 and row.xid >= pg_snapshot_xmax(pg_current_snapshot())
          and row.id > $3::text::bigint) as found;

-- sagabox.audit.before
select log, id::text, at from (
  select 'saga' as log, row.id, to_char(row.timestamp at time zone 'UTC',
      'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at from "sagabox".saga_audit_log as row
    where row.id <= $2::text::bigint or (row.xid < $1::text::xid8 and row.id <= $4::text::bigint)
  union all
  select 'action', row.id, to_char(row.timestamp at time zone 'UTC',
      'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') from "sagabox".audit_log as row
    where row.id <= $3::text::bigint or (row.xid < $1::text::xid8 and row.id <= $5::text::bigint)) as found
  order by found.log, found.id limit 100;

-- sagabox.audit.first_seal
select number::text, encode(previous_hash, 'hex') as previous_hash from "sagabox".audit_seal as seal
  order by seal.number limit 1;

-- sagabox.audit.retention_lines
select row.id::text, to_char(row.timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at, row.actor,
    row.target_kind, row.target_id, row.after::text as after
  from "sagabox".audit_log as row
  where row.action = 'audit.retention' and row.outcome = 'done' order by row.id desc limit $1::integer;

-- sagabox.audit.tables_left
select relname as name from pg_class
  where relnamespace = $1::text::regnamespace and relname = any($2::text::text[]);

-- sagabox.audit.list: both logs, without a filter
select log, xid::text, id::text, to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at, actor, action,
    target_kind, target_id, trace_id, input,
    "oldState", "newState", before, after, version, step, old_status, new_status, note, cause, reason, outcome,
        error_code
  from ((select 'saga' as log, row.xid, row.id, row.timestamp as at, row.user_id as actor,
      'saga.' || row.event_type as action,
        'saga' as target_kind, row.saga_id as target_id, row.trace_id, row.input::text as input,
        row.old_state::text as "oldState", row.new_state::text as "newState", null::text as before, null::text as after,
            row.version, row.step,
        row.old_status, row.new_status, row.note, row.cause, row.reason,
        case when row.event_type = 'ignored' then 'refused' else 'done' end as outcome,
            null::text as error_code from "sagabox".saga_audit_log as row
      order by row.xid desc, row.id desc limit $1::integer) union all (select 'action' as log, row.xid, row.id,
          row.timestamp as at, row.actor, row.action, row.target_kind, row.target_id,
            row.trace_id, null::text as input, null::text as "oldState", null::text as "newState",
                row.before::text as before,
            row.after::text as after, null::integer as version, null::text as step, null::text as old_status,
            null::text as new_status, null::text as note, null::text as cause, row.reason, row.outcome,
                row.error_code from "sagabox".audit_log as row
          order by row.xid desc, row.id desc limit $1::integer)) as found
  order by found.xid desc, found.id desc, log desc limit $1::integer;

-- sagabox.audit.list: the saga log, filtered by saga
select log, xid::text, id::text, to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at, actor, action,
    target_kind, target_id, trace_id, input,
    "oldState", "newState", before, after, version, step, old_status, new_status, note, cause, reason, outcome,
        error_code
  from ((select 'saga' as log, row.xid, row.id, row.timestamp as at, row.user_id as actor,
      'saga.' || row.event_type as action,
        'saga' as target_kind, row.saga_id as target_id, row.trace_id, row.input::text as input,
        row.old_state::text as "oldState", row.new_state::text as "newState", null::text as before, null::text as after,
            row.version, row.step,
        row.old_status, row.new_status, row.note, row.cause, row.reason,
        case when row.event_type = 'ignored' then 'refused' else 'done' end as outcome,
            null::text as error_code from "sagabox".saga_audit_log as row where row.saga_id = $2::text
      order by row.xid desc, row.id desc limit $1::integer)) as found
  order by found.xid desc, found.id desc, log desc limit $1::integer;

-- sagabox.audit.now
select to_char(date_trunc('month', clock_timestamp() at time zone 'UTC')::date, 'YYYY-MM-DD') as month;

-- sagabox.audit.partitions
select relname as name from pg_class
  where relnamespace = $1::text::regnamespace and relkind = 'r' and relispartition
    and relname ~ ('^' || $2::text || '_[0-9]{6}$')
  order by relname;

-- sagabox.audit.lock_timeout
select set_config('lock_timeout', $1::text, true);

-- sagabox.audit.sealed_rows
select coalesce(sum(row_count), 0)::text as count from "sagabox".audit_seal
  where log = $1::text and month = $2::text::date;

-- sagabox.audit.sealed_months
select seal.log, to_char(seal.month, 'YYYY-MM-DD') as month,
    not case when seal.log = 'saga'
    then exists (select 1 from "sagabox".saga_audit_log as row where row.timestamp >= seal.month::timestamp at time zone 'UTC'
          and row.timestamp < (seal.month + interval '1 month') at time zone 'UTC')
    else exists (select 1 from "sagabox".audit_log as row where row.timestamp >= seal.month::timestamp at time zone 'UTC'
          and row.timestamp < (seal.month + interval '1 month') at time zone 'UTC') end as gone
  from (select distinct log, month from "sagabox".audit_seal) as seal
  order by 1, 2;

-- partitionStatements.create: for the saga log and October 2026
create table "sagabox".saga_audit_log_202610 (like "sagabox".saga_audit_log including all);
create trigger audit_refuse_truncate before truncate on "sagabox".saga_audit_log_202610
  for each statement execute function "sagabox".audit_refuse();

-- partitionStatements.attach: for the saga log and October 2026
alter table "sagabox".saga_audit_log attach partition "sagabox".saga_audit_log_202610
  for values from ('2026-10-01T00:00:00Z') to ('2026-11-01T00:00:00Z');

-- partitionStatements.drop: for the saga log and October 2026
alter table "sagabox".saga_audit_log detach partition "sagabox".saga_audit_log_202610; drop table "sagabox".saga_audit_log_202610;

-- partitionStatements.rows: for the saga log and October 2026
select count(*)::text as count from "sagabox".saga_audit_log_202610;

-- partitionStatements.lastSeal: for the saga log and October 2026
select number::text, encode(hash, 'hex') as hash, (count(*) over ())::text as count
  from "sagabox".saga_audit_log_202610 as seal order by seal.number desc limit 1;

-- partitionStatements.needed: for the saga log and October 2026
select exists (
  select 1 from "sagabox".saga_instance as instance
    where instance.created_at < timestamptz '2026-11-01T00:00:00Z'
      and exists (select 1 from "sagabox".saga_audit_log_202610 as line where line.saga_id = instance.id)) as needed;

-- partitionStatements.sealsNeeded: for the saga log and October 2026
select exists (
  select 1 from (select distinct log, month from "sagabox".saga_audit_log_202610) as seal
    where (seal.log = 'saga' and exists (
      select 1 from "sagabox".saga_audit_log as row where row.timestamp >= seal.month::timestamp at time zone 'UTC'
          and row.timestamp < (seal.month + interval '1 month') at time zone 'UTC'))
      or (seal.log = 'action' and exists (
        select 1 from "sagabox".audit_log as row where row.timestamp >= seal.month::timestamp at time zone 'UTC'
            and row.timestamp < (seal.month + interval '1 month') at time zone 'UTC')))
    or exists (select 1 from "sagabox".saga_audit_log_202610 where number >= (select max(number) from "sagabox".audit_seal))
    or exists (select 1 from "sagabox".audit_seal
        where number < (select min(number) from "sagabox".saga_audit_log_202610)) as needed;

-- ══ src/claim-check/statements.ts ══════════════════════════════════════════════════════════════════════════════════

-- sagabox.blob.home
select id from "sagabox".blob_home;

-- sagabox.blob.note
with stored as (
  insert into "sagabox".blob (key, store, bytes, sha256)
  values ($1::text, $2::text, $3::bigint, $4::text)
    returning key
)
insert into "sagabox".blob_use (key, used_by, used_at)
select key, $5::text, greatest(clock_timestamp(), clock_timestamp() + $6::double precision * interval '1 ms',
      to_timestamp($7::double precision / 1000)) from stored;

-- sagabox.blob.reserve
insert into "sagabox".blob (key, store, bytes, sha256) values ($1::text, $2::text, 0, null);

-- sagabox.blob.touch
update "sagabox".blob set stored_at = clock_timestamp()
  where key = $1::text and coalesce(doomed_at, 'infinity') = 'infinity';

-- sagabox.blob.complete
update "sagabox".blob set bytes = $2::bigint, sha256 = $3::text, stored_at = clock_timestamp()
  where key = $1::text and coalesce(doomed_at, 'infinity') = 'infinity';

-- sagabox.blob.use
with known as materialized (
  select key from "sagabox".blob
    where key = any($1::text::text[]) and coalesce(doomed_at, 'infinity') = 'infinity'
    for share
), used as (
  insert into "sagabox".blob_use (key, used_by, used_at)
  select key, $2::text, greatest(clock_timestamp(), clock_timestamp() + $3::double precision * interval '1 ms',
        to_timestamp($4::double precision / 1000)) from known
    on conflict (key, used_by) do nothing
)
select key from known;

-- sagabox.blob.write
insert into "sagabox".blob_chunk (key, n, bytes)
values ($1::text, $2::integer, decode($3::text, 'base64'));

-- sagabox.blob.read
select encode(bytes, 'base64') as bytes from "sagabox".blob_chunk
  where key = $1::text and n >= $2::integer
  order by n
  limit $3::integer;

-- sagabox.blob.remove
delete from "sagabox".blob_chunk where key = any($1::text::text[]);

-- sagabox.blob.list
select key, extract(epoch from max(stored_at))::double precision * 1000 as stored_ms
  from "sagabox".blob_chunk
  where key > $1::text collate "C" and key < $2::text collate "C"
  group by key
  order by key
  limit $3::integer;

-- sagabox.blob.candidates
select key, to_char(stored_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as stored from "sagabox".blob
  where doomed_at is null
    and stored_at < clock_timestamp() - $1::double precision * interval '1 ms'
    and (stored_at, key) > ($2::text::timestamptz, $3::text collate "C")
  order by stored_at, key
  limit $4::integer
  for update skip locked;

-- sagabox.blob.doom
update "sagabox".blob
  set doomed_at = clock_timestamp()
  where key = any($1::text::text[])
    and doomed_at is null
    and not exists (
      select 1 from "sagabox".blob_use as used
        where used.key = blob.key
          and (used.used_at > clock_timestamp() - $2::double precision * interval '1 ms'
                or coalesce(
                      (select true from "sagabox".message where message.id = used.used_by limit 1),
                      (select true from "sagabox".scheduled where scheduled.id = used.used_by),
                      (select true from "sagabox".dead_letter as letter
                          where letter.message_id = used.used_by and letter.closed_at is null limit 1),
                      (select true from "sagabox".saga_instance as instance
                          where instance.id = substr(used.used_by, 6) and starts_with(used.used_by, 'saga:')),
                      false)))
  returning key;

-- sagabox.blob.doom_unfinished
update "sagabox".blob
  set doomed_at = clock_timestamp()
  where sha256 is null and doomed_at is null
    and stored_at < clock_timestamp() - $1::double precision * interval '1 ms';

-- sagabox.blob.doomed
select key, store, bytes::text from "sagabox".blob
  where doomed_at is not null and key > $1::text collate "C"
  order by key
  limit $2::integer;

-- sagabox.blob.forget
delete from "sagabox".blob where key = any($1::text::text[]) and doomed_at is not null;

-- sagabox.blob.discard
delete from "sagabox".blob where key = $1::text and doomed_at is null;

-- sagabox.blob.probe
insert into "sagabox".blob (key, store, bytes)
select key, '', 0 from unnest($1::text::text[]) as listed (key)
  on conflict (key) do nothing
  returning key;

-- sagabox.blob.unknown
select listed.key from unnest($1::text::text[]) as listed (key)
  where (select true from "sagabox".blob where blob.key = listed.key collate "C") is null;

-- sagabox.blob.sweep_from
select id, (coalesce(swept_to, made_on) - $1::integer)::text as day,
    to_char((clock_timestamp() - $2::double precision * interval '1 ms') at time zone 'utc', 'YYYY-MM-DD') as last_day,
    extract(epoch from clock_timestamp())::double precision * 1000 as now_ms
  from "sagabox".blob_home left join "sagabox".blob_sweep on store = $3::text;

-- sagabox.blob.swept
insert into "sagabox".blob_sweep as known (store, swept_to) values ($1::text, $2::text::date)
  on conflict (store) do update set swept_to = greatest(known.swept_to, excluded.swept_to);

-- ══ src/cli/statements.ts ══════════════════════════════════════════════════════════════════════════════════════════

-- sagabox.dev.other_clients
select count(*)::int as count
  from pg_stat_activity
  where backend_type = 'client backend' and pid <> pg_backend_pid();

-- ══ src/dead-letter/statements.ts ══════════════════════════════════════════════════════════════════════════════════

-- sagabox.dead_letter.bury
insert into "sagabox".dead_letter
    (origin, consumer, message_id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
          correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
          written_at, expires_at, reason, attempts, error_type, error_message, stack_trace, fingerprint)
select $1::text, $2::text, $3::text, $4::text, $5::text, $6::integer, $7::text, $8::text, $9::text, $10::text,
    $11::text, $12::text, $13::text, $14::text, $15::text, $16::text, $17::smallint, $18::smallint,
    $19::text, $20::text, coalesce($21::text::timestamptz, clock_timestamp()), $22::text::timestamptz,
    $23::text, $24::integer, $25::text, $26::text, $27::text, $28::text
  where not exists (
    select 1
      from (select origin, consumer, closed_at from "sagabox".dead_letter
          where message_id = $3::text offset 0) as open
      where open.origin = $1::text
        and open.consumer is not distinct from $2::text
        and open.closed_at is null
  )
  returning id::text;

-- sagabox.dead_letter.list: without a filter
select letter.id::text, letter.origin, letter.consumer, letter.message_id, letter.type, letter.topic,
    letter.key, letter.correlation_id, letter.reason, letter.attempts, letter.error_type,
  left(letter.error_message, 500) as error_message, to_char(letter.failed_at at time zone 'UTC',
      'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as failed_at, letter.closed_as,
    letter.fingerprint
  from "sagabox".dead_letter as letter
  where ($2::bigint is null or letter.id < $2::bigint)
    and true
    and letter.closed_at is null
  order by letter.id desc
  limit $1::integer;

-- sagabox.dead_letter.list: with every filter
select letter.id::text, letter.origin, letter.consumer, letter.message_id, letter.type, letter.topic,
    letter.key, letter.correlation_id, letter.reason, letter.attempts, letter.error_type,
  left(letter.error_message, 500) as error_message, to_char(letter.failed_at at time zone 'UTC',
      'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as failed_at, letter.closed_as,
    letter.fingerprint
  from "sagabox".dead_letter as letter
  where ($2::bigint is null or letter.id < $2::bigint)
    and true
    and letter.closed_at is null
    and letter.fingerprint = $3::text
    and letter.origin = $4::text
    and letter.consumer = $5::text
    and letter.type = $6::text
    and letter.topic = $7::text
    and letter.reason = $8::text
    and letter.message_id = $9::text
    and hashtextextended(letter.key, 0) = hashtextextended($10::text, 0) and letter.key = $10::text
    and hashtextextended(letter.key, 0) = hashtextextended($11::text, 0) and letter.key = $11::text
    and strpos(lower(letter.error_type || ': ' || letter.error_message), lower($12::text)) > 0
    and letter.failed_at >= $13::text::timestamptz
    and letter.failed_at < $14::text::timestamptz
  order by letter.id desc
  limit $1::integer;

-- sagabox.dead_letter.show
select letter.id::text, letter.origin, letter.consumer, letter.message_id, letter.kind, letter.type,
    letter.schema_version, letter.topic, letter.key, letter.aggregate_type, letter.aggregate_id, letter.saga_id,
    letter.correlation_id, letter.causation_id, letter.traceparent, letter.source, letter.target, letter.priority,
    letter.max_attempts, letter.headers, letter.data, letter.reason, letter.attempts, letter.error_type,
    letter.error_message, letter.stack_trace, letter.closed_as, letter.held_lane, letter.held_seq::text,
    letter.fingerprint, to_char(letter.written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as written_at,
    to_char(letter.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as expires_at,
    to_char(letter.failed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as failed_at,
    to_char(letter.closed_at at time zone 'UTC',
    'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as closed_at from "sagabox".dead_letter as letter where letter.id = $1::bigint;

-- sagabox.dead_letter.close
update "sagabox".dead_letter as letter
  set closed_at = clock_timestamp(), closed_as = $2::text
  where letter.id = $1::bigint and letter.closed_at is null
  returning letter.id::text, letter.origin, letter.consumer, letter.message_id, letter.kind, letter.type,
      letter.schema_version, letter.topic, letter.key, letter.aggregate_type, letter.aggregate_id, letter.saga_id,
      letter.correlation_id, letter.causation_id, letter.traceparent, letter.source, letter.target, letter.priority,
      letter.max_attempts, letter.headers, letter.data, letter.reason, letter.attempts, letter.error_type,
      letter.error_message, letter.stack_trace, letter.closed_as, letter.held_lane, letter.held_seq::text,
      letter.fingerprint, to_char(letter.written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as written_at,
      to_char(letter.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as expires_at,
      to_char(letter.failed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as failed_at,
      to_char(letter.closed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as closed_at;

-- sagabox.dead_letter.discard_messages
update "sagabox".dead_letter as letter
  set closed_at = clock_timestamp(), closed_as = 'discarded'
  where letter.message_id = any($1::text::text[]) and letter.origin = 'consumer' and letter.closed_at is null;

-- sagabox.dead_letter.list_in_order: without a filter
with looked as materialized (
  select letter.id, letter.origin, letter.consumer, letter.message_id, letter.topic, letter.key, letter.key_order,
      letter.written_at, letter.held_lane
    from "sagabox".dead_letter as letter
    where letter.closed_at is null and letter.fingerprint = $1::text and letter.id <= $2::text::bigint
      and (letter.key_order, letter.written_at, letter.message_id) > ($3::text::bigint, $4::text::timestamptz, $5::text)
      and true
      and letter.closed_at is null
    order by letter.key_order, letter.written_at, letter.message_id
    limit $6::integer
), lined as materialized (
  select letter.*, lag(letter.key_order, 1, -2::bigint) over (partition by letter.origin, letter.consumer, letter.topic,
      letter.key order by letter.key_order, letter.written_at, letter.message_id) as after_order,
      lag(letter.written_at, 1, '-infinity'::timestamptz) over (partition by letter.origin, letter.consumer,
          letter.topic, letter.key order by letter.key_order, letter.written_at, letter.message_id) as after_at,
      lag(letter.message_id, 1, ''::text) over (partition by letter.origin, letter.consumer, letter.topic,
          letter.key order by letter.key_order, letter.written_at, letter.message_id) as after_id
    from looked as letter
), judged as materialized (
  select letter.*, letter.key is not null and bool_or(
        (letter.held_lane is not null and letter.after_order > -2) or exists (
          select 1 from "sagabox".dead_letter as earlier
            where letter.key is not null and earlier.closed_at is null and earlier.key is not null
              and hashtextextended(earlier.key, 0) = hashtextextended(letter.key, 0) and earlier.key = letter.key
              and earlier.topic = letter.topic and earlier.origin = letter.origin
              and earlier.consumer is not distinct from letter.consumer
              and (earlier.key_order, earlier.written_at, earlier.message_id) < (letter.key_order, letter.written_at,
                  letter.message_id)
              and (earlier.key_order, earlier.written_at, earlier.message_id) > (letter.after_order, letter.after_at,
                  letter.after_id)
        )) over (partition by letter.origin, letter.consumer, letter.topic, letter.key order by letter.key_order,
            letter.written_at, letter.message_id) as waits
    from lined as letter
)
select letter.id::text, letter.message_id, letter.topic, letter.key, letter.key_order::text as "keyOrder",
    to_char(letter.written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as written_at, letter.waits
  from judged as letter
  order by letter.key_order, letter.written_at, letter.message_id;

-- sagabox.dead_letter.list_in_order: with every filter
with looked as materialized (
  select letter.id, letter.origin, letter.consumer, letter.message_id, letter.topic, letter.key, letter.key_order,
      letter.written_at, letter.held_lane
    from "sagabox".dead_letter as letter
    where letter.closed_at is null and letter.fingerprint = $1::text and letter.id <= $2::text::bigint
      and (letter.key_order, letter.written_at, letter.message_id) > ($3::text::bigint, $4::text::timestamptz, $5::text)
      and true
      and letter.closed_at is null
      and letter.fingerprint = $7::text
      and letter.origin = $8::text
      and letter.consumer = $9::text
      and letter.type = $10::text
      and letter.topic = $11::text
      and letter.reason = $12::text
      and letter.message_id = $13::text
      and hashtextextended(letter.key, 0) = hashtextextended($14::text, 0) and letter.key = $14::text
      and hashtextextended(letter.key, 0) = hashtextextended($15::text, 0) and letter.key = $15::text
      and strpos(lower(letter.error_type || ': ' || letter.error_message), lower($16::text)) > 0
      and letter.failed_at >= $17::text::timestamptz
      and letter.failed_at < $18::text::timestamptz
    order by letter.key_order, letter.written_at, letter.message_id
    limit $6::integer
), lined as materialized (
  select letter.*, lag(letter.key_order, 1, -2::bigint) over (partition by letter.origin, letter.consumer, letter.topic,
      letter.key order by letter.key_order, letter.written_at, letter.message_id) as after_order,
      lag(letter.written_at, 1, '-infinity'::timestamptz) over (partition by letter.origin, letter.consumer,
          letter.topic, letter.key order by letter.key_order, letter.written_at, letter.message_id) as after_at,
      lag(letter.message_id, 1, ''::text) over (partition by letter.origin, letter.consumer, letter.topic,
          letter.key order by letter.key_order, letter.written_at, letter.message_id) as after_id
    from looked as letter
), judged as materialized (
  select letter.*, letter.key is not null and bool_or(
        (letter.held_lane is not null and letter.after_order > -2) or exists (
          select 1 from "sagabox".dead_letter as earlier
            where letter.key is not null and earlier.closed_at is null and earlier.key is not null
              and hashtextextended(earlier.key, 0) = hashtextextended(letter.key, 0) and earlier.key = letter.key
              and earlier.topic = letter.topic and earlier.origin = letter.origin
              and earlier.consumer is not distinct from letter.consumer
              and (earlier.key_order, earlier.written_at, earlier.message_id) < (letter.key_order, letter.written_at,
                  letter.message_id)
              and (earlier.key_order, earlier.written_at, earlier.message_id) > (letter.after_order, letter.after_at,
                  letter.after_id)
        )) over (partition by letter.origin, letter.consumer, letter.topic, letter.key order by letter.key_order,
            letter.written_at, letter.message_id) as waits
    from lined as letter
)
select letter.id::text, letter.message_id, letter.topic, letter.key, letter.key_order::text as "keyOrder",
    to_char(letter.written_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as written_at, letter.waits
  from judged as letter
  order by letter.key_order, letter.written_at, letter.message_id;

-- sagabox.dead_letter.close_in_order
with given as materialized (
  select * from unnest($1::text::bigint[], $2::text::integer[], $3::text::bigint[]) as given (id, lane, stream)
), looked as materialized (
  select letter.id, letter.origin, letter.consumer, letter.message_id, letter.topic, letter.key, letter.key_order,
      letter.written_at, letter.held_lane, given.lane, given.stream
    from given
    join "sagabox".dead_letter as letter on letter.id = given.id
    where letter.closed_at is null
), lined as materialized (
  select letter.*, lag(letter.key_order, 1, -2::bigint) over (partition by letter.origin, letter.consumer, letter.topic,
      letter.key order by letter.key_order, letter.written_at, letter.message_id) as after_order,
      lag(letter.written_at, 1, '-infinity'::timestamptz) over (partition by letter.origin, letter.consumer,
          letter.topic, letter.key order by letter.key_order, letter.written_at, letter.message_id) as after_at,
      lag(letter.message_id, 1, ''::text) over (partition by letter.origin, letter.consumer, letter.topic,
          letter.key order by letter.key_order, letter.written_at, letter.message_id) as after_id
    from looked as letter
), judged as materialized (
  select letter.*, letter.key is not null and bool_or(
        (letter.held_lane is not null and letter.after_order > -2) or exists (
          select 1 from "sagabox".dead_letter as earlier
            where letter.key is not null and earlier.closed_at is null and earlier.key is not null
              and hashtextextended(earlier.key, 0) = hashtextextended(letter.key, 0) and earlier.key = letter.key
              and earlier.topic = letter.topic and earlier.origin = letter.origin
              and earlier.consumer is not distinct from letter.consumer
              and (earlier.key_order, earlier.written_at, earlier.message_id) < (letter.key_order, letter.written_at,
                  letter.message_id)
              and (earlier.key_order, earlier.written_at, earlier.message_id) > (letter.after_order, letter.after_at,
                  letter.after_id)
        )) over (partition by letter.origin, letter.consumer, letter.topic, letter.key order by letter.key_order,
            letter.written_at, letter.message_id) as waits
    from lined as letter
), locked as materialized (
  select letter.id
    from "sagabox".dead_letter as letter
    where letter.id in (select id from given) and letter.closed_at is null
    order by letter.id
    for update skip locked
), free as materialized (
  select letter.*,
      letter.key is null or bool_and(letter.id in (select id from locked)) over (partition by letter.origin,
          letter.consumer, letter.topic, letter.key order by letter.key_order, letter.written_at,
          letter.message_id) as in_line
    from judged as letter
    left join "sagabox".consumer_group as reader on reader.name = letter.consumer
    where not letter.waits
      and not exists (
        select 1 from "sagabox".queue as moving
          where letter.stream is not null and letter.origin = 'consumer'
            and moving.lane = reader.id * 256 + letter.lane and moving.stream = letter.stream
            and exists (select 1 from "sagabox".dead_letter as sent
                where sent.message_id = moving.message_id and sent.consumer = letter.consumer
                  and sent.closed_as = 'replayed'))
      and not exists (
        select 1 from "sagabox".outbox as moving
          where letter.stream is not null and letter.origin = 'outbox' and moving.again
            and moving.due_at < 'infinity' and moving.lane = letter.lane and moving.stream = letter.stream)
)
update "sagabox".dead_letter as letter
  set closed_at = clock_timestamp(), closed_as = 'replayed'
  from free
  where letter.id = free.id and free.in_line and letter.id in (select id from locked)
  returning letter.id::text, letter.origin, letter.consumer, letter.message_id, letter.type, letter.topic,
    letter.reason, letter.attempts, letter.error_message, letter.traceparent, letter.fingerprint,
    letter.held_lane, letter.held_seq::text, free.lane, free.stream::text;

-- sagabox.dead_letter.rearm
select id::text from unnest($1::text::bigint[]) as id where "sagabox".dead_letter_rearm(id);

-- sagabox.dead_letter.free_keys
select "sagabox".dead_letter_free_key(id) from unnest($1::text::bigint[]) as id;

-- sagabox.dead_letter.keep
select given.id::text,
    "sagabox".dead_letter_keep_copy(given.id, given.lane, given.data, given.stream)::text as written_on
  from unnest($1::text::bigint[], $2::text::smallint[], $3::text::bigint[], $4::text::text[])
    as given (id, lane, stream, data);

-- sagabox.dead_letter.move_row
select given.id::text from unnest($1::text::bigint[], $2::text::date[]) as given (id, day)
  where "sagabox".dead_letter_move_row(given.id, given.day);

-- sagabox.dead_letter.send
insert into "sagabox".outbox
    (again, lane, seq, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at,
        expires_at)
select true, sorted.lane, nextval('"sagabox".outbox_seq'), sorted.stream, sorted.topic, sorted.type,
    sorted.message_id, sorted.written_on, sorted.priority, 0, sorted.max_attempts, clock_timestamp(),
    case when sorted.expires_at > clock_timestamp() then sorted.expires_at end
  from (select given.lane, given.stream, given.written_on, letter.topic, letter.type, letter.message_id,
        letter.priority, letter.max_attempts, letter.expires_at
      from unnest($1::text::bigint[], $2::text::integer[], $3::text::bigint[], $4::text::date[])
        as given (id, lane, stream, written_on)
      join "sagabox".dead_letter as letter on letter.id = given.id
      order by letter.key_order, letter.written_at, letter.message_id) as sorted
  returning message_id, lane, seq::text;

-- sagabox.dead_letter.deliver
insert into "sagabox".queue
    (lane, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at, expires_at)
select reader.id * 256 + given.lane, given.stream, letter.topic, letter.type, letter.message_id,
    given.written_on, letter.priority, 0, letter.max_attempts, clock_timestamp(),
    case when letter.expires_at > clock_timestamp() then letter.expires_at end
  from unnest($1::text::bigint[], $2::text::integer[], $3::text::bigint[], $4::text::date[])
    as given (id, lane, stream, written_on)
  join "sagabox".dead_letter as letter on letter.id = given.id
  join "sagabox".consumer_group as reader on reader.name = letter.consumer
  where exists (select 1 from "sagabox".relay_lane where relay_lane.scope = reader.id)
  order by letter.key_order, letter.written_at, letter.message_id
  returning message_id, lane, seq::text;

-- sagabox.dead_letter.note_edit
insert into "sagabox".dead_letter_edit (dead_letter_id, actor, reason, before_hash, after_hash, contract)
values ($1::bigint, $2::text, $3::text, $4::text, $5::text, $6::text);

-- sagabox.dead_letter.forget
with old as materialized (
  select letter.id from "sagabox".dead_letter as letter
    where letter.failed_at < (select clock_timestamp()) - $1::text::interval
    order by letter.failed_at
    limit $2::integer
    for update skip locked
), gone as (
  delete from "sagabox".dead_letter as letter
    where letter.id = any(array(select id from old))
    returning letter.held_lane, letter.held_seq, letter.closed_at
), freed as (
  delete from "sagabox".outbox
    where ctid = any(array(
      select held.row_id
        from gone
        cross join lateral (
          select row.ctid as row_id from "sagabox".outbox as row
            where row.lane = gone.held_lane and row.seq = gone.held_seq and row.due_at = 'infinity'
              offset 0) as held
        where gone.closed_at is null))
)
select count(*)::integer as count, (count(*) filter (where closed_at is null))::integer as open from gone;

-- ══ src/flow/statements.ts ═════════════════════════════════════════════════════════════════════════════════════════

-- flowStatements.record
insert into "sagabox".flow_event
    (flow, message_id, correlation_id, type, causation_id, source, key, happened_at)
select $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text::timestamptz
  from fresh
  on conflict do nothing;

-- sagabox.flow.of_correlation
select flow, message_id, correlation_id, type, causation_id, source, key,
    to_char(happened_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as happened_at,
        to_char(recorded_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as recorded_at
  from "sagabox".flow_event
  where correlation_id = $1::text
  order by flow_event.happened_at, message_id
  limit $2::integer;

-- sagabox.flow.of_correlations
select flow, message_id, correlation_id, type, causation_id, source, key,
    to_char(happened_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as happened_at,
        to_char(recorded_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as recorded_at
  from "sagabox".flow_event
  where flow = $1::text and correlation_id = any($2::text::text[])
  order by flow_event.happened_at, message_id;

-- sagabox.flow.quiet
select correlation_id, to_char(max(recorded_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as seen_at
  from "sagabox".flow_event
  where open and flow = $1::text
  group by correlation_id
  having max(recorded_at) <= (select clock_timestamp()) - $2::double precision * interval '1 ms'
    and (max(recorded_at), correlation_id) > ($3::text::timestamptz, $4::text)
  order by max(recorded_at), correlation_id
  limit $5::integer;

-- sagabox.flow.close
update "sagabox".flow_event set open = false
  where flow = $1::text and message_id = any($2::text::text[]) and open;

-- sagabox.flow.forget
with horizon as materialized (
  select clock_timestamp() - $1::double precision * interval '1 ms' as at
)
delete from "sagabox".flow_event
  where ctid = any(array(
    select old.ctid from "sagabox".flow_event as old
      where old.recorded_at < (select at from horizon)
        and not exists (select 1 from "sagabox".flow_event as young
            where young.correlation_id = old.correlation_id and young.flow = old.flow
              and young.recorded_at >= (select at from horizon))
      limit $2::integer
      for update skip locked));

-- ══ src/inbox/statements.ts ════════════════════════════════════════════════════════════════════════════════════════

-- sagabox.inbox.remember
insert into "sagabox".consumer_inbox (consumer_name, event_id, source_topic, event_type, payload)
values ($1::text, $2::text, $3::text, $4::text, $5::text)
  on conflict do nothing
  returning 1;

-- sagabox.inbox.remember_in_time
insert into "sagabox".consumer_inbox (consumer_name, event_id, source_topic, event_type, payload)
select $1::text, $2::text, $3::text, $4::text, $5::text
  where coalesce($6::text::timestamptz > clock_timestamp(), true)
  on conflict do nothing
  returning 1;

-- sagabox.inbox.remember_all
insert into "sagabox".consumer_inbox (consumer_name, event_id, source_topic, event_type, payload)
select $1::text, given.id, given.topic, given.type, given.payload
  from unnest($2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::timestamptz[])
    as given (id, topic, type, payload, expires_at)
  where coalesce(given.expires_at > (select clock_timestamp()), true)
  order by given.id
  on conflict do nothing;

-- sagabox.inbox.remember_alike
insert into "sagabox".consumer_inbox (consumer_name, event_id, source_topic, event_type)
select $1::text, given.id, $3::text, $4::text
  from unnest($2::text::text[]) as given (id)
  order by given.id
  on conflict do nothing;

-- sagabox.inbox.pass_over
insert into "sagabox".consumer_inbox (consumer_name, event_id, source_topic, event_type, effect)
values ($1::text, $2::text, $3::text, $4::text, false)
  on conflict do nothing;

-- sagabox.inbox.claim
insert into "sagabox".consumer_inbox (consumer_name, event_id, source_topic, event_type, payload, effect)
select $1::text, given.id, given.topic, given.type, given.payload, given.own
  from (select $2::text, $3::text, $4::text, $5::text, true
    union all
    select earlier.id, earlier.topic, earlier.type, null, false
      from unnest($7::text::text[], $8::text::text[], $9::text::text[]) as earlier (id, topic, type))
    as given (id, topic, type, payload, own)
  where coalesce($6::text::timestamptz > (select clock_timestamp()), true)
  order by given.id
  on conflict do nothing
  returning event_id;

-- sagabox.inbox.effect_of
select origin.event_id as id, origin.result
  from unnest($2::text::text[]) as given (id)
  cross join lateral (
    select entry.effect, coalesce(entry.effect_of, entry.event_id) as origin_id from "sagabox".consumer_inbox as entry
      where entry.consumer_name = $1::text and entry.event_id = given.id offset 0) as found
  cross join lateral (
    select entry.event_id, entry.result, entry.effect, entry.undone_by,
        entry.consumed_at from "sagabox".consumer_inbox as entry
      where entry.consumer_name = $1::text and entry.event_id = found.origin_id offset 0) as origin
  where found.effect and origin.effect and origin.undone_by is null
  order by origin.consumed_at
  limit 1;

-- sagabox.inbox.take_back
update "sagabox".consumer_inbox as origin set undone_by = $3::text
  where origin.effect and origin.effect_of is null and origin.undone_by is null
    and origin.ctid = any(array(
      select origin.row_id from unnest($2::text::text[]) as given (id)
        cross join lateral (
          select entry.effect, coalesce(entry.effect_of,
              entry.event_id) as origin_id from "sagabox".consumer_inbox as entry
            where entry.consumer_name = $1::text and entry.event_id = given.id offset 0) as found
        cross join lateral (
          select entry.ctid as row_id from "sagabox".consumer_inbox as entry
            where entry.consumer_name = $1::text
                and entry.event_id = found.origin_id offset 0) as origin where found.effect))
  returning origin.event_id;

-- sagabox.inbox.carried_out
select 1 from unnest($2::text::text[]) as given (id)
  cross join lateral (
    select entry.effect from "sagabox".consumer_inbox as entry
      where entry.consumer_name = $1::text and entry.event_id = given.id offset 0) as found where found.effect limit 1;

-- sagabox.inbox.adopt
update "sagabox".consumer_inbox set effect_of = $3::text, result = $4::text where consumer_name = $1::text
    and event_id = $2::text;

-- sagabox.inbox.without_effect
update "sagabox".consumer_inbox set effect = false where consumer_name = $1::text and event_id = $2::text;

-- sagabox.inbox.recall
select found.event_id, found.result from unnest($2::text::text[]) as given (id)
  cross join lateral (
    select entry.event_id, entry.result from "sagabox".consumer_inbox as entry
      where entry.consumer_name = $1::text and entry.event_id = given.id offset 0) as found;

-- sagabox.inbox.recall_all
select found.event_id,
    found.xmin = pg_current_xact_id()::xid and found.consumed_at > transaction_timestamp() - interval '1 hour' as fresh
  from unnest($2::text::text[]) as given (id)
  cross join lateral (
    select entry.event_id, entry.xmin, entry.consumed_at from "sagabox".consumer_inbox as entry
      where entry.consumer_name = $1::text and entry.event_id = given.id offset 0) as found;

-- sagabox.inbox.finish
update "sagabox".consumer_inbox set processing_duration_ms = $3::integer, result = $4::text
  where consumer_name = $1::text and event_id = $2::text;

-- sagabox.inbox.finish_all
update "sagabox".consumer_inbox set processing_duration_ms = $2::integer where ctid = any(array(select found.row_id from unnest($3::text::text[]) as given (id)
    cross join lateral (
      select entry.ctid as row_id from "sagabox".consumer_inbox as entry
        where entry.consumer_name = $1::text and entry.event_id = given.id offset 0) as found));

-- sagabox.inbox.finish_with_results
update "sagabox".consumer_inbox
  set processing_duration_ms = $2::integer,
    result = (select $4::text::text[])[array_position((select $3::text::text[]), event_id)]
  where ctid = any(array(select found.row_id from unnest($3::text::text[]) as given (id)
      cross join lateral (
        select entry.ctid as row_id from "sagabox".consumer_inbox as entry
          where entry.consumer_name = $1::text and entry.event_id = given.id offset 0) as found));

-- sagabox.inbox.stats
select consumer_name as consumer, count(*)::double precision as total,
    to_char(min(consumed_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as oldest,
    count(*) filter (where consumed_at > clock_timestamp() - interval '1 hour')::double precision as last_hour,
    count(*) filter (where consumed_at > clock_timestamp() - interval '1 day')::double precision as last_day
  from "sagabox".consumer_inbox
  where $1::text is null or consumer_name = $1::text
  group by consumer_name
  order by consumer_name;

-- sagabox.inbox.forget
delete from "sagabox".consumer_inbox
  where ctid = any(array(
    select ctid from "sagabox".consumer_inbox
      where consumed_at < (select clock_timestamp()) - $1::double precision * interval '1 ms'
      limit $2::integer
      for update skip locked));

-- sagabox.inbox.stay
select 1;

-- sagabox.inbox.forget_suspects
delete from "sagabox".suspect
  where noticed_at < clock_timestamp() - $1::double precision * interval '1 ms';

-- sagabox.ledger.beat
with reaped as (
  delete from "sagabox".member
    where id in (select id from "sagabox".member
        where scope = -1 and id <> $1::text
          and lease_until < clock_timestamp() - interval '1 second'
        for update skip locked)
)
insert into "sagabox".member (id, scope, worker, lease_until, process)
values ($1::text, -1, $2::text, clock_timestamp() + $3::double precision * interval '1 ms', $4::text)
  on conflict (id) do update set lease_until = excluded.lease_until;

-- sagabox.ledger.leave
with gone as (delete from "sagabox".running where member = $1::text)
delete from "sagabox".member where id = $1::text;

-- sagabox.ledger.list
with quick as materialized (select set_config('synchronous_commit', 'off', true) as mode), listed as (
  insert into "sagabox".running (member, consumer, event_ids, alone)
  select $1::text, $2::text, $3::text::text[], $4::boolean from quick
    on conflict (member, consumer) do update
    set event_ids = excluded.event_ids, alone = excluded.alone, started_at = excluded.started_at
)
select exists (select 1 from "sagabox".running as other
    where other.member <> $1::text and not exists (select 1 from "sagabox".member where member.id = other.member
        and member.lease_until > (select clock_timestamp()))) as deaths,
    coalesce((select json_object_agg(suspect.event_id, suspect.crashes)
        from "sagabox".suspect
        where exists (select 1 from "sagabox".suspect as known where known.consumer = $2::text)
          and suspect.consumer = $2::text and suspect.event_id = any($3::text::text[])), '{}')::text
    as suspects;

-- sagabox.ledger.notice
with dead as (
  delete from "sagabox".running
    where not exists (select 1 from "sagabox".member where member.id = running.member
        and member.lease_until > (select clock_timestamp()))
      and pg_postmaster_start_time() < clock_timestamp() - $1::double precision * interval '1 ms'
    returning consumer, event_ids, alone
), accused as (
  select dead.consumer, left_behind.id, max(dead.alone::integer) as crashes
    from dead, unnest(dead.event_ids) as left_behind (id)
    where (select true from "sagabox".consumer_inbox as done
        where done.consumer_name = dead.consumer and done.event_id = left_behind.id) is null
    group by dead.consumer, left_behind.id
)
insert into "sagabox".suspect (consumer, event_id, crashes)
select accused.consumer, accused.id, accused.crashes from accused
  on conflict (consumer, event_id) do update
  set crashes = suspect.crashes + excluded.crashes, noticed_at = clock_timestamp()
  returning consumer, event_id, crashes;

-- sagabox.ledger.acquit
delete from "sagabox".suspect where consumer = $1::text and event_id = $2::text;

-- sagabox.inbox.once: around a query of the user without parameters
with fresh as (
  insert into "sagabox".consumer_inbox (consumer_name, event_id, source_topic, event_type)
  select $1::text, $2::text, $3::text, $4::text
    where coalesce($5::text::timestamptz > clock_timestamp(), true)
    on conflict do nothing
    returning consumer_name, event_id
), effect as (
  select name from customer join fresh on true
)
select exists (select 1 from fresh) as fresh, (select count(*) from effect) as effects;

-- sagabox.inbox.once: around a write of the user with one parameter
with fresh as (
  insert into "sagabox".consumer_inbox (consumer_name, event_id, source_topic, event_type)
  select $2::text, $3::text, $4::text, $5::text
    where coalesce($6::text::timestamptz > clock_timestamp(), true)
    on conflict do nothing
    returning consumer_name, event_id
), effect as (
  insert into customer (name) select $1::text from fresh
)
select exists (select 1 from fresh) as fresh;

-- sagabox.inbox.claimed: around a query of the user without parameters
with fresh as (
  select $1::text as consumer_name, $2::text as event_id
), effect as (
  select name from customer join fresh on true
)
select true as fresh, (select count(*) from effect) as effects;

-- sagabox.inbox.claimed: around a write of the user with one parameter
with fresh as (
  select $2::text as consumer_name, $3::text as event_id
), effect as (
  insert into customer (name) select $1::text from fresh
)
select true as fresh;

-- sagabox.inbox.lag_claim
with wanted as materialized (
  select distinct name from unnest($1::text::text[]) as given (name)
), added as (
  insert into "sagabox".consumer_lag (consumer, transport, claimed_at)
  select name, $2::text, clock_timestamp() from wanted order by name
    on conflict do nothing
)
update "sagabox".consumer_lag as known
  set claimed_at = clock_timestamp()
  where consumer in (select name from wanted)
    and claimed_at < clock_timestamp() - $3::double precision * interval '1 ms'
  returning consumer;

-- sagabox.inbox.lag_store
update "sagabox".consumer_lag as known
  set measured_at = clock_timestamp(), transport = $3::text, lags = measured.lags
  from unnest($1::text::text[], $2::text::text[]) as measured (consumer, lags)
  where known.consumer = measured.consumer;

-- sagabox.inbox.lag_read
select consumer, transport, lags,
    (extract(epoch from clock_timestamp() - measured_at) * 1000)::double precision as age_ms
  from "sagabox".consumer_lag
  where $1::text is null or consumer = any($1::text::text[])
  order by consumer limit 500;

-- ══ src/lanes/statements.ts ════════════════════════════════════════════════════════════════════════════════════════

-- sagabox.lanes.probe_lane: on the outbox
select 1 from "sagabox".relay_lane where lane = $1::integer for update;

-- sagabox.outbox.probe_row: on the outbox
select 1 from "sagabox".outbox where lane = $1::integer and seq = $2::text::bigint for update;

-- sagabox.queue.probe_row: on the queue
select 1 from "sagabox".queue where lane = $1::integer and seq = $2::text::bigint for update;

-- sagabox.outbox.fetch: on the outbox
with moment as materialized (
  select clock_timestamp() as at, pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
      (select (case when is_called then last_value else 0 end)::text from "sagabox".outbox_seq) as tail,
      exists (select 1 from "sagabox".outbox where priority <> 5) as express, $3::text::bigint[] as waiting,
          $4::text::bigint[] as busy, $5::text::text[] as resting ), read as materialized (
        select found.lane::text || e'\x1f' || found.seq::text || e'\x1f' || coalesce(found.stream::text,
            '') || e'\x1f' || found.topic || e'\x1f' || found.type || e'\x1f' || found.message_id || e'\x1f' || found.written_on::text || e'\x1f' || found.ctid::text || e'\x1f' || case when found.attempts = 0
            and found.max_attempts = 10 then ''
            else found.attempts::text || '/' || found.max_attempts::text end || e'\x1f' || case when found.due_at <= moment.at
                and found.lease_until is null and found.expiry is null and not found.blocked
            then '' else ceil(extract(epoch from least(greatest(found.due_at, found.lease_until),
                moment.at + interval '1 day') - moment.at)
                  * 1000)::text || e'\x1f' || case when found.lease_until > moment.at then '1' else '' end || e'\x1f' || case when found.expiry <= moment.at then '1' else '' end || e'\x1f' || coalesce((found.expiry at time zone 'utc')::text,
                      '') || e'\x1f' || case when found.blocked then '1' else '' end end as row, found.message_id
          from moment
          cross join lateral (
            select due.*
              from unnest($1::text::integer[], $2::text::bigint[]) as walk (lane, mark)
              cross join lateral (
                select row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
                    row.attempts, row.max_attempts, row.due_at, row.lease_until, row.expires_at as expiry,
                        row.ctid as ctid,
                    moment.express and row.stream is not null and exists (
                      select 1 from "sagabox".outbox as earlier
                        where earlier.lane::bigint = (row.lane)::bigint and earlier.stream = row.stream
                          and earlier.priority <> 5 and earlier.seq < row.seq) as blocked
                  from "sagabox".outbox as row
                  where row.lane = walk.lane and row.seq > walk.mark and row.priority = 5
                    and (row.stream is null or row.stream <> all(moment.waiting))
                    and row.seq <> all(moment.busy) and row.topic <> all(moment.resting)
                  order by row.seq
                  limit $6::integer
              ) as due
              limit $7::integer
          ) as found
      )
select moment.horizon, moment.tail, moment.express, (select string_agg(read.row, e'\x1e') from read) as rows from moment;

-- sagabox.outbox.fetch: on the outbox
with moment as materialized (
  select clock_timestamp() as at, pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
      (select (case when is_called then last_value else 0 end)::text from "sagabox".outbox_seq) as tail,
      exists (select 1 from "sagabox".outbox where priority <> 5) as express, $3::text::bigint[] as waiting,
          $4::text::bigint[] as busy, $5::text::text[] as resting ), read as materialized (
        select found.lane::text || e'\x1f' || found.seq::text || e'\x1f' || coalesce(found.stream::text,
            '') || e'\x1f' || found.topic || e'\x1f' || found.type || e'\x1f' || found.message_id || e'\x1f' || found.written_on::text || e'\x1f' || found.ctid::text || e'\x1f' || case when found.attempts = 0
            and found.max_attempts = 10 then ''
            else found.attempts::text || '/' || found.max_attempts::text end || e'\x1f' || case when found.due_at <= moment.at
                and found.lease_until is null and found.expiry is null and not found.blocked
            then '' else ceil(extract(epoch from least(greatest(found.due_at, found.lease_until),
                moment.at + interval '1 day') - moment.at)
                  * 1000)::text || e'\x1f' || case when found.lease_until > moment.at then '1' else '' end || e'\x1f' || case when found.expiry <= moment.at then '1' else '' end || e'\x1f' || coalesce((found.expiry at time zone 'utc')::text,
                      '') || e'\x1f' || case when found.blocked then '1' else '' end end as row, found.message_id
          from moment
          cross join lateral (
            select due.*
              from unnest($1::text::integer[], $2::text::bigint[]) as walk (lane, mark)
              cross join lateral (
                select row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
                    row.attempts, row.max_attempts, row.due_at, row.lease_until, row.expires_at as expiry,
                        row.ctid as ctid,
                    moment.express and row.stream is not null and exists (
                      select 1 from "sagabox".outbox as earlier
                        where earlier.lane::bigint = (row.lane)::bigint and earlier.stream = row.stream
                          and earlier.priority <> 5 and earlier.seq < row.seq) as blocked
                  from "sagabox".outbox as row
                  where row.lane = walk.lane and row.seq > walk.mark and row.priority = 5
                    and (row.stream is null or row.stream <> all(moment.waiting))
                    and row.seq <> all(moment.busy) and row.topic <> all(moment.resting)
                  order by row.seq
                  limit $6::integer
              ) as due
              limit $7::integer
          ) as found
      )
select moment.horizon, moment.tail, moment.express, (select string_agg(read.row, e'\x1e') from read) as rows,
    null as messages from moment
union all
select null, null, null, null, string_agg(id || e'\x1f' || written_on::text || e'\x1f' || coalesce(key,
    '') || e'\x1f' || correlation_id || e'\x1f' || traceparent || e'\x1f' || source || e'\x1f' || (written_at at time zone 'utc')::text || e'\x1f' || case when kind = 'event'
    and priority = 5 and schema_version = 1 and headers = '{}' and causation_id is null
      and saga_id is null and aggregate_type is null and aggregate_id is null and target is null
      then '' else kind || e'\x1f' || priority::text || e'\x1f' || schema_version::text || e'\x1f' || coalesce(causation_id,
          '') || e'\x1f' || coalesce(saga_id, '') || e'\x1f' || coalesce(aggregate_type,
          '') || e'\x1f' || coalesce(aggregate_id, '') || e'\x1f' || coalesce(target,
          '') || e'\x1f' || headers end || e'\x1f' || data, e'\x1e')
  from "sagabox".message
  where id = any(array(select message_id from read))
    and written_on between $8::text::date and $9::text::date
    and octet_length(data) + octet_length(headers) <= 8192;

-- sagabox.outbox.express: on the outbox
with moment as materialized (
  select clock_timestamp() as at, pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
      (select (case when is_called then last_value else 0 end)::text from "sagabox".outbox_seq) as tail,
      exists (select 1 from "sagabox".outbox where priority <> 5) as express, $3::text::bigint[] as waiting,
          $4::text::bigint[] as busy, $5::text::text[] as resting )
select moment.horizon, moment.tail, moment.express,
    found.lane::text || e'\x1f' || found.seq::text || e'\x1f' || coalesce(found.stream::text,
    '') || e'\x1f' || found.topic || e'\x1f' || found.type || e'\x1f' || found.message_id || e'\x1f' || found.written_on::text || e'\x1f' || found.ctid::text || e'\x1f' || case when found.attempts = 0
    and found.max_attempts = 10 then ''
    else found.attempts::text || '/' || found.max_attempts::text end || e'\x1f' || case when found.due_at <= moment.at
        and found.lease_until is null and found.expiry is null and not false
    then '' else ceil(extract(epoch from least(greatest(found.due_at, found.lease_until),
        moment.at + interval '1 day') - moment.at)
          * 1000)::text || e'\x1f' || case when found.lease_until > moment.at then '1' else '' end || e'\x1f' || case when found.expiry <= moment.at then '1' else '' end || e'\x1f' || coalesce((found.expiry at time zone 'utc')::text,
              '') || e'\x1f' || case when false then '1' else '' end end as rows,
    least(9,
        found.priority + floor(extract(epoch from moment.at - found.due_at) * 1000 / $2::double precision))::integer as rank
  from moment
  left join lateral (
    select due.*
      from unnest($1::text::integer[]) as walk (lane)
      cross join lateral (
        select row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
            row.attempts, row.max_attempts, row.due_at, row.lease_until, row.expires_at as expiry, row.ctid as ctid
          from "sagabox".outbox as row
          where row.lane = walk.lane and row.priority <> 5
            and row.due_at <= moment.at and (row.lease_until is null or row.lease_until <= moment.at)
            and (row.stream is null or row.stream <> all(moment.waiting))
            and row.seq <> all(moment.busy) and row.topic <> all(moment.resting)
            and (row.stream is null or not exists (
              select 1 from "sagabox".outbox as earlier
                where earlier.lane::bigint = (row.lane)::bigint and earlier.stream = row.stream
                    and earlier.seq < row.seq))
          order by row.priority desc, row.seq
          limit $6::integer
      ) as due
  ) as found on true
  order by rank desc, found.seq
  limit $7::integer;

-- sagabox.outbox.reenter: on the outbox
with moment as materialized (
  select clock_timestamp() as at, pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
      (select (case when is_called then last_value else 0 end)::text from "sagabox".outbox_seq) as tail,
      exists (select 1 from "sagabox".outbox where priority <> 5) as express )
select moment.horizon, moment.tail, moment.express,
    found.lane::text || e'\x1f' || found.seq::text || e'\x1f' || coalesce(found.stream::text,
    '') || e'\x1f' || found.topic || e'\x1f' || found.type || e'\x1f' || found.message_id || e'\x1f' || found.written_on::text || e'\x1f' || found.ctid::text || e'\x1f' || case when found.attempts = 0
    and found.max_attempts = 10 then ''
    else found.attempts::text || '/' || found.max_attempts::text end || e'\x1f' || case when found.due_at <= moment.at
        and found.lease_until is null and found.expiry is null and not false
    then '' else ceil(extract(epoch from least(greatest(found.due_at, found.lease_until),
        moment.at + interval '1 day') - moment.at)
          * 1000)::text || e'\x1f' || case when found.lease_until > moment.at then '1' else '' end || e'\x1f' || case when found.expiry <= moment.at then '1' else '' end || e'\x1f' || coalesce((found.expiry at time zone 'utc')::text,
              '') || e'\x1f' || case when false then '1' else '' end end as rows
  from moment
  left join lateral (
        (select due.*
            from unnest($1::text::integer[], $2::text::bigint[]) as wait (lane, stream)
            cross join lateral (
              select row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
                  row.attempts, row.max_attempts, row.due_at, row.lease_until, row.expires_at as expiry,
                      row.ctid as ctid
                from "sagabox".outbox as row
                where row.lane::bigint = (wait.lane)::bigint and row.stream = wait.stream
                order by row.seq
                limit $5::integer
            ) as due)
    union all
        (select row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
              row.attempts, row.max_attempts, row.due_at, row.lease_until, row.expires_at as expiry, row.ctid as ctid
            from unnest($3::text::integer[], $4::text::bigint[]) as wait (lane, seq)
            cross join lateral (
              select ctid, * from "sagabox".outbox as own where own.lane = wait.lane and own.seq = wait.seq offset 0
            ) as row)
  ) as found on true;

-- sagabox.lanes.messages: on the outbox
select id || e'\x1f' || written_on::text || e'\x1f' || coalesce(key,
    '') || e'\x1f' || correlation_id || e'\x1f' || traceparent || e'\x1f' || source || e'\x1f' || (written_at at time zone 'utc')::text || e'\x1f' || case when kind = 'event'
    and priority = 5 and schema_version = 1 and headers = '{}' and causation_id is null
    and saga_id is null and aggregate_type is null and aggregate_id is null and target is null
    then '' else kind || e'\x1f' || priority::text || e'\x1f' || schema_version::text || e'\x1f' || coalesce(causation_id,
        '') || e'\x1f' || coalesce(saga_id, '') || e'\x1f' || coalesce(aggregate_type,
        '') || e'\x1f' || coalesce(aggregate_id, '') || e'\x1f' || coalesce(target,
        '') || e'\x1f' || headers end || e'\x1f' || data as messages
  from "sagabox".message
  where id = any($1::text::text[]) and written_on between $2::text::date and $3::text::date;

-- sagabox.queue.fetch: on the queue
with moment as materialized (
  select clock_timestamp() as at, pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
      (select (case when is_called then last_value else 0 end)::text from "sagabox".queue_seq) as tail,
      exists (select 1 from "sagabox".queue where priority <> 5) as express, $3::text::bigint[] as waiting,
          $4::text::bigint[] as busy, $5::text::text[] as resting ), read as materialized (
        select found.lane::text || e'\x1f' || found.seq::text || e'\x1f' || coalesce(found.stream::text,
            '') || e'\x1f' || found.topic || e'\x1f' || found.type || e'\x1f' || found.message_id || e'\x1f' || found.written_on::text || e'\x1f' || found.ctid::text || e'\x1f' || case when found.attempts = 0
            and found.max_attempts = 10 then ''
            else found.attempts::text || '/' || found.max_attempts::text end || e'\x1f' || case when found.due_at <= moment.at
                and found.lease_until is null and found.expiry is null and not found.blocked
            then '' else ceil(extract(epoch from least(greatest(found.due_at, found.lease_until),
                moment.at + interval '1 day') - moment.at)
                  * 1000)::text || e'\x1f' || case when found.lease_until > moment.at then '1' else '' end || e'\x1f' || case when found.expiry <= moment.at then '1' else '' end || e'\x1f' || coalesce((found.expiry at time zone 'utc')::text,
                      '') || e'\x1f' || case when found.blocked then '1' else '' end end as row, found.message_id
          from moment
          cross join lateral (
            select due.*
              from unnest($1::text::integer[], $2::text::bigint[]) as walk (lane, mark)
              cross join lateral (
                select row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
                    row.attempts, row.max_attempts, row.due_at, row.lease_until, row.expires_at as expiry,
                        row.ctid as ctid,
                    moment.express and row.stream is not null and exists (
                      select 1 from "sagabox".queue as earlier
                        where earlier.lane::bigint = (row.lane)::bigint and earlier.stream = row.stream
                          and earlier.priority <> 5 and earlier.seq < row.seq) as blocked
                  from "sagabox".queue as row
                  where row.lane = walk.lane and row.seq > walk.mark and row.priority = 5
                    and (row.stream is null or row.stream <> all(moment.waiting))
                    and row.seq <> all(moment.busy) and row.topic <> all(moment.resting)
                  order by row.seq
                  limit $6::integer
              ) as due
              limit $7::integer
          ) as found
      )
select moment.horizon, moment.tail, moment.express, (select string_agg(read.row, e'\x1e') from read) as rows from moment;

-- sagabox.queue.fetch: on the queue
with moment as materialized (
  select clock_timestamp() as at, pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
      (select (case when is_called then last_value else 0 end)::text from "sagabox".queue_seq) as tail,
      exists (select 1 from "sagabox".queue where priority <> 5) as express, $3::text::bigint[] as waiting,
          $4::text::bigint[] as busy, $5::text::text[] as resting ), read as materialized (
        select found.lane::text || e'\x1f' || found.seq::text || e'\x1f' || coalesce(found.stream::text,
            '') || e'\x1f' || found.topic || e'\x1f' || found.type || e'\x1f' || found.message_id || e'\x1f' || found.written_on::text || e'\x1f' || found.ctid::text || e'\x1f' || case when found.attempts = 0
            and found.max_attempts = 10 then ''
            else found.attempts::text || '/' || found.max_attempts::text end || e'\x1f' || case when found.due_at <= moment.at
                and found.lease_until is null and found.expiry is null and not found.blocked
            then '' else ceil(extract(epoch from least(greatest(found.due_at, found.lease_until),
                moment.at + interval '1 day') - moment.at)
                  * 1000)::text || e'\x1f' || case when found.lease_until > moment.at then '1' else '' end || e'\x1f' || case when found.expiry <= moment.at then '1' else '' end || e'\x1f' || coalesce((found.expiry at time zone 'utc')::text,
                      '') || e'\x1f' || case when found.blocked then '1' else '' end end as row, found.message_id
          from moment
          cross join lateral (
            select due.*
              from unnest($1::text::integer[], $2::text::bigint[]) as walk (lane, mark)
              cross join lateral (
                select row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
                    row.attempts, row.max_attempts, row.due_at, row.lease_until, row.expires_at as expiry,
                        row.ctid as ctid,
                    moment.express and row.stream is not null and exists (
                      select 1 from "sagabox".queue as earlier
                        where earlier.lane::bigint = (row.lane)::bigint and earlier.stream = row.stream
                          and earlier.priority <> 5 and earlier.seq < row.seq) as blocked
                  from "sagabox".queue as row
                  where row.lane = walk.lane and row.seq > walk.mark and row.priority = 5
                    and (row.stream is null or row.stream <> all(moment.waiting))
                    and row.seq <> all(moment.busy) and row.topic <> all(moment.resting)
                  order by row.seq
                  limit $6::integer
              ) as due
              limit $7::integer
          ) as found
      )
select moment.horizon, moment.tail, moment.express, (select string_agg(read.row, e'\x1e') from read) as rows,
    null as messages from moment
union all
select null, null, null, null, string_agg(id || e'\x1f' || written_on::text || e'\x1f' || coalesce(key,
    '') || e'\x1f' || correlation_id || e'\x1f' || traceparent || e'\x1f' || source || e'\x1f' || (written_at at time zone 'utc')::text || e'\x1f' || case when kind = 'event'
    and priority = 5 and schema_version = 1 and headers = '{}' and causation_id is null
      and saga_id is null and aggregate_type is null and aggregate_id is null and target is null
      then '' else kind || e'\x1f' || priority::text || e'\x1f' || schema_version::text || e'\x1f' || coalesce(causation_id,
          '') || e'\x1f' || coalesce(saga_id, '') || e'\x1f' || coalesce(aggregate_type,
          '') || e'\x1f' || coalesce(aggregate_id, '') || e'\x1f' || coalesce(target,
          '') || e'\x1f' || headers end || e'\x1f' || data, e'\x1e')
  from "sagabox".message
  where id = any(array(select message_id from read))
    and written_on between $8::text::date and $9::text::date
    and octet_length(data) + octet_length(headers) <= 8192;

-- sagabox.queue.express: on the queue
with moment as materialized (
  select clock_timestamp() as at, pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
      (select (case when is_called then last_value else 0 end)::text from "sagabox".queue_seq) as tail,
      exists (select 1 from "sagabox".queue where priority <> 5) as express, $3::text::bigint[] as waiting,
          $4::text::bigint[] as busy, $5::text::text[] as resting )
select moment.horizon, moment.tail, moment.express,
    found.lane::text || e'\x1f' || found.seq::text || e'\x1f' || coalesce(found.stream::text,
    '') || e'\x1f' || found.topic || e'\x1f' || found.type || e'\x1f' || found.message_id || e'\x1f' || found.written_on::text || e'\x1f' || found.ctid::text || e'\x1f' || case when found.attempts = 0
    and found.max_attempts = 10 then ''
    else found.attempts::text || '/' || found.max_attempts::text end || e'\x1f' || case when found.due_at <= moment.at
        and found.lease_until is null and found.expiry is null and not false
    then '' else ceil(extract(epoch from least(greatest(found.due_at, found.lease_until),
        moment.at + interval '1 day') - moment.at)
          * 1000)::text || e'\x1f' || case when found.lease_until > moment.at then '1' else '' end || e'\x1f' || case when found.expiry <= moment.at then '1' else '' end || e'\x1f' || coalesce((found.expiry at time zone 'utc')::text,
              '') || e'\x1f' || case when false then '1' else '' end end as rows,
    least(9,
        found.priority + floor(extract(epoch from moment.at - found.due_at) * 1000 / $2::double precision))::integer as rank
  from moment
  left join lateral (
    select due.*
      from unnest($1::text::integer[]) as walk (lane)
      cross join lateral (
        select row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
            row.attempts, row.max_attempts, row.due_at, row.lease_until, row.expires_at as expiry, row.ctid as ctid
          from "sagabox".queue as row
          where row.lane = walk.lane and row.priority <> 5
            and row.due_at <= moment.at and (row.lease_until is null or row.lease_until <= moment.at)
            and (row.stream is null or row.stream <> all(moment.waiting))
            and row.seq <> all(moment.busy) and row.topic <> all(moment.resting)
            and (row.stream is null or not exists (
              select 1 from "sagabox".queue as earlier
                where earlier.lane::bigint = (row.lane)::bigint and earlier.stream = row.stream
                    and earlier.seq < row.seq))
          order by row.priority desc, row.seq
          limit $6::integer
      ) as due
  ) as found on true
  order by rank desc, found.seq
  limit $7::integer;

-- sagabox.queue.reenter: on the queue
with moment as materialized (
  select clock_timestamp() as at, pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
      (select (case when is_called then last_value else 0 end)::text from "sagabox".queue_seq) as tail,
      exists (select 1 from "sagabox".queue where priority <> 5) as express )
select moment.horizon, moment.tail, moment.express,
    found.lane::text || e'\x1f' || found.seq::text || e'\x1f' || coalesce(found.stream::text,
    '') || e'\x1f' || found.topic || e'\x1f' || found.type || e'\x1f' || found.message_id || e'\x1f' || found.written_on::text || e'\x1f' || found.ctid::text || e'\x1f' || case when found.attempts = 0
    and found.max_attempts = 10 then ''
    else found.attempts::text || '/' || found.max_attempts::text end || e'\x1f' || case when found.due_at <= moment.at
        and found.lease_until is null and found.expiry is null and not false
    then '' else ceil(extract(epoch from least(greatest(found.due_at, found.lease_until),
        moment.at + interval '1 day') - moment.at)
          * 1000)::text || e'\x1f' || case when found.lease_until > moment.at then '1' else '' end || e'\x1f' || case when found.expiry <= moment.at then '1' else '' end || e'\x1f' || coalesce((found.expiry at time zone 'utc')::text,
              '') || e'\x1f' || case when false then '1' else '' end end as rows
  from moment
  left join lateral (
        (select due.*
            from unnest($1::text::integer[], $2::text::bigint[]) as wait (lane, stream)
            cross join lateral (
              select row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
                  row.attempts, row.max_attempts, row.due_at, row.lease_until, row.expires_at as expiry,
                      row.ctid as ctid
                from "sagabox".queue as row
                where row.lane::bigint = (wait.lane)::bigint and row.stream = wait.stream
                order by row.seq
                limit $5::integer
            ) as due)
    union all
        (select row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
              row.attempts, row.max_attempts, row.due_at, row.lease_until, row.expires_at as expiry, row.ctid as ctid
            from unnest($3::text::integer[], $4::text::bigint[]) as wait (lane, seq)
            cross join lateral (
              select ctid, * from "sagabox".queue as own where own.lane = wait.lane and own.seq = wait.seq offset 0
            ) as row)
  ) as found on true;

-- sagabox.lanes.join
insert into "sagabox".member (id, scope, worker, lease_until, process, backend, location, guest)
values ($1::text, $2::integer, $3::text, clock_timestamp() + $4::double precision * interval '1 ms', $5::text,
      case when $6::boolean then pg_backend_pid() end, $7::text, $8::boolean);

-- sagabox.lanes.renew
update "sagabox".member
  set lease_until = clock_timestamp() + $2::double precision * interval '1 ms',
      backend = case when $3::boolean then pg_backend_pid() end
  where id = $1::text and lease_until > clock_timestamp()
  returning pg_current_xact_id()::text as xid;

-- sagabox.lanes.look
select (select count(*)::integer from "sagabox".member where scope = $1::integer
    and member.lease_until > (select clock_timestamp()) and not guest) as members,
    (select count(*)::integer
        from "sagabox".member
        where scope = $1::integer and member.lease_until > (select clock_timestamp()) and not guest
            and id < $2::text) as rank,
    exists (select 1 from "sagabox".member
        where id = $2::text and member.lease_until > (select clock_timestamp())
            and backend is not distinct from case when $6::boolean then pg_backend_pid() end) as present,
    (select count(*)::integer
        from "sagabox".relay_lane as lane
        where lane.scope = $1::integer and not exists (select 1 from "sagabox".member where id = lane.owner
            and member.lease_until > (select clock_timestamp()))) as free,
    (select count(*)::integer from "sagabox".relay_lane as lane where lane.scope = $1::integer and lane.owner = $2::text
          and (lane.token <> all((select $3::text::text[])::text[])
                or lane.lane <> all((select $4::text::integer[])::integer[]))) as ghosts,
    coalesce((select json_object_agg(process, location) from "sagabox".member
        where scope = $1::integer and member.lease_until > (select clock_timestamp()) and backend is not null
            and process <> $5::text
          and case when exists (select 1 from pg_stat_get_activity(coalesce(member.backend,
              0))) then false else not exists (
            select 1 from "sagabox".member as part where part.process = member.process
                and exists (select 1 from pg_stat_get_activity(coalesce(part.backend, 0)))) end), '{}')::text as absent;

-- sagabox.lanes.dismiss
update "sagabox".member set lease_until = clock_timestamp()
  where id in (select id from "sagabox".member
      where process = any($1::text::text[]) and member.lease_until > (select clock_timestamp())
          and case when exists (select 1 from pg_stat_get_activity(coalesce(member.backend,
          0))) then false else not exists (
        select 1 from "sagabox".member as part where part.process = member.process
            and exists (select 1 from pg_stat_get_activity(coalesce(part.backend, 0)))) end
        and pg_postmaster_start_time() < clock_timestamp() - $2::double precision * interval '1 ms'
      for update skip locked)
  returning id;

-- sagabox.lanes.disown
update "sagabox".relay_lane as lane set owner = null, token = null, leased_at = null
  where lane.lane in (select lane.lane from "sagabox".relay_lane as lane where lane.scope = $1::integer
      and lane.owner = $2::text
        and (lane.token <> all((select $3::text::text[])::text[])
              or lane.lane <> all((select $4::text::integer[])::integer[]))
      order by lane.lane for update skip locked);

-- sagabox.lanes.acquire
with gone as materialized (
  select id from "sagabox".member
    where scope = $2::integer and not (member.lease_until > (select clock_timestamp())) for share skip locked),
forgotten as materialized (
  select distinct lane.owner
    from "sagabox".relay_lane as lane
    where lane.scope = $2::integer and lane.owner is not null
      and not exists (select 1 from "sagabox".member where id = lane.owner)),
free as materialized (
  select lane.lane
    from "sagabox".relay_lane as lane
    join unnest($5::text::integer[]) with ordinality as wish (lane, turn) on wish.lane = lane.lane
    where lane.scope = $2::integer
      and (lane.owner is null or lane.owner in (select id from gone)
            or lane.owner in (select owner from forgotten) or lane.owner = any($6::text::text[]))
    order by wish.turn
    limit $3::integer
    for update of lane skip locked
)
update "sagabox".relay_lane as lane
  set owner = $1::text, fence = lane.fence + 1, token = $4::text, leased_at = clock_timestamp()
  from free
  where lane.lane = free.lane
  returning lane.lane, lane.fence::text;

-- sagabox.lanes.release
with owned as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token order by held.lane for update of held skip locked
), busy as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token where held.lane not in (select lane from owned)
), released as (
  update "sagabox".relay_lane as lane
    set owner = null, token = null, leased_at = null
    from owned
    where lane.lane = owned.lane
)
select coalesce(array_agg(lane), '{}') as busy from busy;

-- sagabox.lanes.leave
delete from "sagabox".member where id = $1::text;

-- sagabox.lanes.reap
delete from "sagabox".member
  where id in (select id from "sagabox".member
      where scope = $1::integer and lease_until < clock_timestamp() - interval '1 second'
      for update skip locked)
  returning id, worker;

-- sagabox.outbox.due: on the outbox
select exists (
  select 1
    from "sagabox".relay_lane as lane
    cross join lateral (
      select 1 from "sagabox".outbox as row
        where row.lane = lane.lane and not coalesce((row.due_at > clock_timestamp()
            or row.lease_until > clock_timestamp()), false)
          and not exists (
            select 1 from "sagabox".outbox as earlier
              where earlier.lane::bigint = (row.lane)::bigint and earlier.stream = row.stream and earlier.seq < row.seq
                  and (earlier.due_at > clock_timestamp() or earlier.lease_until > clock_timestamp()))
        limit 1
    ) as due
    where lane.scope = $1::integer and lane.owner is distinct from $2::text
      and not exists (
        select 1 from "sagabox".member
          where id = lane.owner and not guest and lease_until > clock_timestamp())
) as due;

-- sagabox.queue.due: on the queue
select exists (
  select 1
    from "sagabox".relay_lane as lane
    cross join lateral (
      select 1 from "sagabox".queue as row
        where row.lane = lane.lane and not coalesce((row.due_at > clock_timestamp()
            or row.lease_until > clock_timestamp()), false)
          and not exists (
            select 1 from "sagabox".queue as earlier
              where earlier.lane::bigint = (row.lane)::bigint and earlier.stream = row.stream and earlier.seq < row.seq
                  and (earlier.due_at > clock_timestamp() or earlier.lease_until > clock_timestamp()))
        limit 1
    ) as due
    where lane.scope = $1::integer and lane.owner is distinct from $2::text
      and not exists (
        select 1 from "sagabox".member
          where id = lane.owner and not guest and lease_until > clock_timestamp())
) as due;

-- ══ src/outbox/statements.ts ═══════════════════════════════════════════════════════════════════════════════════════

-- sagabox.outbox.sent
with owned as materialized (
  select held.lane
    from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence and claim.token = held.token
    order by held.lane
    for update of held
), gone as (
  delete from "sagabox".outbox as row
    using unnest($4::text::integer[], $5::text::bigint[], $6::text::text[]) as done (lane, seq, id)
    where row.lane = done.lane and row.seq = done.seq and row.message_id = done.id
        and (select count(*) from owned) = cardinality($1::text::integer[])
    returning row.lane, row.seq, row.again, row.message_id
), noted as (insert into "sagabox".receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs,
    again_ids)
  select lane, min(seq), max(seq), array_agg(seq order by seq), $7::text, clock_timestamp(),
      (clock_timestamp() at time zone 'utc')::date, coalesce(array_agg(seq) filter (where again), '{}'),
          array_agg(message_id) filter (where again)
    from gone group by lane)
select pg_current_xact_id()::text as xid,
    (select coalesce(array_agg(lane), '{}') from owned) as owned;

-- sagabox.outbox.sent_in_place
with owned as materialized (
  select held.lane
    from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence and claim.token = held.token
    order by held.lane
    for update of held
), gone as (
  delete from "sagabox".outbox as row
    where row.ctid = any($4::text::tid[]) and (select count(*) from owned) = cardinality($1::text::integer[])
    returning row.lane, row.seq, row.again, row.message_id
), noted as (insert into "sagabox".receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs,
    again_ids)
  select lane, min(seq), max(seq), array_agg(seq order by seq), $6::text, clock_timestamp(),
      (clock_timestamp() at time zone 'utc')::date, coalesce(array_agg(seq) filter (where again), '{}'),
          array_agg(message_id) filter (where again)
    from gone group by lane)
select pg_current_xact_id()::text as xid,
    (select coalesce(array_agg(lane), '{}') from owned) as owned,
    (select case when not (select count(*) from owned) = cardinality($1::text::integer[])
        or array_agg(seq order by seq) = $5::text::bigint[] then count(*)::integer
          else ('sagabox settles a batch by name instead, since rows of it have moved: ' || count(*))::integer
          end from gone) as gone;

-- sagabox.outbox.sent_past_locks
with owned as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token order by held.lane for update of held skip locked
), busy as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token where held.lane not in (select lane from owned)
), there as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($4::text::integer[], $5::text::bigint[],
      $6::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where row.lane in (select lane from owned)
), free as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($4::text::integer[], $5::text::bigint[],
      $6::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where row.lane in (select lane from owned) for update of row skip locked
), locked as materialized (
  select lane, seq, stream from there where (lane, seq) not in (select lane, seq from free)
), going as materialized (
  select free.lane, free.seq from free
    where not false or not exists (
      select 1 from locked where locked.stream = free.stream and locked.seq < free.seq)
), gone as (
  delete from "sagabox".outbox as row using going
    where row.lane = going.lane and row.seq = going.seq
    returning row.lane, row.seq, row.again, row.message_id
), noted as (insert into "sagabox".receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs,
    again_ids)
  select lane, min(seq), max(seq), array_agg(seq order by seq), $7::text, clock_timestamp(),
      (clock_timestamp() at time zone 'utc')::date, coalesce(array_agg(seq) filter (where again), '{}'),
          array_agg(message_id) filter (where again)
    from gone group by lane)
select pg_current_xact_id()::text as xid,
    (select coalesce(array_agg(lane), '{}') from owned) as owned, (select coalesce(array_agg(lane),
        '{}') from busy) as busy, (select coalesce(array_agg(seq::text), '{}') from there
        where (lane, seq) not in (select lane, seq from going)) as left_out;

-- sagabox.outbox.failed
with owned as materialized (
  select held.lane
    from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence and claim.token = held.token
    order by held.lane
    for update of held
), kept as (
  update "sagabox".outbox as row
    set attempts = row.attempts + 1, lease_until = null, last_error = failure.error,
      due_at = clock_timestamp() + failure.delay_ms * interval '1 ms'
    from unnest($4::text::integer[], $5::text::bigint[], $6::text::text[], $7::text::double precision[],
        $8::text::text[])
      as failure (lane, seq, id, delay_ms, error)
    where row.lane = failure.lane and row.seq = failure.seq and row.message_id = failure.id
        and (select count(*) from owned) = cardinality($1::text::integer[])
    returning row.lane, row.seq
) select pg_current_xact_id()::text as xid,
    (select coalesce(array_agg(lane), '{}') from owned) as owned;

-- sagabox.outbox.failed_past_locks
with owned as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token order by held.lane for update of held skip locked
), busy as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token where held.lane not in (select lane from owned)
), there as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($4::text::integer[], $5::text::bigint[],
      $6::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where row.lane in (select lane from owned)
), free as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($4::text::integer[], $5::text::bigint[],
      $6::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where row.lane in (select lane from owned) for update of row skip locked
), locked as materialized (
  select lane, seq, stream from there where (lane, seq) not in (select lane, seq from free)
), going as materialized (
  select free.lane, free.seq from free
    where not false or not exists (
      select 1 from locked where locked.stream = free.stream and locked.seq < free.seq)
), kept as (
  update "sagabox".outbox as row
    set attempts = row.attempts + 1, lease_until = null, last_error = failure.error,
      due_at = clock_timestamp() + failure.delay_ms * interval '1 ms'
    from unnest($4::text::integer[], $5::text::bigint[], $6::text::text[], $7::text::double precision[],
        $8::text::text[])
      as failure (lane, seq, id, delay_ms, error)
    where row.lane = failure.lane and row.seq = failure.seq and row.message_id = failure.id and (row.lane,
        row.seq) in (select lane, seq from going)
    returning row.lane, row.seq
) select pg_current_xact_id()::text as xid,
    (select coalesce(array_agg(lane), '{}') from owned) as owned, (select coalesce(array_agg(lane),
        '{}') from busy) as busy, (select coalesce(array_agg(seq::text), '{}') from there
        where (lane, seq) not in (select lane, seq from going)) as left_out;

-- sagabox.outbox.dead
with owned as materialized (
  select held.lane
    from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence and claim.token = held.token
    order by held.lane
    for update of held
), dying as materialized (
  select row.lane as row_lane, row.seq as row_seq, row.attempts, message.*, death.counts_as_attempt, death.reason,
      death.error_type,
      death.error_message, death.stack_trace, death.fingerprint,
      message.holds_on_death and death.reason <> 'expired' as stays
    from unnest($4::text::integer[], $5::text::bigint[], $6::text::text[], $7::text::boolean[], $8::text::text[],
          $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[])
      as death (lane, seq, id, counts_as_attempt, reason, error_type, error_message, stack_trace, fingerprint)
    join "sagabox".outbox as row on row.lane = death.lane and row.seq = death.seq and row.message_id = death.id
    join "sagabox".message on message.id = row.message_id and message.written_on = row.written_on
    where (select count(*) from owned) = cardinality($1::text::integer[])
), gone as (
  delete from "sagabox".outbox as row using dying
    where row.lane = dying.row_lane and row.seq = dying.row_seq and not dying.stays
), tomb as (
  update "sagabox".outbox as row
    set due_at = 'infinity', lease_until = null, attempts = row.attempts + dying.counts_as_attempt::integer::smallint,
      last_error = dying.error_message
    from dying
    where row.lane = dying.row_lane and row.seq = dying.row_seq and dying.stays
), buried as (
  insert into "sagabox".dead_letter
      (origin, message_id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
            correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
            written_at, expires_at, reason, attempts, error_type, error_message, stack_trace, held_lane, held_seq,
            fingerprint)
  select 'outbox', id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
      written_at, expires_at, reason, attempts + counts_as_attempt::integer, error_type, error_message, stack_trace,
      case when stays then row_lane end, case when stays then row_seq end, fingerprint
    from dying
) select pg_current_xact_id()::text as xid,
    (select coalesce(array_agg(lane), '{}') from owned) as owned;

-- sagabox.outbox.dead_past_locks
with owned as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token order by held.lane for update of held skip locked
), busy as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token where held.lane not in (select lane from owned)
), there as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($4::text::integer[], $5::text::bigint[],
      $6::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where row.lane in (select lane from owned)
), free as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($4::text::integer[], $5::text::bigint[],
      $6::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where row.lane in (select lane from owned) for update of row skip locked
), locked as materialized (
  select lane, seq, stream from there where (lane, seq) not in (select lane, seq from free)
), going as materialized (
  select free.lane, free.seq from free
    where not false or not exists (
      select 1 from locked where locked.stream = free.stream and locked.seq < free.seq)
), dying as materialized (
  select row.lane as row_lane, row.seq as row_seq, row.attempts, message.*, death.counts_as_attempt, death.reason,
      death.error_type,
      death.error_message, death.stack_trace, death.fingerprint,
      message.holds_on_death and death.reason <> 'expired' as stays
    from unnest($4::text::integer[], $5::text::bigint[], $6::text::text[], $7::text::boolean[], $8::text::text[],
          $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[])
      as death (lane, seq, id, counts_as_attempt, reason, error_type, error_message, stack_trace, fingerprint)
    join "sagabox".outbox as row on row.lane = death.lane and row.seq = death.seq and row.message_id = death.id
    join "sagabox".message on message.id = row.message_id and message.written_on = row.written_on
    where (row.lane, row.seq) in (select lane, seq from going)
), gone as (
  delete from "sagabox".outbox as row using dying
    where row.lane = dying.row_lane and row.seq = dying.row_seq and not dying.stays
), tomb as (
  update "sagabox".outbox as row
    set due_at = 'infinity', lease_until = null, attempts = row.attempts + dying.counts_as_attempt::integer::smallint,
      last_error = dying.error_message
    from dying
    where row.lane = dying.row_lane and row.seq = dying.row_seq and dying.stays
), buried as (
  insert into "sagabox".dead_letter
      (origin, message_id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
            correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
            written_at, expires_at, reason, attempts, error_type, error_message, stack_trace, held_lane, held_seq,
            fingerprint)
  select 'outbox', id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
      written_at, expires_at, reason, attempts + counts_as_attempt::integer, error_type, error_message, stack_trace,
      case when stays then row_lane end, case when stays then row_seq end, fingerprint
    from dying
) select pg_current_xact_id()::text as xid,
    (select coalesce(array_agg(lane), '{}') from owned) as owned, (select coalesce(array_agg(lane),
        '{}') from busy) as busy, (select coalesce(array_agg(seq::text), '{}') from there
        where (lane, seq) not in (select lane, seq from going)) as left_out;

-- sagabox.outbox.sent_leased
with gone as (
  delete from "sagabox".outbox as row
    using unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as done (lane, seq, id)
    where row.lane = done.lane and row.seq = done.seq and row.message_id = done.id
    returning row.lane, row.seq, row.again, row.message_id
)
insert into "sagabox".receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs, again_ids)
select lane, min(seq), max(seq), array_agg(seq order by seq), $4::text, clock_timestamp(),
    (clock_timestamp() at time zone 'utc')::date, coalesce(array_agg(seq) filter (where again), '{}'),
        array_agg(message_id) filter (where again)
  from gone group by lane;

-- sagabox.outbox.sent_leased_past_locks
with there as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($1::text::integer[], $2::text::bigint[],
      $3::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where true
), free as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($1::text::integer[], $2::text::bigint[],
      $3::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where true for update of row skip locked
), locked as materialized (
  select lane, seq, stream from there where (lane, seq) not in (select lane, seq from free)
), going as materialized (
  select free.lane, free.seq from free
    where not false or not exists (
      select 1 from locked where locked.stream = free.stream and locked.seq < free.seq)
), gone as (
  delete from "sagabox".outbox as row using going
    where row.lane = going.lane and row.seq = going.seq
    returning row.lane, row.seq, row.again, row.message_id
), noted as (insert into "sagabox".receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs,
    again_ids)
  select lane, min(seq), max(seq), array_agg(seq order by seq), $4::text, clock_timestamp(),
      (clock_timestamp() at time zone 'utc')::date, coalesce(array_agg(seq) filter (where again), '{}'),
          array_agg(message_id) filter (where again)
    from gone group by lane)
select (select coalesce(array_agg(seq::text), '{}') from there
    where (lane, seq) not in (select lane, seq from going)) as left_out;

-- sagabox.outbox.committed_leased
select found.seq::text
  from unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as given (lane, seq, id)
  cross join lateral (
    select row.seq, row.lease_until from "sagabox".outbox as row where row.lane = given.lane and row.seq = given.seq
        and row.message_id = given.id offset 0
  ) as found
  where found.lease_until > clock_timestamp();

-- sagabox.outbox.release_leased
with there as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($1::text::integer[], $2::text::bigint[],
      $3::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where true
), free as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($1::text::integer[], $2::text::bigint[],
      $3::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where true for update of row skip locked
), locked as materialized (
  select lane, seq, stream from there where (lane, seq) not in (select lane, seq from free)
), going as materialized (
  select free.lane, free.seq from free
    where not false or not exists (
      select 1 from locked where locked.stream = free.stream and locked.seq < free.seq)
)
update "sagabox".outbox as row
  set lease_until = null
  from going
  where row.lane = going.lane and row.seq = going.seq and row.lease_until is not null;

-- sagabox.outbox.publish
with moment as materialized (select pg_current_xact_id() as xid, clock_timestamp() as at ), given as materialized (
  select nextval('"sagabox".outbox_seq') as seq, moment.at, (moment.at at time zone 'utc')::date as written_on,
      moment.at + listed.ttl_ms * interval '1 ms' as expires_at, listed.*
    from moment, unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[], $5::text::text[],
        $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[], $11::text::text[],
        $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[], $16::text::text[],
        $17::text::smallint[], $18::text::smallint[], $19::text::boolean[], $20::text::text[], $21::text::text[],
        $22::text::double precision[]) as listed (id, lane, stream, kind, type, schema_version, topic, key,
        aggregate_type, aggregate_id, saga_id, correlation_id, causation_id, traceparent, source, target, priority,
        max_attempts, holds_on_death, headers, data, ttl_ms)
    where moment.xid is not null
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data,
      seq, written_on, at, expires_at from given
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select lane, seq, stream, topic, type, id, written_on, priority, max_attempts, at, expires_at, null from given;

-- sagabox.outbox.publish_leased
with moment as materialized (select pg_current_xact_id() as xid, clock_timestamp() as at ), given as materialized (
  select nextval('"sagabox".outbox_seq') as seq, moment.at, (moment.at at time zone 'utc')::date as written_on,
      moment.at + listed.ttl_ms * interval '1 ms' as expires_at, listed.*
    from moment, unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[], $5::text::text[],
        $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[], $11::text::text[],
        $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[], $16::text::text[],
        $17::text::smallint[], $18::text::smallint[], $19::text::boolean[], $20::text::text[], $21::text::text[],
        $22::text::double precision[]) as listed (id, lane, stream, kind, type, schema_version, topic, key,
        aggregate_type, aggregate_id, saga_id, correlation_id, causation_id, traceparent, source, target, priority,
        max_attempts, holds_on_death, headers, data, ttl_ms)
    where moment.xid is not null
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data,
      seq, written_on, at, expires_at from given
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select lane, seq, stream, topic, type, id, written_on, priority, max_attempts, at, expires_at,
    case when current_setting('transaction_isolation') = 'read committed' and (given.stream is null or (
  select true from "sagabox".outbox as earlier
    where earlier.lane::bigint = (given.lane)::bigint and earlier.stream = given.stream limit 1) is null)
    then at + $23::double precision * interval '1 ms' end from given
  returning message_id as id, lane, seq::text, lease_until is not null as leased,
    to_char(due_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as written_at;

-- sagabox.outbox.publish_one
with drawn as materialized (
  select nextval(case when pg_current_xact_id() is not null then '"sagabox".outbox_seq'::regclass end) as seq,
      clock_timestamp() as at
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select $1::text::text, $2::text::integer, $3::text::bigint, $4::text::text, $5::text::text, $6::text::integer,
      $7::text::text, $8::text::text, $9::text::text, $10::text::text, $11::text::text, $12::text::text,
      $13::text::text, $14::text::text, $15::text::text, $16::text::text, $17::text::smallint, $18::text::smallint,
      $19::text::boolean, $20::text::text, $21::text::text, seq, (at at time zone 'utc')::date, at,
      at + $22::text::double precision * interval '1 ms' from drawn
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select $2::text::integer, seq, $3::text::bigint, $7::text::text, $5::text::text, $1::text::text,
    (at at time zone 'utc')::date,
    $17::text::smallint, $18::text::smallint, at, at + $22::text::double precision * interval '1 ms', null::timestamptz
  from drawn;

-- sagabox.outbox.publish_usual
with drawn as materialized (
  select nextval(case when pg_current_xact_id() is not null then '"sagabox".outbox_seq'::regclass end) as seq,
      clock_timestamp() as at
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, correlation_id, traceparent,
      source, priority, max_attempts, data, seq, written_on, written_at, expires_at)
  select $1::text::text, $2::text::integer, $3::text::bigint, $4::text::text, $5::text::text, $6::text::integer,
      $7::text::text, $8::text::text, $9::text::text, $10::text::text, $11::text::text, $12::text::smallint,
      $13::text::smallint, $14::text::text, seq, (at at time zone 'utc')::date, at, null::timestamptz from drawn
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select $2::text::integer, seq, $3::text::bigint, $7::text::text, $5::text::text, $1::text::text,
    (at at time zone 'utc')::date,
    $12::text::smallint, $13::text::smallint, at, null::timestamptz, null::timestamptz
  from drawn;

-- sagabox.outbox.publish_leased_one
with drawn as materialized (
  select nextval(case when pg_current_xact_id() is not null then '"sagabox".outbox_seq'::regclass end) as seq,
      clock_timestamp() as at
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select $1::text::text, $2::text::integer, $3::text::bigint, $4::text::text, $5::text::text, $6::text::integer,
      $7::text::text, $8::text::text, $9::text::text, $10::text::text, $11::text::text, $12::text::text,
      $13::text::text, $14::text::text, $15::text::text, $16::text::text, $17::text::smallint, $18::text::smallint,
      $19::text::boolean, $20::text::text, $21::text::text, seq, (at at time zone 'utc')::date, at,
      at + $22::text::double precision * interval '1 ms' from drawn
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select $2::text::integer, seq, $3::text::bigint, $7::text::text, $5::text::text, $1::text::text,
    (at at time zone 'utc')::date,
    $17::text::smallint, $18::text::smallint, at, at + $22::text::double precision * interval '1 ms',
        case when current_setting('transaction_isolation') = 'read committed' and ($3::text::bigint is null or (
      select true from "sagabox".outbox as earlier
        where earlier.lane::bigint = ($2::text::integer)::bigint and earlier.stream = $3::text::bigint limit 1) is null)
    then at + $23::double precision * interval '1 ms' end
  from drawn
  returning message_id as id, lane, seq::text, lease_until is not null as leased,
    to_char(due_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as written_at;

-- sagabox.outbox.publish_leased_usual
with drawn as materialized (
  select nextval(case when pg_current_xact_id() is not null then '"sagabox".outbox_seq'::regclass end) as seq,
      clock_timestamp() as at
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, correlation_id, traceparent,
      source, priority, max_attempts, data, seq, written_on, written_at, expires_at)
  select $1::text::text, $2::text::integer, $3::text::bigint, $4::text::text, $5::text::text, $6::text::integer,
      $7::text::text, $8::text::text, $9::text::text, $10::text::text, $11::text::text, $12::text::smallint,
      $13::text::smallint, $14::text::text, seq, (at at time zone 'utc')::date, at, null::timestamptz from drawn
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select $2::text::integer, seq, $3::text::bigint, $7::text::text, $5::text::text, $1::text::text,
    (at at time zone 'utc')::date,
    $12::text::smallint, $13::text::smallint, at, null::timestamptz,
        case when current_setting('transaction_isolation') = 'read committed' and ($3::text::bigint is null or (
      select true from "sagabox".outbox as earlier
        where earlier.lane::bigint = ($2::text::integer)::bigint and earlier.stream = $3::text::bigint limit 1) is null)
    then at + $15::double precision * interval '1 ms' end
  from drawn
  returning message_id as id, lane, seq::text, lease_until is not null as leased,
    to_char(due_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as written_at;

-- sagabox.outbox.publish_once
with moment as materialized (select pg_current_xact_id() as xid, clock_timestamp() as at ), fresh as (
  insert into "sagabox".published_id (id, written_on)
  select listed.id, (moment.at at time zone 'utc')::date from moment, unnest($1::text::text[], $2::text::integer[],
      $3::text::bigint[], $4::text::text[], $5::text::text[], $6::text::integer[], $7::text::text[], $8::text::text[],
      $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[],
      $15::text::text[], $16::text::text[], $17::text::smallint[], $18::text::smallint[], $19::text::boolean[],
      $20::text::text[], $21::text::text[], $22::text::double precision[]) as listed (id, lane, stream, kind, type,
      schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id, causation_id, traceparent,
      source, target, priority, max_attempts, holds_on_death, headers, data,
      ttl_ms) where not "sagabox".has_message(listed.id)
    on conflict do nothing
    returning id
), given as materialized (
  select nextval('"sagabox".outbox_seq') as seq, moment.at, (moment.at at time zone 'utc')::date as written_on,
      moment.at + listed.ttl_ms * interval '1 ms' as expires_at, listed.*
    from moment, (select * from unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[],
        $5::text::text[], $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[],
        $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[],
        $16::text::text[], $17::text::smallint[], $18::text::smallint[], $19::text::boolean[], $20::text::text[],
        $21::text::text[], $22::text::double precision[]) with ordinality as listed (id, lane, stream, kind, type,
        schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id, causation_id, traceparent,
        source, target, priority, max_attempts, holds_on_death, headers, data, ttl_ms, turn)
        where listed.id in (select id from fresh)
        order by turn) as listed
    where moment.xid is not null
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data,
      seq, written_on, at, expires_at from given
), sending as (
  insert into "sagabox".outbox
      (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
  select lane, seq, stream, topic, type, id, written_on, priority, max_attempts, at, expires_at, null from given
)
select id from fresh;

-- sagabox.outbox.publish_named
with moment as materialized (select pg_current_xact_id() as xid, clock_timestamp() as at ), fresh as (
  insert into "sagabox".published_id (id, written_on)
  select listed.id, (moment.at at time zone 'utc')::date from moment, unnest($1::text::text[], $2::text::integer[],
      $3::text::bigint[], $4::text::text[], $5::text::text[], $6::text::integer[], $7::text::text[], $8::text::text[],
      $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[],
      $15::text::text[], $16::text::text[], $17::text::smallint[], $18::text::smallint[], $19::text::boolean[],
      $20::text::text[], $21::text::text[], $22::text::double precision[]) as listed (id, lane, stream, kind, type,
      schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id, causation_id, traceparent,
      source, target, priority, max_attempts, holds_on_death, headers, data, ttl_ms)
    on conflict do nothing
    returning id
), given as materialized (
  select nextval('"sagabox".outbox_seq') as seq, moment.at, (moment.at at time zone 'utc')::date as written_on,
      moment.at + listed.ttl_ms * interval '1 ms' as expires_at, listed.*
    from moment, (select * from unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[],
        $5::text::text[], $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[],
        $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[],
        $16::text::text[], $17::text::smallint[], $18::text::smallint[], $19::text::boolean[], $20::text::text[],
        $21::text::text[], $22::text::double precision[]) with ordinality as listed (id, lane, stream, kind, type,
        schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id, causation_id, traceparent,
        source, target, priority, max_attempts, holds_on_death, headers, data, ttl_ms, turn)
        where listed.id in (select id from fresh)
        order by turn) as listed
    where moment.xid is not null
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data,
      seq, written_on, at, expires_at from given
), sending as (
  insert into "sagabox".outbox
      (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
  select lane, seq, stream, topic, type, id, written_on, priority, max_attempts, at, expires_at, null from given
)
select id from fresh;

-- sagabox.outbox.schedule
with moment as materialized (select clock_timestamp() as at )
insert into "sagabox".scheduled (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
    saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers,
    data, due_at, written_at, expires_at)
select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id,
    causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data, due_at,
    clock_timestamp(), due_at + ttl_ms * interval '1 ms'
  from (select listed.*, coalesce(to_timestamp(listed.at_ms / 1000),
      clock_timestamp() + listed.delay_ms * interval '1 ms') as due_at
      from moment, unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[], $5::text::text[],
          $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[],
          $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[],
          $16::text::text[], $17::text::smallint[], $18::text::smallint[], $19::text::boolean[], $20::text::text[],
          $21::text::text[], $22::text::double precision[], $23::text::double precision[],
          $24::text::double precision[])
        as listed (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
            correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers,
            data, ttl_ms, delay_ms, at_ms)) as listed;

-- sagabox.outbox.reserve_ids
with moment as materialized (select clock_timestamp() as at ),
fresh as (
  insert into "sagabox".published_id (id, written_on)
  select listed.id, (moment.at at time zone 'utc')::date from moment,
      unnest($1::text::text[]) as listed (id) where not "sagabox".has_message(listed.id)
    on conflict do nothing
    returning id
)
select id from fresh;

-- sagabox.outbox.reserve_names
with moment as materialized (select clock_timestamp() as at ),
fresh as (
  insert into "sagabox".published_id (id, written_on)
  select listed.id, (moment.at at time zone 'utc')::date from moment, unnest($1::text::text[]) as listed (id)
    on conflict do nothing
    returning id
)
select id from fresh;

-- sagabox.outbox.schedule_once
with moment as materialized (select clock_timestamp() as at), fresh as (
  insert into "sagabox".published_id (id, written_on)
  select listed.id, (moment.at at time zone 'utc')::date from moment,
      unnest($1::text::text[]) as listed (id) where not "sagabox".has_message(listed.id)
    on conflict do nothing
    returning id
)
insert into "sagabox".scheduled (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
    saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers,
    data, due_at, written_at, expires_at)
select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id,
    causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data, due_at,
    clock_timestamp(), due_at + ttl_ms * interval '1 ms'
  from (select listed.*, coalesce(to_timestamp(listed.at_ms / 1000),
      clock_timestamp() + listed.delay_ms * interval '1 ms') as due_at
      from moment, unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[], $5::text::text[],
          $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[],
          $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[],
          $16::text::text[], $17::text::smallint[], $18::text::smallint[], $19::text::boolean[], $20::text::text[],
          $21::text::text[], $22::text::double precision[], $23::text::double precision[],
          $24::text::double precision[])
        as listed (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
            correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers,
            data, ttl_ms, delay_ms, at_ms)) as listed where listed.id in (select id from fresh)
  returning id;

-- sagabox.outbox.schedule_named
with moment as materialized (select clock_timestamp() as at), fresh as (
  insert into "sagabox".published_id (id, written_on)
  select listed.id, (moment.at at time zone 'utc')::date from moment, unnest($1::text::text[]) as listed (id)
    on conflict do nothing
    returning id
)
insert into "sagabox".scheduled (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
    saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers,
    data, due_at, written_at, expires_at)
select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id,
    causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data, due_at,
    clock_timestamp(), due_at + ttl_ms * interval '1 ms'
  from (select listed.*, coalesce(to_timestamp(listed.at_ms / 1000),
      clock_timestamp() + listed.delay_ms * interval '1 ms') as due_at
      from moment, unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[], $5::text::text[],
          $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[],
          $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[],
          $16::text::text[], $17::text::smallint[], $18::text::smallint[], $19::text::boolean[], $20::text::text[],
          $21::text::text[], $22::text::double precision[], $23::text::double precision[],
          $24::text::double precision[])
        as listed (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
            correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers,
            data, ttl_ms, delay_ms, at_ms)) as listed where listed.id in (select id from fresh)
  returning id;

-- sagabox.outbox.lock_streams
select pg_advisory_xact_lock(hashtextextended('sagabox.stream.' || stream, 0))
  from (select stream from unnest($1::text::text[]) as stream order by stream) as sorted;

-- sagabox.outbox.move_due
with turn as materialized (
  select pg_try_advisory_xact_lock(hashtextextended('sagabox.schedule.' || $2::text, 0)) as alone
), due as materialized (
  delete from "sagabox".scheduled
    where ctid = any(array(select ctid from "sagabox".scheduled
        where due_at <= (select clock_timestamp()) and (select alone from turn)
        order by due_at, id
        limit $1::integer
        for update skip locked))
    returning *
), given as materialized (
  select nextval('"sagabox".outbox_seq') as seq, clock_timestamp() as at,
      (clock_timestamp() at time zone 'utc')::date as written_on, due.*
    from (select * from due order by due_at, id) as due
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data,
      seq, written_on, written_at, expires_at from given
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select lane, seq, stream, topic, type, id, written_on, priority, max_attempts, at, expires_at,
    null::timestamptz from given
  returning lane;

-- sagabox.outbox.next_due
select extract(epoch from (select due_at from "sagabox".scheduled order by due_at, id limit 1)
      - clock_timestamp())::double precision * 1000 as wait_ms;

-- sagabox.outbox.publish_guarded
with inside as materialized (select pg_current_xact_id_if_assigned() is not null as numbered),
    moment as materialized (select pg_current_xact_id() as xid,
    clock_timestamp() as at from inside where inside.numbered), given as materialized (
  select nextval('"sagabox".outbox_seq') as seq, moment.at, (moment.at at time zone 'utc')::date as written_on,
      moment.at + listed.ttl_ms * interval '1 ms' as expires_at, listed.*
    from moment, unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[], $5::text::text[],
        $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[], $11::text::text[],
        $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[], $16::text::text[],
        $17::text::smallint[], $18::text::smallint[], $19::text::boolean[], $20::text::text[], $21::text::text[],
        $22::text::double precision[]) as listed (id, lane, stream, kind, type, schema_version, topic, key,
        aggregate_type, aggregate_id, saga_id, correlation_id, causation_id, traceparent, source, target, priority,
        max_attempts, holds_on_death, headers, data, ttl_ms)
    where moment.xid is not null
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data,
      seq, written_on, at, expires_at from given
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select lane, seq, stream, topic, type, id, written_on, priority, max_attempts, at, expires_at, null from given;

-- sagabox.outbox.publish_leased_guarded
with inside as materialized (select pg_current_xact_id_if_assigned() is not null as numbered),
    moment as materialized (select pg_current_xact_id() as xid,
    clock_timestamp() as at from inside where inside.numbered), given as materialized (
  select nextval('"sagabox".outbox_seq') as seq, moment.at, (moment.at at time zone 'utc')::date as written_on,
      moment.at + listed.ttl_ms * interval '1 ms' as expires_at, listed.*
    from moment, unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[], $5::text::text[],
        $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[], $11::text::text[],
        $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[], $16::text::text[],
        $17::text::smallint[], $18::text::smallint[], $19::text::boolean[], $20::text::text[], $21::text::text[],
        $22::text::double precision[]) as listed (id, lane, stream, kind, type, schema_version, topic, key,
        aggregate_type, aggregate_id, saga_id, correlation_id, causation_id, traceparent, source, target, priority,
        max_attempts, holds_on_death, headers, data, ttl_ms)
    where moment.xid is not null
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data,
      seq, written_on, at, expires_at from given
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select lane, seq, stream, topic, type, id, written_on, priority, max_attempts, at, expires_at,
    case when current_setting('transaction_isolation') = 'read committed' and (given.stream is null or (
  select true from "sagabox".outbox as earlier
    where earlier.lane::bigint = (given.lane)::bigint and earlier.stream = given.stream limit 1) is null)
    then at + $23::double precision * interval '1 ms' end from given
  returning message_id as id, lane, seq::text, lease_until is not null as leased,
    to_char(due_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as written_at;

-- sagabox.outbox.publish_one_guarded
with inside as materialized (select pg_current_xact_id_if_assigned() is not null as numbered), drawn as materialized (
  select nextval(case when pg_current_xact_id() is not null then '"sagabox".outbox_seq'::regclass end) as seq,
      clock_timestamp() as at
    from inside where inside.numbered
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select $1::text::text, $2::text::integer, $3::text::bigint, $4::text::text, $5::text::text, $6::text::integer,
      $7::text::text, $8::text::text, $9::text::text, $10::text::text, $11::text::text, $12::text::text,
      $13::text::text, $14::text::text, $15::text::text, $16::text::text, $17::text::smallint, $18::text::smallint,
      $19::text::boolean, $20::text::text, $21::text::text, seq, (at at time zone 'utc')::date, at,
      at + $22::text::double precision * interval '1 ms' from drawn
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select $2::text::integer, seq, $3::text::bigint, $7::text::text, $5::text::text, $1::text::text,
    (at at time zone 'utc')::date,
    $17::text::smallint, $18::text::smallint, at, at + $22::text::double precision * interval '1 ms', null::timestamptz
  from drawn;

-- sagabox.outbox.publish_usual_guarded
with inside as materialized (select pg_current_xact_id_if_assigned() is not null as numbered), drawn as materialized (
  select nextval(case when pg_current_xact_id() is not null then '"sagabox".outbox_seq'::regclass end) as seq,
      clock_timestamp() as at
    from inside where inside.numbered
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, correlation_id, traceparent,
      source, priority, max_attempts, data, seq, written_on, written_at, expires_at)
  select $1::text::text, $2::text::integer, $3::text::bigint, $4::text::text, $5::text::text, $6::text::integer,
      $7::text::text, $8::text::text, $9::text::text, $10::text::text, $11::text::text, $12::text::smallint,
      $13::text::smallint, $14::text::text, seq, (at at time zone 'utc')::date, at, null::timestamptz from drawn
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select $2::text::integer, seq, $3::text::bigint, $7::text::text, $5::text::text, $1::text::text,
    (at at time zone 'utc')::date,
    $12::text::smallint, $13::text::smallint, at, null::timestamptz, null::timestamptz
  from drawn;

-- sagabox.outbox.publish_leased_one_guarded
with inside as materialized (select pg_current_xact_id_if_assigned() is not null as numbered), drawn as materialized (
  select nextval(case when pg_current_xact_id() is not null then '"sagabox".outbox_seq'::regclass end) as seq,
      clock_timestamp() as at
    from inside where inside.numbered
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select $1::text::text, $2::text::integer, $3::text::bigint, $4::text::text, $5::text::text, $6::text::integer,
      $7::text::text, $8::text::text, $9::text::text, $10::text::text, $11::text::text, $12::text::text,
      $13::text::text, $14::text::text, $15::text::text, $16::text::text, $17::text::smallint, $18::text::smallint,
      $19::text::boolean, $20::text::text, $21::text::text, seq, (at at time zone 'utc')::date, at,
      at + $22::text::double precision * interval '1 ms' from drawn
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select $2::text::integer, seq, $3::text::bigint, $7::text::text, $5::text::text, $1::text::text,
    (at at time zone 'utc')::date,
    $17::text::smallint, $18::text::smallint, at, at + $22::text::double precision * interval '1 ms',
        case when current_setting('transaction_isolation') = 'read committed' and ($3::text::bigint is null or (
      select true from "sagabox".outbox as earlier
        where earlier.lane::bigint = ($2::text::integer)::bigint and earlier.stream = $3::text::bigint limit 1) is null)
    then at + $23::double precision * interval '1 ms' end
  from drawn
  returning message_id as id, lane, seq::text, lease_until is not null as leased,
    to_char(due_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as written_at;

-- sagabox.outbox.publish_leased_usual_guarded
with inside as materialized (select pg_current_xact_id_if_assigned() is not null as numbered), drawn as materialized (
  select nextval(case when pg_current_xact_id() is not null then '"sagabox".outbox_seq'::regclass end) as seq,
      clock_timestamp() as at
    from inside where inside.numbered
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, correlation_id, traceparent,
      source, priority, max_attempts, data, seq, written_on, written_at, expires_at)
  select $1::text::text, $2::text::integer, $3::text::bigint, $4::text::text, $5::text::text, $6::text::integer,
      $7::text::text, $8::text::text, $9::text::text, $10::text::text, $11::text::text, $12::text::smallint,
      $13::text::smallint, $14::text::text, seq, (at at time zone 'utc')::date, at, null::timestamptz from drawn
)
insert into "sagabox".outbox
    (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
select $2::text::integer, seq, $3::text::bigint, $7::text::text, $5::text::text, $1::text::text,
    (at at time zone 'utc')::date,
    $12::text::smallint, $13::text::smallint, at, null::timestamptz,
        case when current_setting('transaction_isolation') = 'read committed' and ($3::text::bigint is null or (
      select true from "sagabox".outbox as earlier
        where earlier.lane::bigint = ($2::text::integer)::bigint and earlier.stream = $3::text::bigint limit 1) is null)
    then at + $15::double precision * interval '1 ms' end
  from drawn
  returning message_id as id, lane, seq::text, lease_until is not null as leased,
    to_char(due_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as written_at;

-- sagabox.outbox.publish_once_guarded
with inside as materialized (select pg_current_xact_id_if_assigned() is not null as numbered),
    moment as materialized (select pg_current_xact_id() as xid,
    clock_timestamp() as at from inside where inside.numbered), fresh as (
  insert into "sagabox".published_id (id, written_on)
  select listed.id, (moment.at at time zone 'utc')::date from moment, unnest($1::text::text[], $2::text::integer[],
      $3::text::bigint[], $4::text::text[], $5::text::text[], $6::text::integer[], $7::text::text[], $8::text::text[],
      $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[],
      $15::text::text[], $16::text::text[], $17::text::smallint[], $18::text::smallint[], $19::text::boolean[],
      $20::text::text[], $21::text::text[], $22::text::double precision[]) as listed (id, lane, stream, kind, type,
      schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id, causation_id, traceparent,
      source, target, priority, max_attempts, holds_on_death, headers, data,
      ttl_ms) where not "sagabox".has_message(listed.id)
    on conflict do nothing
    returning id
), given as materialized (
  select nextval('"sagabox".outbox_seq') as seq, moment.at, (moment.at at time zone 'utc')::date as written_on,
      moment.at + listed.ttl_ms * interval '1 ms' as expires_at, listed.*
    from moment, (select * from unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[],
        $5::text::text[], $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[],
        $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[],
        $16::text::text[], $17::text::smallint[], $18::text::smallint[], $19::text::boolean[], $20::text::text[],
        $21::text::text[], $22::text::double precision[]) with ordinality as listed (id, lane, stream, kind, type,
        schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id, causation_id, traceparent,
        source, target, priority, max_attempts, holds_on_death, headers, data, ttl_ms, turn)
        where listed.id in (select id from fresh)
        order by turn) as listed
    where moment.xid is not null
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data,
      seq, written_on, at, expires_at from given
), sending as (
  insert into "sagabox".outbox
      (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
  select lane, seq, stream, topic, type, id, written_on, priority, max_attempts, at, expires_at, null from given
)
select fresh.id from inside left join fresh on true where inside.numbered;

-- sagabox.outbox.publish_named_guarded
with inside as materialized (select pg_current_xact_id_if_assigned() is not null as numbered),
    moment as materialized (select pg_current_xact_id() as xid,
    clock_timestamp() as at from inside where inside.numbered), fresh as (
  insert into "sagabox".published_id (id, written_on)
  select listed.id, (moment.at at time zone 'utc')::date from moment, unnest($1::text::text[], $2::text::integer[],
      $3::text::bigint[], $4::text::text[], $5::text::text[], $6::text::integer[], $7::text::text[], $8::text::text[],
      $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[],
      $15::text::text[], $16::text::text[], $17::text::smallint[], $18::text::smallint[], $19::text::boolean[],
      $20::text::text[], $21::text::text[], $22::text::double precision[]) as listed (id, lane, stream, kind, type,
      schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id, causation_id, traceparent,
      source, target, priority, max_attempts, holds_on_death, headers, data, ttl_ms)
    on conflict do nothing
    returning id
), given as materialized (
  select nextval('"sagabox".outbox_seq') as seq, moment.at, (moment.at at time zone 'utc')::date as written_on,
      moment.at + listed.ttl_ms * interval '1 ms' as expires_at, listed.*
    from moment, (select * from unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[],
        $5::text::text[], $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[],
        $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[],
        $16::text::text[], $17::text::smallint[], $18::text::smallint[], $19::text::boolean[], $20::text::text[],
        $21::text::text[], $22::text::double precision[]) with ordinality as listed (id, lane, stream, kind, type,
        schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id, causation_id, traceparent,
        source, target, priority, max_attempts, holds_on_death, headers, data, ttl_ms, turn)
        where listed.id in (select id from fresh)
        order by turn) as listed
    where moment.xid is not null
), kept as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_on, written_at, expires_at)
  select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data,
      seq, written_on, at, expires_at from given
), sending as (
  insert into "sagabox".outbox
      (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at, lease_until)
  select lane, seq, stream, topic, type, id, written_on, priority, max_attempts, at, expires_at, null from given
)
select fresh.id from inside left join fresh on true where inside.numbered;

-- sagabox.outbox.schedule_guarded
with inside as materialized (select pg_current_xact_id_if_assigned() is not null as numbered),
    moment as materialized (select clock_timestamp() as at from inside where inside.numbered)
insert into "sagabox".scheduled (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
    saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers,
    data, due_at, written_at, expires_at)
select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id,
    causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data, due_at,
    clock_timestamp(), due_at + ttl_ms * interval '1 ms'
  from (select listed.*, coalesce(to_timestamp(listed.at_ms / 1000),
      clock_timestamp() + listed.delay_ms * interval '1 ms') as due_at
      from moment, unnest($1::text::text[], $2::text::integer[], $3::text::bigint[], $4::text::text[], $5::text::text[],
          $6::text::integer[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[],
          $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[], $15::text::text[],
          $16::text::text[], $17::text::smallint[], $18::text::smallint[], $19::text::boolean[], $20::text::text[],
          $21::text::text[], $22::text::double precision[], $23::text::double precision[],
          $24::text::double precision[])
        as listed (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
            correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers,
            data, ttl_ms, delay_ms, at_ms)) as listed;

-- sagabox.outbox.reserve_ids_guarded
with inside as materialized (select pg_current_xact_id_if_assigned() is not null as numbered),
    moment as materialized (select clock_timestamp() as at from inside where inside.numbered),
fresh as (
  insert into "sagabox".published_id (id, written_on)
  select listed.id, (moment.at at time zone 'utc')::date from moment,
      unnest($1::text::text[]) as listed (id) where not "sagabox".has_message(listed.id)
    on conflict do nothing
    returning id
)
select fresh.id from inside left join fresh on true where inside.numbered;

-- sagabox.outbox.reserve_names_guarded
with inside as materialized (select pg_current_xact_id_if_assigned() is not null as numbered),
    moment as materialized (select clock_timestamp() as at from inside where inside.numbered),
fresh as (
  insert into "sagabox".published_id (id, written_on)
  select listed.id, (moment.at at time zone 'utc')::date from moment, unnest($1::text::text[]) as listed (id)
    on conflict do nothing
    returning id
)
select fresh.id from inside left join fresh on true where inside.numbered;

-- sagabox.outbox.take_number
select pg_current_xact_id()::text as number;

-- sagabox.outbox.has_number
select pg_current_xact_id_if_assigned() is not null as inside;

-- ══ src/outbox/upkeep/statements.ts ════════════════════════════════════════════════════════════════════════════════

-- sagabox.outbox.depths
with outbox_size as materialized (
  select least(100, 100.0 * 500 / greatest(1, pg_relation_size('"sagabox".outbox') / 8192))::real as percent
), outbox_waiting as (
  select size.percent, row.*
    from outbox_size as size
    cross join lateral (
      select topic from "sagabox".outbox tablesample system (size.percent) where due_at < 'infinity') as row
), queue_size as materialized (
  select least(100, 100.0 * 500 / greatest(1, pg_relation_size('"sagabox".queue') / 8192))::real as percent
), queue_waiting as (
  select size.percent, row.*
    from queue_size as size
    cross join lateral (
      select topic from "sagabox".queue tablesample system (size.percent) where due_at < 'infinity') as row
)
select topic, count(*)::integer as seen, percent::double precision from outbox_waiting group by topic, percent
union all
select topic, count(*)::integer as seen, percent::double precision from queue_waiting group by topic, percent;

-- sagabox.outbox.backlog
with outbox_size as materialized (
  select least(100, 100.0 * 500 / greatest(1, pg_relation_size('"sagabox".outbox') / 8192))::real as percent
), outbox_waiting as (
  select size.percent, row.*
    from outbox_size as size
    cross join lateral (
      select 1 from "sagabox".outbox tablesample system (size.percent) where due_at < 'infinity') as row
)
select (select coalesce(round(count(*) * 100 / min(percent)), 0)::double precision from outbox_waiting) as pending,
    (select greatest(0, coalesce(extract(epoch from clock_timestamp() - min(head.due_at)) * 1000, 0))
        from generate_series(0, 255) as lane
        cross join lateral (
          select due_at from "sagabox".outbox
            where outbox.lane = lane.lane and due_at < 'infinity'
            order by seq
            limit 4) as head)::double precision as oldest_ms,
    (select count(*)::integer
        from (select 1 from "sagabox".dead_letter where closed_at is null limit 100000) as counted) as dead_letters,
    (select count(*)::integer
        from "sagabox".relay_lane as held
        where held.scope = 0 and not exists (
          select 1 from "sagabox".member
            where member.id = held.owner and member.lease_until > clock_timestamp())) as unowned;

-- sagabox.outbox.queued
with queue_size as materialized (
  select least(100, 100.0 * 500 / greatest(1, pg_relation_size('"sagabox".queue') / 8192))::real as percent
), queue_waiting as (
  select size.percent, row.*
    from queue_size as size
    cross join lateral (
      select topic,
          lane / 256 as group_id from "sagabox".queue tablesample system (size.percent) where due_at < 'infinity') as row
), filled as (
  select topic, max(seen) as seen, percent
    from (select topic, percent, count(*) as seen from queue_waiting group by topic, percent, group_id) as groups
    group by topic, percent
)
select topic, coalesce(filled.seen, 0)::integer as seen, coalesce(filled.percent, 100)::double precision as percent
  from (select distinct topic from "sagabox".subscription) as subscribed
    full join filled using (topic);

-- sagabox.outbox.letters
select coalesce(consumer, 'outbox') as consumer, type, count(*)::integer as count
  from (select consumer, type from "sagabox".dead_letter
      where closed_at is null order by failed_at desc limit 10000) as newest
  group by 1, 2 order by 3 desc, 1, 2 limit 50;

-- sagabox.history.alone
select pg_try_advisory_xact_lock(hashtextextended('sagabox.history.' || $1::text, 0)) as alone;

-- sagabox.history.lock_timeout
select set_config('lock_timeout', $1::text, true);

-- sagabox.history.today
select to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD') as today;

-- sagabox.history.partitions
select relname as name, relispartition as attached
  from pg_class
  where relnamespace = $1::text::regnamespace and relkind = 'r'
    and relname ~ ('^' || $2::text || '_[0-9]{8}$')
  order by relname;

-- sagabox.history.reserve_pages
select "sagabox".reserve_pages();

-- sagabox.history.still_needed
select exists (select 1 from "sagabox".outbox where written_on = $1::text::date)
    or exists (select 1 from "sagabox".queue where written_on = $1::text::date) as needed;

-- sagabox.history.forget_ids
with old as materialized (
  select id from "sagabox".published_id as known
    where written_on < $1::text::date
      and not exists (select 1 from "sagabox".message where message.id = known.id offset 0)
      and not exists (select 1 from "sagabox".scheduled where scheduled.id = known.id offset 0)
    limit $2::integer
    for update skip locked)
delete from "sagabox".published_id where id = any(array(select id from old));

-- partitionStatements.strays: for the messages of 1 October 2026
select distinct written_on::text as day from "sagabox".message_default order by 1;

-- partitionStatements.create: for the messages of 1 October 2026
create table "sagabox".message_20261001 (like "sagabox".message including all);

-- partitionStatements.adopt: for the messages of 1 October 2026, with the columns of the table
with early as (
  delete from "sagabox".message_default where written_on = date '2026-10-01' returning id, written_on, seq, …)
insert into "sagabox".message_20261001 (id, written_on, seq, …) select id, written_on, seq, … from early;

-- partitionStatements.columns: for the messages of 1 October 2026
select string_agg(quote_ident(attname), ', ' order by attnum) as columns
  from pg_attribute where attrelid = '"sagabox".message'::regclass and attnum > 0 and not attisdropped;

-- partitionStatements.lock: for the messages of 1 October 2026
lock table "sagabox".message in share update exclusive mode; lock table "sagabox".message_default in access exclusive mode;

-- partitionStatements.attach: for the messages of 1 October 2026
alter table "sagabox".message attach partition "sagabox".message_20261001
  for values from (date '2026-10-01') to (date '2026-10-01' + 1);

-- partitionStatements.detach: for the messages of 1 October 2026
alter table "sagabox".message detach partition "sagabox".message_20261001;

-- partitionStatements.drop: for the messages of 1 October 2026
drop table if exists "sagabox".message_20261001;

-- partitionStatements.carry: for the messages of 1 October 2026
with referring as materialized (
  select lane, seq, message_id from "sagabox".outbox
    where written_on = date '2026-10-01'
    order by lane, seq limit 1000
    for update skip locked
), delivering as materialized (
  select lane, seq, message_id from "sagabox".queue
    where written_on = date '2026-10-01'
    order by lane, seq limit 1000
    for update skip locked
), today as materialized (
  select (clock_timestamp() at time zone 'utc')::date as day
), copied as (
  insert into "sagabox".message (id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
      saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
      headers, data, seq, written_at, expires_at, written_on)
  select id, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data,
      seq, written_at, expires_at, today.day from "sagabox".message_20261001, today
    where id in (select message_id from referring union select message_id from delivering)
    on conflict do nothing
), sending as (
  update "sagabox".outbox as row set written_on = today.day from referring, today
    where row.lane = referring.lane and row.seq = referring.seq
), delivered as (
  update "sagabox".queue as row set written_on = today.day from delivering, today
    where row.lane = delivering.lane and row.seq = delivering.seq
)
select (select count(*)::integer from referring) + (select count(*)::integer from delivering) as carried;

-- sagabox.outbox.republish_count
select count(*)::integer as count
  from "sagabox".message
  where written_at >= $1::text::timestamptz and written_at < $2::text::timestamptz
    and written_on >= ($1::text::timestamptz at time zone 'utc')::date - 1
    and ($3::text is null or topic = $3::text) and ($4::text is null or type = $4::text) and message.seq > 0
    and not exists (select 1 from "sagabox".outbox where outbox.lane = message.lane
        and outbox.seq = message.seq offset 0)
    and not exists (select 1 from "sagabox".outbox where outbox.again and outbox.message_id = message.id offset 0)
    and not exists (select 1 from "sagabox".dead_letter
        where message_id = message.id and origin = 'outbox'
          and (closed_at is null or closed_as = 'discarded') offset 0);

-- sagabox.outbox.republish_count_rest
select count(*)::integer as count
  from "sagabox".message
  where written_at >= $1::text::timestamptz and written_at < $2::text::timestamptz
    and written_on >= ($1::text::timestamptz at time zone 'utc')::date - 1
    and ($3::text is null or topic = $3::text) and ($4::text is null or type = $4::text) and (lane::integer,
        stream is not null, coalesce(stream, seq)) > ($5::integer, $6::boolean, $7::text::bigint) and message.seq > 0
    and not exists (select 1 from "sagabox".outbox where outbox.lane = message.lane
        and outbox.seq = message.seq offset 0)
    and not exists (select 1 from "sagabox".outbox where outbox.again and outbox.message_id = message.id offset 0)
    and not exists (select 1 from "sagabox".dead_letter
        where message_id = message.id and origin = 'outbox'
          and (closed_at is null or closed_as = 'discarded') offset 0);

-- sagabox.outbox.republish_list
select id, written_on::text as day,
    concat_ws('/', lane, case when stream is null then 'message' else 'key' end, coalesce(stream, seq)) as position
  from "sagabox".message
  where written_at >= $1::text::timestamptz and written_at < $2::text::timestamptz
    and written_on >= ($1::text::timestamptz at time zone 'utc')::date - 1
    and ($3::text is null or topic = $3::text) and ($4::text is null or type = $4::text) and (lane::integer,
        stream is not null, coalesce(stream, seq)) > ($5::integer, $6::boolean, $7::text::bigint) and seq > 0
  order by lane::integer, stream is not null, coalesce(stream, seq), seq
  limit $8::integer;

-- sagabox.outbox.keep_writers_out
select "sagabox".outbox_keep_writers_out($1::integer, $2::integer);

-- sagabox.outbox.republish_page
with page as materialized (
  select message.id, message.written_on, coalesce((select edit.kept_on
      from "sagabox".dead_letter as letter
      join "sagabox".dead_letter_edit as edit on edit.dead_letter_id = letter.id
      where letter.message_id = message.id and letter.origin = 'outbox' and letter.closed_as = 'replayed'
      order by letter.id desc limit 1), message.written_on) as sent_on
    from unnest($1::text::text[], $2::text::date[]) as wanted (id, written_on)
    cross join lateral (
      select id, written_on, lane, seq from "sagabox".message as kept
        where kept.id = wanted.id and kept.written_on = wanted.written_on offset 0
    ) as message
    where true
      and message.seq > 0
      and not exists (select 1 from "sagabox".outbox where outbox.lane = message.lane
          and outbox.seq = message.seq offset 0)
      and not exists (select 1 from "sagabox".outbox where outbox.again and outbox.message_id = message.id offset 0)
      and not exists (select 1 from "sagabox".dead_letter
          where message_id = message.id and origin = 'outbox'
            and (closed_at is null or closed_as = 'discarded') offset 0)
), listed as materialized (
  select array_agg(id) as ids, array_agg(written_on) as days, array_agg(sent_on) as sent_days from page
)
select coalesce((select "sagabox".outbox_send_again(ids, days, sent_days) from listed where ids is not null),
    0) as count;

-- sagabox.outbox.republish_key
with page as materialized (
  select message.id, message.written_on, coalesce((select edit.kept_on
      from "sagabox".dead_letter as letter
      join "sagabox".dead_letter_edit as edit on edit.dead_letter_id = letter.id
      where letter.message_id = message.id and letter.origin = 'outbox' and letter.closed_as = 'replayed'
      order by letter.id desc limit 1), message.written_on) as sent_on
    from "sagabox".message
    where written_at >= $1::text::timestamptz and written_at < $2::text::timestamptz
      and written_on >= ($1::text::timestamptz at time zone 'utc')::date - 1
      and ($3::text is null or topic = $3::text) and ($4::text is null or type = $4::text)
          and message.lane = $5::integer and message.stream = $6::text::bigint
      and message.seq > 0
      and not exists (select 1 from "sagabox".outbox where outbox.lane = message.lane
          and outbox.seq = message.seq offset 0)
      and not exists (select 1 from "sagabox".outbox where outbox.again and outbox.message_id = message.id offset 0)
      and not exists (select 1 from "sagabox".dead_letter
          where message_id = message.id and origin = 'outbox'
            and (closed_at is null or closed_as = 'discarded') offset 0)
), listed as materialized (
  select array_agg(id) as ids, array_agg(written_on) as days, array_agg(sent_on) as sent_days from page
)
select coalesce((select "sagabox".outbox_send_again(ids, days, sent_days) from listed where ids is not null),
    0) as count;

-- ══ src/privacy/statements.ts ══════════════════════════════════════════════════════════════════════════════════════

-- sagabox.privacy.scrub_dead_letters
update "sagabox".dead_letter set error_message = '[erased]', stack_trace = null
  where (error_message <> '[erased]' or stack_trace is not null) and exists (select from unnest($1::text::text[]) as k
      where strpos(headers, k) > 0 or strpos(data, '.' || k || '.') > 0 or strpos(data, '"keyId":"' || k || '"') > 0);

-- sagabox.privacy.scrub_outbox
update "sagabox".outbox as row set last_error = '[erased]'
  where row.last_error <> '[erased]'
    and exists (select from "sagabox".message
        where message.id = row.message_id and message.written_on = row.written_on
            and exists (select from unnest($1::text::text[]) as k
            where strpos(headers, k) > 0 or strpos(data, '.' || k || '.') > 0 or strpos(data,
                '"keyId":"' || k || '"') > 0));

-- sagabox.privacy.scrub_queue
update "sagabox".queue as row set last_error = '[erased]'
  where row.last_error <> '[erased]'
    and exists (select from "sagabox".message
        where message.id = row.message_id and message.written_on = row.written_on
            and exists (select from unnest($1::text::text[]) as k
            where strpos(headers, k) > 0 or strpos(data, '.' || k || '.') > 0 or strpos(data,
                '"keyId":"' || k || '"') > 0));

-- sagabox.privacy.scrub_replies
update "sagabox".reply
  set body = json_build_object('requestId', request_id, 'outcome', outcome,
        'reason', coalesce(substring(body from '"reason":"([a-z]+)"'), 'unknown'), 'error', '[erased]')::text
  where outcome = 'failed' and body !~ '"error" ?: ?"\[erased\]"'
    and exists (select from "sagabox".message where message.id = reply.request_id
        and exists (select from unnest($1::text::text[]) as k
        where strpos(headers, k) > 0 or strpos(data, '.' || k || '.') > 0 or strpos(data, '"keyId":"' || k || '"') > 0));

-- sagabox.privacy.scrub_results
update "sagabox".consumer_inbox as seen set result = '{"$erased":true}'
  where seen.result <> '{"$erased":true}'
      and seen.result !~ '\{"\$sealed":"1\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"\}'
    and (seen.event_id in (
      select message.id from "sagabox".message
        where exists (select from unnest($1::text::text[]) as k where strpos(message.headers, k) > 0)
      union all
      select letter.message_id from "sagabox".dead_letter as letter
        where exists (select from unnest($1::text::text[]) as k where strpos(letter.headers, k) > 0))
          or exists (select from unnest($1::text::text[]) as k where strpos(seen.payload, k) > 0));

-- sagabox.privacy.register_types
insert into "sagabox".personal_type as known (type, service, fields)
select listed.type, $1::text, array(select json_array_elements_text(listed.fields))
  from json_to_recordset($2::text::json) as listed (type text, fields json)
  where json_array_length(listed.fields) > 0
    or exists (select from "sagabox".personal_type as own where own.type = listed.type and own.service = $1::text)
  order by listed.type
  on conflict (type, service) do update set fields = excluded.fields, registered_at = clock_timestamp()
  where known.fields <> excluded.fields;

-- sagabox.privacy.key_of
select key_id, subject, wrapped, kek_id,
    coalesce(created_xid = pg_current_xact_id_if_assigned(), false) as own,
    current_setting('transaction_isolation') = 'read committed' as fresh
  from (select * from "sagabox".subject_key where subject = $1::text offset 0) as known
  where wrapped is not null
  order by created_at desc limit 1;

-- sagabox.privacy.add_key
insert into "sagabox".subject_key (key_id, subject, wrapped, kek_id)
values ($1::text, $2::text, $3::text, $4::text);

-- sagabox.privacy.keys
select key_id, subject, wrapped, kek_id, false as own,
    current_setting('transaction_isolation') = 'read committed' as fresh
  from "sagabox".subject_key
  where key_id = any($1::text::text[]);

-- sagabox.privacy.fingerprint
select fingerprint, coalesce(xid = pg_current_xact_id_if_assigned(), false) as own
  from "sagabox".index_fingerprint order by id limit 1;

-- sagabox.privacy.add_fingerprint
insert into "sagabox".index_fingerprint (fingerprint) values ($1::text);

-- sagabox.privacy.lock_subject
select pg_advisory_xact_lock(hashtextextended($1::text, 7461)),
    to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as now;

-- sagabox.privacy.open_hold
select to_char(held_at at time zone 'utc',
    'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as held_at from "sagabox".legal_hold where subject = $1::text
    and released_at is null;

-- sagabox.privacy.hold
insert into "sagabox".legal_hold (subject, reason, actor) values ($1::text, $2::text, $3::text)
  on conflict (subject) where released_at is null do nothing;

-- sagabox.privacy.release
update "sagabox".legal_hold
  set released_at = clock_timestamp(), release_reason = $2::text, released_by = $3::text
  where subject = $1::text and released_at is null;

-- sagabox.privacy.live_sagas
select id, saga_type as type, status from "sagabox".saga_instance
  where subject = $1::text and completed_at is null order by id limit 1000;

-- sagabox.privacy.park_sagas
with parked as (
  update "sagabox".saga_instance
    set status = 'failed', due_at = null, claimed_by = null, claimed_until = null, claims = 0,
      version = version + 1, updated_at = clock_timestamp(), last_error = $2::text
    where subject = $1::text and completed_at is null and true
    returning id, version, trace_id, current_step),
incident as (
  insert into "sagabox".saga_incident (saga_id, steps, error)
  select id, array_remove(array[current_step], null), $2::text from parked
    on conflict (saga_id) where closed_at is null do update set error = excluded.error)
insert into "sagabox".saga_audit_log
    (saga_id, version, event_type, new_status, note, cause, user_id, trace_id)
select id, version, 'failed', 'failed', $2::text, 'erasure', $3::text, trace_id from parked
  returning saga_id;

-- sagabox.privacy.park_sealed
with parked as (
  update "sagabox".saga_instance
    set status = 'failed', due_at = null, claimed_by = null, claimed_until = null, claims = 0,
      version = version + 1, updated_at = clock_timestamp(), last_error = $2::text
    where subject = $1::text and completed_at is null and last_error is distinct from $2::text and exists (
      select from unnest($4::text::text[]) as k where strpos(input::text, k) > 0 or strpos(state::text, k) > 0)
    returning id, version, trace_id, current_step),
incident as (
  insert into "sagabox".saga_incident (saga_id, steps, error)
  select id, array_remove(array[current_step], null), $2::text from parked
    on conflict (saga_id) where closed_at is null do update set error = excluded.error)
insert into "sagabox".saga_audit_log
    (saga_id, version, event_type, new_status, note, cause, user_id, trace_id)
select id, version, 'failed', 'failed', $2::text, 'erasure', $3::text, trace_id from parked
  returning saga_id;

-- sagabox.privacy.end_saga
with ended as (
  update "sagabox".saga_instance
    set status = 'compensated', completed_at = clock_timestamp(), version = version + 1, due_at = null,
      updated_at = clock_timestamp()
    where id = $1::text and completed_at is null and subject is not null and last_error = $2::text
    returning id, version, trace_id),
closed as (
  update "sagabox".saga_incident set closed_at = clock_timestamp(), resolution = 'ended as it was'
    where saga_id in (select id from ended) and closed_at is null)
insert into "sagabox".saga_audit_log
    (saga_id, version, event_type, old_status, new_status, note, cause, user_id, trace_id)
select id, version, 'state_changed', 'failed', 'compensated', $3::text, 'operator:' || $4::text, $4::text, trace_id
  from ended
  returning saga_id;

-- sagabox.privacy.keys_of
select key_id, wrapped is not null as live from "sagabox".subject_key where subject = $1::text order by key_id;

-- sagabox.privacy.destroy_keys
update "sagabox".subject_key set wrapped = null, kek_id = null, erased_at = $2::timestamptz
  where subject = $1::text and wrapped is not null
  returning key_id;

-- sagabox.privacy.log
insert into "sagabox".gdpr_erasure_log (subject, erased_at, reason, actor, key_ids, to_scrub, scrubbed, proof)
values ($1::text, $2::timestamptz, $3::text, $4::text, $5::text::text[], $5::text::text[], '{}', $6::text)
  returning id::text;

-- sagabox.privacy.last_erasure
select id::text, subject, reason, actor, to_json(key_ids)::text as key_ids, proof,
    to_char(erased_at at time zone 'utc',
        'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as erased_at from "sagabox".gdpr_erasure_log where subject = $1::text order by id desc limit 1;

-- sagabox.privacy.erasures_after
select id::text, subject, reason, actor, to_json(key_ids)::text as key_ids, proof,
    to_char(erased_at at time zone 'utc',
        'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as erased_at from "sagabox".gdpr_erasure_log where id > $1::bigint order by id limit $2::integer;

-- sagabox.privacy.unswept
select id::text from "sagabox".gdpr_erasure_log where swept_at is null order by id limit 100;

-- sagabox.privacy.lock_erasure
select id::text, subject, reason, actor, to_json(key_ids)::text as key_ids, proof,
    to_char(erased_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as erased_at,
        to_json(to_scrub)::text as to_scrub,
    xid < pg_snapshot_xmin(pg_current_snapshot()) or xid >= pg_snapshot_xmax(pg_current_snapshot()) as over
  from "sagabox".gdpr_erasure_log
  where id = $1::bigint and swept_at is null for update;

-- sagabox.privacy.destroy_late
update "sagabox".subject_key as late set wrapped = null, kek_id = null, erased_at = clock_timestamp()
  from "sagabox".gdpr_erasure_log as log
  where log.id = $1::bigint and late.subject = log.subject and late.wrapped is not null
    and case when log.xid < pg_snapshot_xmax(pg_current_snapshot()) then late.created_xid < log.xid
    else late.created_at <= log.erased_at
    or late.created_xid >= pg_snapshot_xmax(pg_current_snapshot()) and late.created_xid < log.xid
    end
  returning late.key_id;

-- sagabox.privacy.add_late
update "sagabox".gdpr_erasure_log
  set key_ids = $2::text::text[], proof = $3::text, to_scrub = to_scrub || $4::text::text[]
  where id = $1::bigint;

-- sagabox.privacy.scrubbed
update "sagabox".gdpr_erasure_log
  set to_scrub = array(select unnest(to_scrub) except select unnest($2::text::text[])),
    scrubbed = json_build_object(
          'deadLetters', coalesce((scrubbed ->> 'deadLetters')::integer, 0) + $3::integer,
          'results', coalesce((scrubbed ->> 'results')::integer, 0) + $4::integer,
          'errors', coalesce((scrubbed ->> 'errors')::integer, 0) + $5::integer),
    swept_at = case when $6::boolean then clock_timestamp() end
  where id = $1::bigint and swept_at is null;

-- sagabox.privacy.to_rewrap
select key_id, subject, wrapped, kek_id from "sagabox".subject_key
  where wrapped is not null and kek_id <> $1::text and key_id > $2::text
  order by key_id limit $3::integer;

-- sagabox.privacy.left_to_rewrap
select count(*)::integer as left from "sagabox".subject_key where wrapped is not null and kek_id <> $1::text;

-- sagabox.privacy.rewrap
update "sagabox".subject_key as key set wrapped = given.wrapped, kek_id = $4::text
  from unnest($1::text::text[], $2::text::text[], $3::text::text[]) as given (key_id, old, wrapped)
  where key.key_id = given.key_id and key.wrapped = given.old;

-- sagabox.privacy.reapply
with listed as (
  insert into "sagabox".subject_key as key (key_id, subject, created_at, erased_at)
  select id, $1::text, $2::timestamptz, $2::timestamptz from unnest($3::text::text[]) as id
    on conflict (key_id) do update set wrapped = null, kek_id = null, erased_at = excluded.erased_at
    where key.wrapped is not null
    returning key_id),
older as (
  update "sagabox".subject_key set wrapped = null, kek_id = null, erased_at = $2::timestamptz
    where subject = $1::text and wrapped is not null and created_at <= $2::timestamptz
      and key_id <> all($3::text::text[])
    returning key_id)
select key_id from listed union all select key_id from older;

-- sagabox.privacy.relog
insert into "sagabox".gdpr_erasure_log (subject, erased_at, reason, actor, key_ids, to_scrub, scrubbed, proof, swept_at)
select $1::text, $2::timestamptz, $3::text, $4::text, $5::text::text[], '{}', '{}', $6::text, clock_timestamp()
  where not exists (select from "sagabox".gdpr_erasure_log
      where subject = $1::text and erased_at = $2::timestamptz);

-- sagabox.privacy.key_counts
select kek_id, count(*)::integer as count from "sagabox".subject_key group by kek_id order by kek_id nulls last;

-- sagabox.privacy.erasure_counts
select count(*)::integer as erasures, count(*) filter (where swept_at is null)::integer as unswept,
    (select count(*)::integer from "sagabox".legal_hold where released_at is null) as holds
  from "sagabox".gdpr_erasure_log;

-- sagabox.privacy.messages_of
select id, to_char(written_on, 'YYYY-MM-DD') as written_on from "sagabox".message
  where exists (select from unnest($1::text::text[]) as k
      where strpos(headers, k) > 0 or strpos(data, '.' || k || '.') > 0 or strpos(data, '"keyId":"' || k || '"') > 0)
  order by written_at, id;

-- sagabox.privacy.messages
select id, type, schema_version, topic, key, headers, data, to_char(written_at at time zone 'utc',
    'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at from "sagabox".message
  where (id, written_on) in (select * from unnest($1::text::text[], $2::text::date[]))
  order by written_at, id;

-- sagabox.privacy.scheduled_of
select id, type, schema_version, topic, key, headers, data, to_char(due_at at time zone 'utc',
    'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at from "sagabox".scheduled
  where id > $2::text and exists (select from unnest($1::text::text[]) as k
      where strpos(headers, k) > 0 or strpos(data, '.' || k || '.') > 0 or strpos(data, '"keyId":"' || k || '"') > 0)
  order by id limit 100;

-- sagabox.privacy.dead_letters_of
select letter.id::text as dead_letter_id, letter.message_id as id, letter.type, letter.schema_version, letter.topic,
    letter.key, letter.headers, letter.data, to_char(letter.failed_at at time zone 'utc',
        'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at
  from "sagabox".dead_letter as letter
  where letter.id > $2::bigint and exists (select from unnest($1::text::text[]) as k
      where strpos(headers, k) > 0 or strpos(data, '.' || k || '.') > 0 or strpos(data, '"keyId":"' || k || '"') > 0)
  order by letter.id limit 100;

-- sagabox.privacy.sagas_of
select id, saga_type as type, status, input::text as input, state::text as state, version,
    to_char(created_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at
  from "sagabox".saga_instance where subject = $1::text and id > $2::text order by id limit 100;

-- ══ src/requests/statements.ts ═════════════════════════════════════════════════════════════════════════════════════

-- requestStatements.keep
insert into "sagabox".reply as kept (request_id, outcome, body)
select $1::text, $2::text, $3::text from fresh
  on conflict (request_id) do update
  set outcome = excluded.outcome, body = excluded.body, arrived_at = excluded.arrived_at
  where kept.outcome = 'failed'
  returning pg_notify($4::text, $5::text);

-- sagabox.requests.find
select reply.request_id, reply.outcome, reply.body, null::text as reason, null::text as error
  from "sagabox".reply
  where reply.request_id = any($1::text::text[])
union all
select letter.message_id, 'failed', null, letter.reason, letter.error_message
  from unnest($1::text::text[]) as asked (id)
  cross join lateral (
    select message_id, origin, closed_at, reason, error_message
      from "sagabox".dead_letter where message_id = asked.id offset 0) as letter
  where letter.origin = 'outbox' and letter.closed_at is null;

-- sagabox.requests.forget
delete from "sagabox".reply
  where ctid = any(array(
    select ctid from "sagabox".reply
      where arrived_at < (select clock_timestamp()) - $1::double precision * interval '1 ms'
      limit $2::integer
      for update skip locked));

-- ══ src/saga/statements.ts ═════════════════════════════════════════════════════════════════════════════════════════

-- sagabox.saga.insert
with saved as (
  insert into "sagabox".saga_instance
      (id, saga_type, definition_version, correlation_id, input, trace_id, traceparent, message_correlation_id,
            parent_id, parent_step, status, state, current_step, waits_for, waiting_since, last_error, retry_count,
            due_at, version, completed_at, claimed_by, claimed_until, claims, subject, attachments)
  values ($1::text, $2::text, $3::integer, $4::text, $5::text::json, $6::text, $7::text, $8::text, $9::text, $10::text,
        $14::text, $15::text::json, $16::text, $17::text, to_timestamp($18::double precision / 1000),
        $19::text, $20::integer, to_timestamp($21::double precision / 1000), 1, case when $14::text in ('completed',
            'compensated') then clock_timestamp() end,
        $11::text, clock_timestamp() + $12::double precision * interval '1 ms',
        case when $11::text is null then 0 else 1 end, $13::text, $22::text::text[])
    on conflict (saga_type, correlation_id) do nothing
    returning id, version, trace_id),
logged as (
  insert into "sagabox".saga_audit_log
      (saga_id, version, event_type, step, old_status, new_status, note, cause, user_id, reason, trace_id, input,
            metadata, old_state, new_state)
  select saved.id, saved.version, line.event, line."stepPath", line."from", line."to", line.note, $23::text,
      $24::text, line.reason, saved.trace_id, case when line.nr = 1 then $26::text::json end,
      case when line.nr = 1 then $27::text::json end, case when line.nr = 1 then $28::text::json end,
      case when line.nr = 1 then $29::text::json end
    from saved, json_to_recordset($25::text::json) as line
      (nr integer, event text, "stepPath" text, "from" text, "to" text, note text, reason text)
    order by line.nr)
select id, exists (select from "sagabox".saga_input as pending
    where pending.saga_type = $2::text and pending.correlation_id = $4::text and pending.saga_id is null
      and pending.expires_at > clock_timestamp()) as has_input
  from saved;

-- sagabox.saga.insert_failed
with saved as (
  insert into "sagabox".saga_instance
      (id, saga_type, definition_version, correlation_id, input, trace_id, traceparent, message_correlation_id,
            parent_id, parent_step, status, state, current_step, waits_for, waiting_since, last_error, retry_count,
            due_at, version, completed_at, claimed_by, claimed_until, claims, subject, attachments)
  values ($1::text, $2::text, $3::integer, $4::text, $5::text::json, $6::text, $7::text, $8::text, $9::text, $10::text,
        $14::text, $15::text::json, $16::text, $17::text, to_timestamp($18::double precision / 1000),
        $19::text, $20::integer, to_timestamp($21::double precision / 1000), 1, case when $14::text in ('completed',
            'compensated') then clock_timestamp() end,
        $11::text, clock_timestamp() + $12::double precision * interval '1 ms',
        case when $11::text is null then 0 else 1 end, $13::text, $22::text::text[])
    on conflict (saga_type, correlation_id) do nothing
    returning id, version, trace_id),
logged as (
  insert into "sagabox".saga_audit_log
      (saga_id, version, event_type, step, old_status, new_status, note, cause, user_id, reason, trace_id, input,
            metadata, old_state, new_state)
  select saved.id, saved.version, line.event, line."stepPath", line."from", line."to", line.note, $23::text,
      $24::text, line.reason, saved.trace_id, case when line.nr = 1 then $26::text::json end,
      case when line.nr = 1 then $27::text::json end, case when line.nr = 1 then $28::text::json end,
      case when line.nr = 1 then $29::text::json end
    from saved, json_to_recordset($25::text::json) as line
      (nr integer, event text, "stepPath" text, "from" text, "to" text, note text, reason text)
    order by line.nr),
opened as (
  insert into "sagabox".saga_incident (saga_id, steps, error)
  select saved.id, $30::text::text[], $31::text from saved where $31::text is not null
    on conflict (saga_id) where closed_at is null
    do update set steps = excluded.steps, error = excluded.error)
select id, exists (select from "sagabox".saga_input as pending
    where pending.saga_type = $2::text and pending.correlation_id = $4::text and pending.saga_id is null
      and pending.expires_at > clock_timestamp()) as has_input
  from saved;

-- sagabox.saga.collect
update "sagabox".saga_input set saga_id = $1::text, correlation_id = null
  where saga_type = $2::text and correlation_id = $3::text and saga_id is null and expires_at > clock_timestamp();

-- sagabox.saga.id_of
select id from "sagabox".saga_instance where saga_type = $1::text and correlation_id = $2::text;

-- sagabox.saga.meet
select pg_advisory_xact_lock(hashtextextended($1::text || chr(31) || $2::text, 7453)),
    extract(epoch from clock_timestamp()) * 1000 as now_ms,
    current_setting('transaction_isolation') <> 'read committed' as blind;

-- sagabox.saga.load
select instance.id, instance.saga_type as type, instance.definition_version, instance.correlation_id, instance.status,
    instance.input::text as input, instance.state::text as state, instance.version, instance.traceparent,
    instance.trace_id, instance.message_correlation_id, instance.parent_id, instance.parent_step, instance.claims,
    extract(epoch from clock_timestamp()) * 1000 as now_ms from "sagabox".saga_instance as instance where instance.id = $1::text for update;

-- sagabox.saga.read
select instance.id, instance.saga_type as type, instance.definition_version, instance.correlation_id, instance.status,
    instance.input::text as input, instance.state::text as state, instance.version, instance.traceparent,
    instance.trace_id, instance.message_correlation_id, instance.parent_id, instance.parent_step, instance.claims,
    extract(epoch from clock_timestamp()) * 1000 as now_ms from "sagabox".saga_instance as instance where instance.id = $1::text;

-- sagabox.saga.started
select awaited.nr::integer as nr, instance.id
  from unnest($1::text::text[], $2::text::text[]) with ordinality as awaited (saga_type, key, nr)
  cross join lateral (
    select id from "sagabox".saga_instance
      where saga_type = awaited.saga_type and correlation_id = awaited.key
        offset 0) as instance;

-- sagabox.saga.ended
select instance.id, instance.saga_type as type, instance.definition_version, instance.correlation_id, instance.status,
    instance.input::text as input, instance.state::text as state, instance.version, instance.traceparent,
    instance.trace_id, instance.message_correlation_id, instance.parent_id, instance.parent_step, instance.claims,
    extract(epoch from clock_timestamp()) * 1000 as now_ms from "sagabox".saga_instance as instance
  where instance.id = any($1::text::text[]) and instance.status in ('completed', 'compensated', 'failed');

-- sagabox.saga.load_by_key
select instance.id, instance.saga_type as type, instance.definition_version, instance.correlation_id, instance.status,
    instance.input::text as input, instance.state::text as state, instance.version, instance.traceparent,
    instance.trace_id, instance.message_correlation_id, instance.parent_id, instance.parent_step, instance.claims,
    extract(epoch from clock_timestamp()) * 1000 as now_ms from "sagabox".saga_instance as instance
  where instance.saga_type = $1::text and instance.correlation_id = $2::text for update;

-- sagabox.saga.save
with free as (
  select made.*, instance.row_id from json_to_recordset($1::json) as made (id text, version integer, status text,
      state json, step text, waits text, since double precision,
        error text, retries integer, due double precision, release boolean, cause text, actor text, lines json,
        input json, metadata json, "oldState" json, "newState" json, steps text[], incident text, resolution text,
            attachments text[])
    cross join lateral (
      select own.ctid as row_id from "sagabox".saga_instance as own
        where own.id = made.id and own.version = made.version
          offset 0 for update skip locked) as instance
    where made.id = made.id || ''),
saved as (
  update "sagabox".saga_instance as instance
    set status = free.status, state = free.state, current_step = free.step, waits_for = free.waits,
      waiting_since = to_timestamp(free.since / 1000), last_error = free.error, retry_count = free.retries,
      due_at = case when instance.due_at <= clock_timestamp() and to_timestamp(free.due / 1000) <= clock_timestamp()
      then instance.due_at else to_timestamp(free.due / 1000) end,
      version = instance.version + 1, claims = 0, updated_at = clock_timestamp(),
      attachments = free.attachments, completed_at = case when free.status in ('completed',
          'compensated') then clock_timestamp() end,
      claimed_by = case when free.release then null else instance.claimed_by end,
      claimed_until = case when free.release then null else instance.claimed_until end
    from free
    where instance.ctid = free.row_id
    returning instance.id, instance.version, instance.trace_id, free.cause, free.actor, free.lines, free.input,
      free.metadata, free."oldState", free."newState", free.steps, free.incident, free.resolution),
logged as (
  insert into "sagabox".saga_audit_log
      (saga_id, version, event_type, step, old_status, new_status, note, cause, user_id, reason, trace_id, input,
            metadata, old_state, new_state)
  select saved.id, saved.version, line.event, line."stepPath", line."from", line."to", line.note, saved."cause",
      saved."actor", line.reason, saved.trace_id, case when line.nr = 1 then saved."input" end,
      case when line.nr = 1 then saved."metadata" end, case when line.nr = 1 then saved."oldState" end,
      case when line.nr = 1 then saved."newState" end
    from saved, json_to_recordset(saved."lines") as line
      (nr integer, event text, "stepPath" text, "from" text, "to" text, note text, reason text)
    order by line.nr),
opened as (
  insert into "sagabox".saga_incident (saga_id, steps, error)
  select saved.id, saved."steps", saved."incident" from saved where saved."incident" is not null
    on conflict (saga_id) where closed_at is null
    do update set steps = excluded.steps, error = excluded.error),
closed as (
  update "sagabox".saga_incident as incident
    set closed_at = clock_timestamp(), resolution = (select resolution from saved where saved.id = incident.saga_id)
    where incident.closed_at is null
      and incident.saga_id = any(array(select id from saved where resolution is not null)))
select id from saved;

-- sagabox.saga.ignore
insert into "sagabox".saga_audit_log (saga_id, version, event_type, note, cause, user_id, input, reason, trace_id)
values ($1::text, $2::integer, 'ignored', $3::text, $4::text, $5::text, $6::text::json, $7::text,
      (select trace_id from "sagabox".saga_instance where id = $1::text));

-- sagabox.saga.input
select pending.id, pending.cause, pending.input::text as input from "sagabox".saga_input as pending
  where pending.saga_id = $1::text order by pending.arrived_at, pending.id limit 100;

-- sagabox.saga.delete_input
delete from "sagabox".saga_input where saga_id = $1::text and id = any($2::text::text[]);

-- sagabox.saga.drop_input
delete from "sagabox".saga_input where saga_id = $1::text;

-- sagabox.saga.post
insert into "sagabox".saga_input (id, saga_type, saga_id, cause, input, expires_at)
select $2::text, instance.saga_type, instance.id, $3::text, $4::text::json, 'infinity'
  from "sagabox".saga_instance as instance where instance.id = $1::text
  on conflict (id, saga_type) do nothing
  returning saga_id;

-- sagabox.saga.hold_attached
insert into "sagabox".blob_use (key, used_by)
select blob.key, 'saga:' || $1::text from "sagabox".blob
  where blob.key = any($2::text::text[]) and coalesce(blob.doomed_at, 'infinity') = 'infinity'
  for share
  on conflict (key, used_by) do nothing;

-- sagabox.saga.keep
insert into "sagabox".saga_input (id, saga_type, correlation_id, cause, input, expires_at)
values ($1::text, $2::text, $3::text, $4::text, $5::text::json,
      clock_timestamp() + $6::double precision * interval '1 ms')
  on conflict (id, saga_type) do nothing;

-- sagabox.saga.claim
update "sagabox".saga_instance as instance
  set claimed_by = $1::text, claims = instance.claims + 1,
    claimed_until = clock_timestamp() + $2::double precision * interval '1 ms'
  where instance.ctid = any(array(select due.ctid from "sagabox".saga_instance as due
      where due.due_at <= (select clock_timestamp())
        and (due.claimed_until is null or due.claimed_until < (select clock_timestamp()))
        and due.saga_type || '/' || due.definition_version = any($3::text::text[])
      order by due.due_at limit $4::integer for update skip locked))
  returning instance.id, instance.saga_type as type, instance.definition_version, instance.correlation_id,
      instance.status,
    instance.input::text as input, instance.state::text as state, instance.version, instance.traceparent,
    instance.trace_id, instance.message_correlation_id, instance.parent_id, instance.parent_step, instance.claims,
    extract(epoch from clock_timestamp()) * 1000 as now_ms,
    exists (select from "sagabox".saga_input as pending where pending.saga_id = instance.id) as has_input;

-- sagabox.saga.claim_ahead
update "sagabox".saga_instance as instance
  set claimed_by = $1::text, claims = instance.claims + 1,
    claimed_until = clock_timestamp() + $2::double precision * interval '1 ms'
  where instance.ctid = any(array(select due.ctid from "sagabox".saga_instance as due
      where due.due_at <= (select clock_timestamp())
        and (due.claimed_until is null or due.claimed_until < (select clock_timestamp()))
        and due.saga_type || '/' || due.definition_version = any($3::text::text[]) and due.claims = 0
      order by due.due_at limit $4::integer for update skip locked))
  returning instance.id, instance.saga_type as type, instance.definition_version, instance.correlation_id,
      instance.status,
    instance.input::text as input, instance.state::text as state, instance.version, instance.traceparent,
    instance.trace_id, instance.message_correlation_id, instance.parent_id, instance.parent_step, instance.claims,
    extract(epoch from clock_timestamp()) * 1000 as now_ms,
    exists (select from "sagabox".saga_input as pending where pending.saga_id = instance.id) as has_input;

-- sagabox.saga.claim_with_input
update "sagabox".saga_instance as instance
  set claimed_by = $1::text, claims = instance.claims + 1,
    claimed_until = clock_timestamp() + $2::double precision * interval '1 ms'
  where instance.ctid = any(array(select due.row_id
      from (select distinct pending.saga_id from "sagabox".saga_input as pending
          where pending.saga_id is not null order by pending.saga_id) as pending
      cross join lateral (
        select own.ctid as row_id from "sagabox".saga_instance as own
          where own.id = pending.saga_id
            and (own.claimed_until is null or own.claimed_until < (select clock_timestamp()))
            and own.saga_type || '/' || own.definition_version = any($3::text::text[])
            offset 0 for update skip locked) as due
      limit $4::integer))
  returning instance.id, instance.saga_type as type, instance.definition_version, instance.correlation_id,
      instance.status,
    instance.input::text as input, instance.state::text as state, instance.version, instance.traceparent,
    instance.trace_id, instance.message_correlation_id, instance.parent_id, instance.parent_step, instance.claims,
    extract(epoch from clock_timestamp()) * 1000 as now_ms,
    exists (select from "sagabox".saga_input as pending where pending.saga_id = instance.id) as has_input;

-- sagabox.saga.next_due
select extract(epoch from due_at - clock_timestamp()) * 1000 as wait_ms from "sagabox".saga_instance
  where due_at is not null and (claimed_until is null or claimed_until < (select clock_timestamp()))
    and saga_type || '/' || definition_version = any($1::text::text[])
  order by due_at limit 1;

-- sagabox.saga.renew
with ours as (
  select id from "sagabox".saga_instance where claimed_by = $1::text and id = any($3::text::text[])),
free as (
  select id from "sagabox".saga_instance
    where claimed_by = $1::text and id = any($3::text::text[])
    for update skip locked),
renewed as (
  update "sagabox".saga_instance as instance
    set claimed_until = clock_timestamp() + $2::double precision * interval '1 ms'
    where instance.id = any(array(select id from free)))
select id from ours;

-- sagabox.saga.release
update "sagabox".saga_instance set claimed_by = null, claimed_until = null, claims = 0
  where id = $1::text and claimed_by = $2::text;

-- sagabox.saga.give_back
update "sagabox".saga_instance
  set claimed_by = null, claimed_until = null, claims = greatest(claims - 1, 0)
  where id = any($1::text::text[]) and claimed_by = $2::text;

-- sagabox.saga.discount_claim
update "sagabox".saga_instance set claims = greatest(claims - 1, 0)
  where id = $1::text and claimed_by = $2::text;

-- sagabox.saga.park
with parked as (
  update "sagabox".saga_instance
    set status = 'failed', due_at = null, claimed_by = null, claimed_until = null, claims = 0,
      version = version + 1, updated_at = clock_timestamp(), last_error = $3::text
    where id = $1::text and claimed_by = $2::text and status not in ('completed', 'compensated')
      and last_error is distinct from $3::text
    returning id, version, trace_id, current_step),
incident as (
  insert into "sagabox".saga_incident (saga_id, steps, error)
  select id, array_remove(array[current_step], null), $3::text from parked
    on conflict (saga_id) where closed_at is null do update set error = excluded.error),
logged as (
  insert into "sagabox".saga_audit_log
      (saga_id, version, event_type, old_status, new_status, note, cause, trace_id)
  select id, version, 'failed', $4::text, 'failed', $3::text, 'erasure', trace_id from parked)
select current_step from parked;

-- sagabox.saga.orphans
select saga_type as type, definition_version, count(*)::integer as count from "sagabox".saga_instance
  where (due_at < clock_timestamp() - interval '10 seconds'
        or id in (select pending.saga_id from "sagabox".saga_input as pending
            where pending.saga_id is not null
              and pending.arrived_at < clock_timestamp() - interval '10 seconds'))
    and (claimed_until is null or claimed_until < clock_timestamp())
    and saga_type || '/' || definition_version <> all($1::text::text[])
  group by 1, 2 order by 1, 2 limit 100;

-- sagabox.saga.measure
select status, count(*)::integer as count
  from (select status from "sagabox".saga_instance where completed_at is null limit 100000) as open
  group by status
union all
select 'stuck', count(*)::integer
  from (select 1 from "sagabox".saga_instance
      where due_at < clock_timestamp() - interval '10 minutes' limit 10000) as overdue;

-- sagabox.saga.forget
with old as (
  select id from "sagabox".saga_instance as instance
    where instance.completed_at < (select clock_timestamp()) - $1::double precision * interval '1 ms'
      and (select true from "sagabox".saga_instance as parent where parent.id = instance.parent_id) is null
    limit $2::integer for update skip locked),
incidents as (delete from "sagabox".saga_incident where saga_id = any(array(select id from old))),
inputs as (delete from "sagabox".saga_input where saga_id = any(array(select id from old)))
delete from "sagabox".saga_instance where id = any(array(select id from old));

-- sagabox.saga.forget_unclaimed
delete from "sagabox".saga_input where ctid = any(array(
  select ctid from "sagabox".saga_input where expires_at < (select clock_timestamp()) limit $1::integer));

-- sagabox.saga.read_definitions
select saga_type as type, version, hash, structure::text as structure from "sagabox".saga_definition
  where saga_type || '/' || version = any($1::text::text[]);

-- sagabox.saga.add_definition
insert into "sagabox".saga_definition (saga_type, version, hash, structure)
values ($1::text, $2::integer, $3::text, $4::text::json)
  on conflict (saga_type, version) do nothing
  returning saga_type as type;

-- sagabox.saga.replace_definition
update "sagabox".saga_definition
  set hash = $3::text, structure = $4::text::json, registered_at = clock_timestamp()
  where saga_type = $1::text and version = $2::integer and hash = $5::text;

-- sagabox.saga.unfit_records
with unfinished as (
  select id, state from "sagabox".saga_instance
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
  order by path nulls first;

-- sagabox.saga.encrypted_unfinished
select id from "sagabox".saga_instance
  where saga_type = $1::text and definition_version = $2::integer and completed_at is null
    and state -> '$sealed' is not null
  limit 1000;

-- sagabox.saga.count_unfinished
select count(*)::integer as count
  from (select 1 from "sagabox".saga_instance
      where saga_type = $1::text and definition_version = $2::integer and completed_at is null limit 100000) as open;

-- ══ src/storage/drivers/statements.ts ══════════════════════════════════════════════════════════════════════════════

-- sagabox.set_config
select set_config($1::text, $2::text, false);

-- sagabox.check_mark
select 1 / (current_setting('sagabox.transaction', true) is not distinct from 'open')::integer;

-- ROUND_TRIP
select 1;

-- sagabox.enter_transaction
select pg_current_xact_id()::text as xid, pg_backend_pid() as pid,
    case when $1::text <> '' then set_config('idle_in_transaction_session_timeout', $1::text, true) end as idle,
    case when $2::text <> '' then set_config('lock_timeout', $2::text, true) end as lock;

-- sagabox.read_transaction_id
select pg_current_xact_id_if_assigned()::text as xid;

-- sagabox.read_transaction_end
select pg_xact_status($1::text::xid8) as status;

-- sagabox.end_session
select pg_terminate_backend(pid) as done from pg_stat_activity
  where pid = $1::integer and backend_xid = $2::text::xid8::xid;

-- ══ src/storage/statements.ts ══════════════════════════════════════════════════════════════════════════════════════

-- sagabox.migrate.lock
select pg_advisory_xact_lock(hashtextextended('sagabox.migrate.' || $1::text, 0));

-- sagabox.migrate.lock_timeout
select set_config('lock_timeout', '10s', true);

-- sagabox.migrate.encoding
select current_setting('server_encoding') as encoding, current_database() as database;

-- sagabox.migrate.has_schema
select to_regnamespace($1::text) is not null as present;

-- sagabox.migrate.create_schema
create schema if not exists "sagabox";

-- sagabox.migrate.create_ledger
create table if not exists "sagabox".schema_migration (
      version     integer     not null primary key,
      name        text        not null,
      breaking    boolean     not null,
      checksum    text        not null,
      applied_at  timestamptz not null default clock_timestamp()
);

-- sagabox.migrate.has_ledger
select to_regclass($1::text) is not null as present;

-- sagabox.migrate.applied
select version, name, breaking, checksum,
    to_char(applied_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as applied_at
  from "sagabox".schema_migration order by version;

-- sagabox.migrate.record
insert into "sagabox".schema_migration (version, name, breaking, checksum)
values ($1::integer, $2::text, $3::boolean, $4::text);

-- ENCODING_GUARD
do $guard$ begin
  if current_setting('server_encoding') <> 'UTF8' then
    raise exception 'Database "%" has the encoding %, but must have UTF8.', current_database(), current_setting('server_encoding');
  end if;
end $guard$;

-- sagabox.session.backend
select pg_backend_pid() as pid;

-- sagabox.ping
select 1;

-- sagabox.can_write
select current_setting('transaction_read_only') = 'off' as can_write;

-- sagabox.notify
select pg_notify($1::text, $2::text);

-- sagabox.session.backend_pid
select pg_backend_pid() as pid;

-- sagabox.session.blockers
select blocker.pid,
    coalesce(nullif(activity.application_name, ''), nullif(activity.backend_type, 'client backend'),
          case when activity.pid is not null and activity.usesysid is null
          then 'a process of the server, such as autovacuum' end, '') as application,
    (extract(epoch from clock_timestamp() - activity.xact_start) * 1000)::double precision as open_ms
  from (select distinct unnest(pg_blocking_pids($1::integer)) as pid) as blocker
  left join pg_stat_activity as activity on activity.pid = blocker.pid
  order by activity.xact_start nulls last, blocker.pid
  limit 5;

-- sagabox.session.opened_on
select case when not pg_is_in_recovery() then concat_ws(' ', extract(epoch from pg_postmaster_start_time()),
      inet_server_addr(), inet_server_port()) end as server,
    length(repeat(' ', 4194304)) as freed;

-- sagabox.set_local
select set_config(setting.key, setting.value, true) from json_each_text($1::text::json) as setting;

-- ══ src/testing/statements.ts ══════════════════════════════════════════════════════════════════════════════════════

-- sagabox.testing.lock_sagas
select id, version, state::text as state from "sagabox".saga_instance where completed_at is null order by id for update;

-- sagabox.testing.move_sagas
with moved as (
  update "sagabox".saga_instance as instance
    set state = given.state, version = instance.version + 1,
        due_at = instance.due_at - $1::double precision * interval '1 ms',
      waiting_since = instance.waiting_since - $1::double precision * interval '1 ms',
          created_at = instance.created_at - $1::double precision * interval '1 ms',
      updated_at = instance.updated_at - $1::double precision * interval '1 ms'
    from json_to_recordset($2::json) as given (id text, state json)
    where instance.id = given.id
    returning instance.id, instance.version, instance.trace_id)
insert into "sagabox".saga_audit_log (saga_id, version, event_type, note, cause, trace_id)
select id, version, 'noted', $3::text, 'test', trace_id from moved;

-- sagabox.testing.move_input
update "sagabox".saga_input set arrived_at = arrived_at - $1::double precision * interval '1 ms',
    expires_at = expires_at - $1::double precision * interval '1 ms';

-- sagabox.testing.move_incidents
update "sagabox".saga_incident set opened_at = opened_at - $1::double precision * interval '1 ms' where closed_at is null;

-- sagabox.testing.move_scheduled
update "sagabox".scheduled set due_at = due_at - $1::double precision * interval '1 ms',
    expires_at = expires_at - $1::double precision * interval '1 ms' returning id;

-- sagabox.testing.move_outbox
update "sagabox".outbox set due_at = case when due_at > clock_timestamp() then due_at - $1::double precision * interval '1 ms' else due_at end,
    expires_at = expires_at - $1::double precision * interval '1 ms'
  where isfinite(due_at) and (due_at > (select clock_timestamp()) or expires_at > (select clock_timestamp())
      and isfinite(expires_at))
  returning lane;

-- sagabox.testing.move_queue
update "sagabox".queue set due_at = case when due_at > clock_timestamp() then due_at - $1::double precision * interval '1 ms' else due_at end,
    expires_at = expires_at - $1::double precision * interval '1 ms'
  where isfinite(due_at) and (due_at > (select clock_timestamp()) or expires_at > (select clock_timestamp())
      and isfinite(expires_at))
  returning lane;

-- sagabox.testing.move_messages
update "sagabox".message set expires_at = expires_at - $1::double precision * interval '1 ms' where expires_at > (select clock_timestamp())
    and isfinite(expires_at);

-- sagabox.testing.move_flows
update "sagabox".flow_event set happened_at = happened_at - $1::double precision * interval '1 ms',
    recorded_at = recorded_at - $1::double precision * interval '1 ms' where open;

-- sagabox.testing.notify
select pg_notify($1::text, $2::text);

-- sagabox.testing.disconnect
select pg_terminate_backend(pid) from pg_stat_activity where pid = any($1::text::integer[]);

-- sagabox.testing.end_leases
with sagas as (
  update "sagabox".saga_instance set claimed_until = clock_timestamp() - interval '1 ms'
    where claimed_until > clock_timestamp()),
members as (update "sagabox".member set lease_until = clock_timestamp() - interval '2 seconds'),
waiting as (update "sagabox".outbox set lease_until = null where lease_until is not null)
update "sagabox".queue set lease_until = null where lease_until is not null;

-- ══ src/transports/postgres/statements.ts ══════════════════════════════════════════════════════════════════════════

-- sagabox.queue.hop
with owned as materialized (
  select held.lane
    from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence and claim.token = held.token
    order by held.lane
    for update of held
), gone as (
  delete from "sagabox".outbox as row
    using unnest($4::text::integer[], $5::text::bigint[], $6::text::text[]) as done (lane, seq, id)
    where row.lane = done.lane and row.seq = done.seq and row.message_id = done.id
        and (select count(*) from owned) = cardinality($1::text::integer[])
    returning row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
      row.max_attempts, row.expires_at, row.again
), copied as (
  insert into "sagabox".queue
      (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at)
  select lane, nextval('"sagabox".queue_seq'), stream, topic, type, message_id, written_on, priority, max_attempts,
      clock_timestamp(), expires_at
    from (select subscribed.group_id * 256 + gone.lane as lane, gone.stream, gone.topic, gone.type, gone.message_id,
          gone.written_on, gone.priority, gone.max_attempts, gone.expires_at
        from gone
        join "sagabox".subscription as subscribed on subscribed.topic = gone.topic
        order by gone.seq) as sorted
    returning lane
), noted as (
  insert into "sagabox".receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs, again_ids)
  select lane, min(seq), max(seq), array_agg(seq order by seq), $7::text, clock_timestamp(),
      (clock_timestamp() at time zone 'utc')::date, coalesce(array_agg(seq) filter (where again), '{}'),
      array_agg(message_id) filter (where again)
    from gone group by lane
)
select pg_current_xact_id()::text as xid, (select coalesce(array_agg(lane), '{}') from owned) as owned,
    (select coalesce(array_agg(distinct lane), '{}') from copied) as woken;

-- sagabox.queue.hop_past_locks
with owned as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token order by held.lane for update of held skip locked
), busy as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token where held.lane not in (select lane from owned)
), there as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($4::text::integer[], $5::text::bigint[],
      $6::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where row.lane in (select lane from owned)
), free as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($4::text::integer[], $5::text::bigint[],
      $6::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where row.lane in (select lane from owned) for update of row skip locked
), locked as materialized (
  select lane, seq, stream from there where (lane, seq) not in (select lane, seq from free)
), going as materialized (
  select free.lane, free.seq from free
    where not true or not exists (
      select 1 from locked where locked.stream = free.stream and locked.seq < free.seq)
), gone as (
  delete from "sagabox".outbox as row using going
    where row.lane = going.lane and row.seq = going.seq
    returning row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
      row.max_attempts, row.expires_at, row.again
), copied as (
  insert into "sagabox".queue
      (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at)
  select lane, nextval('"sagabox".queue_seq'), stream, topic, type, message_id, written_on, priority, max_attempts,
      clock_timestamp(), expires_at
    from (select subscribed.group_id * 256 + gone.lane as lane, gone.stream, gone.topic, gone.type, gone.message_id,
          gone.written_on, gone.priority, gone.max_attempts, gone.expires_at
        from gone
        join "sagabox".subscription as subscribed on subscribed.topic = gone.topic
        order by gone.seq) as sorted
    returning lane
), noted as (
  insert into "sagabox".receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs, again_ids)
  select lane, min(seq), max(seq), array_agg(seq order by seq), $7::text, clock_timestamp(),
      (clock_timestamp() at time zone 'utc')::date, coalesce(array_agg(seq) filter (where again), '{}'),
      array_agg(message_id) filter (where again)
    from gone group by lane
)
select pg_current_xact_id()::text as xid, (select coalesce(array_agg(lane), '{}') from owned) as owned,
    (select coalesce(array_agg(distinct lane), '{}') from copied) as woken,
    (select coalesce(array_agg(lane), '{}') from busy) as busy, (select coalesce(array_agg(seq::text), '{}') from there
        where (lane, seq) not in (select lane, seq from going)) as left_out;

-- sagabox.queue.hop_leased_past_locks
with there as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($1::text::integer[], $2::text::bigint[],
      $3::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where true
), free as materialized (
  select row.lane, row.seq, row.stream from "sagabox".outbox as row join unnest($1::text::integer[], $2::text::bigint[],
      $3::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where true for update of row skip locked
), locked as materialized (
  select lane, seq, stream from there where (lane, seq) not in (select lane, seq from free)
), going as materialized (
  select free.lane, free.seq from free
    where not true or not exists (
      select 1 from locked where locked.stream = free.stream and locked.seq < free.seq)
), gone as (
  delete from "sagabox".outbox as row using going
    where row.lane = going.lane and row.seq = going.seq
    returning row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
      row.max_attempts, row.expires_at, row.again
), copied as (
  insert into "sagabox".queue
      (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at)
  select lane, nextval('"sagabox".queue_seq'), stream, topic, type, message_id, written_on, priority, max_attempts,
      clock_timestamp(), expires_at
    from (select subscribed.group_id * 256 + gone.lane as lane, gone.stream, gone.topic, gone.type, gone.message_id,
          gone.written_on, gone.priority, gone.max_attempts, gone.expires_at
        from gone
        join "sagabox".subscription as subscribed on subscribed.topic = gone.topic
        order by gone.seq) as sorted
    returning lane
), noted as (
  insert into "sagabox".receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs, again_ids)
  select lane, min(seq), max(seq), array_agg(seq order by seq), $4::text, clock_timestamp(),
      (clock_timestamp() at time zone 'utc')::date, coalesce(array_agg(seq) filter (where again), '{}'),
      array_agg(message_id) filter (where again)
    from gone group by lane
)
select (select coalesce(array_agg(distinct lane), '{}') from copied) as woken, (select coalesce(array_agg(seq::text),
    '{}') from there
    where (lane, seq) not in (select lane, seq from going)) as left_out;

-- sagabox.queue.hop_leased
with gone as (
  delete from "sagabox".outbox as row
    using unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as done (lane, seq, id)
    where row.lane = done.lane and row.seq = done.seq and row.message_id = done.id
    returning row.lane, row.seq, row.stream, row.topic, row.type, row.message_id, row.written_on, row.priority,
      row.max_attempts, row.expires_at, row.again
), copied as (
  insert into "sagabox".queue
      (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at)
  select lane, nextval('"sagabox".queue_seq'), stream, topic, type, message_id, written_on, priority, max_attempts,
      clock_timestamp(), expires_at
    from (select subscribed.group_id * 256 + gone.lane as lane, gone.stream, gone.topic, gone.type, gone.message_id,
          gone.written_on, gone.priority, gone.max_attempts, gone.expires_at
        from gone
        join "sagabox".subscription as subscribed on subscribed.topic = gone.topic
        order by gone.seq) as sorted
    returning lane
), noted as (
  insert into "sagabox".receipt (lane, first_seq, last_seq, seqs, relay, sent_at, sent_on, again_seqs, again_ids)
  select lane, min(seq), max(seq), array_agg(seq order by seq), $4::text, clock_timestamp(),
      (clock_timestamp() at time zone 'utc')::date, coalesce(array_agg(seq) filter (where again), '{}'),
      array_agg(message_id) filter (where again)
    from gone group by lane
)
select (select coalesce(array_agg(distinct lane), '{}') from copied) as woken;

-- sagabox.queue.publish
with moment as materialized (select pg_current_xact_id() as xid, clock_timestamp() as at), incoming as materialized (
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
  insert into "sagabox".message
      (id, written_on, seq, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
            correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
            written_at, expires_at)
  select id, written_on, 0, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, 10, headers, data, written_at,
      expires_at
    from incoming
    on conflict do nothing
)
insert into "sagabox".queue
    (lane, seq, stream, topic, type, message_id, written_on, priority, due_at, expires_at)
select lane, nextval('"sagabox".queue_seq'), stream, topic, type, id, written_on, priority, clock_timestamp(),
    expires_at
  from (select subscribed.group_id * 256 + incoming.lane as lane, incoming.stream, incoming.topic, incoming.type,
      incoming.id,
        incoming.written_on, incoming.priority, incoming.expires_at
      from incoming
      join "sagabox".subscription as subscribed on subscribed.topic = incoming.topic
      order by incoming.turn) as sorted
  returning lane;

-- sagabox.queue.park
with moment as materialized (select pg_current_xact_id() as xid, clock_timestamp() as at), incoming as materialized (
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
  insert into "sagabox".message
      (id, written_on, seq, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
            correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
            written_at, expires_at)
  select id, written_on, 0, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
      correlation_id, causation_id, traceparent, source, target, priority, 10, headers, data, written_at,
      expires_at
    from incoming
    on conflict do nothing
)
insert into "sagabox".queue
    (lane, seq, stream, topic, type, message_id, written_on, priority, attempts, last_error, due_at, expires_at)
select lane, nextval('"sagabox".queue_seq'), stream, topic, type, id, written_on, 5, attempts, error,
    clock_timestamp() + delay_ms * interval '1 ms', expires_at
  from (select $22::integer * 256 + incoming.lane as lane, incoming.stream, incoming.topic, incoming.type, incoming.id,
        incoming.written_on, incoming.expires_at, failure.attempts, failure.delay_ms, failure.error
      from incoming
      join unnest($23::text::smallint[], $24::text::double precision[], $25::text::text[])
    with ordinality as failure (attempts, delay_ms, error, turn) using (turn)
      where (select true from "sagabox".queue as there
          where there.lane::bigint = ($22::integer * 256 + incoming.lane)::bigint and there.stream = incoming.stream
            and there.message_id = incoming.id
          limit 1) is null
      order by incoming.turn) as sorted
  returning lane;

-- sagabox.queue.parked
select requested.stream::text as stream
  from unnest($2::text::integer[], $3::text::bigint[]) as requested (lane, stream)
  where (select true from "sagabox".queue as row
      where row.lane::bigint = ($1::integer * 256 + requested.lane)::bigint and row.stream = requested.stream
      limit 1);

-- sagabox.queue.acked
with owned as materialized (
  select held.lane
    from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence and claim.token = held.token
    order by held.lane
    for update of held
), gone as (
  delete from "sagabox".queue as row
    using unnest($4::text::integer[], $5::text::bigint[], $6::text::text[]) as done (lane, seq, id)
    where row.lane = done.lane and row.seq = done.seq and row.message_id = done.id
        and (select count(*) from owned) = cardinality($1::text::integer[])
)
select pg_current_xact_id()::text as xid, (select coalesce(array_agg(lane), '{}') from owned) as owned;

-- sagabox.queue.ack_inside
with gone as (
  delete from "sagabox".queue
    where lane = $1::integer and seq = $2::text::bigint and message_id = $3::text and (select set_config('lock_timeout',
        '500ms', true)) is not null
    returning 1
)
select 1 / count(*) as acked from gone;

-- sagabox.queue.ack_inside_all
with gone as (
  delete from "sagabox".queue
    where ctid = any(array(
      select found.row_id
        from unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as done (lane, seq, id)
        cross join lateral (
          select row.ctid as row_id from "sagabox".queue as row where row.lane = done.lane and row.seq = done.seq
              and row.message_id = done.id offset 0
        ) as found)) and (select set_config('lock_timeout', '500ms', true)) is not null
    returning 1
)
select 1 / (count(*) = cardinality($1::text::integer[]))::integer as acked from gone;

-- sagabox.queue.acked_past_locks
with owned as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token order by held.lane for update of held skip locked
), busy as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token where held.lane not in (select lane from owned)
), there as materialized (
  select row.lane, row.seq, row.stream from "sagabox".queue as row join unnest($4::text::integer[], $5::text::bigint[],
      $6::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where row.lane in (select lane from owned)
), free as materialized (
  select row.lane, row.seq, row.stream from "sagabox".queue as row join unnest($4::text::integer[], $5::text::bigint[],
      $6::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where row.lane in (select lane from owned) for update of row skip locked
), locked as materialized (
  select lane, seq, stream from there where (lane, seq) not in (select lane, seq from free)
), going as materialized (
  select free.lane, free.seq from free
    where not false or not exists (
      select 1 from locked where locked.stream = free.stream and locked.seq < free.seq)
), gone as (
  delete from "sagabox".queue as row using going
    where row.lane = going.lane and row.seq = going.seq
)
select pg_current_xact_id()::text as xid, (select coalesce(array_agg(lane), '{}') from owned) as owned,
    (select coalesce(array_agg(lane), '{}') from busy) as busy, (select coalesce(array_agg(seq::text), '{}') from there
    where (lane, seq) not in (select lane, seq from going)) as left_out;

-- sagabox.queue.retried
with owned as materialized (
  select held.lane
    from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence and claim.token = held.token
    order by held.lane
    for update of held
), kept as (
  update "sagabox".queue as row
    set attempts = row.attempts + failure.counted_attempts, last_error = failure.error,
      due_at = clock_timestamp() + failure.delay_ms * interval '1 ms'
    from unnest($4::text::integer[], $5::text::bigint[], $6::text::text[], $7::text::double precision[],
          $8::text::smallint[], $9::text::text[])
      as failure (lane, seq, id, delay_ms, counted_attempts, error)
    where row.lane = failure.lane and row.seq = failure.seq and row.message_id = failure.id
        and (select count(*) from owned) = cardinality($1::text::integer[])
) select pg_current_xact_id()::text as xid, (select coalesce(array_agg(lane), '{}') from owned) as owned;

-- sagabox.queue.retried_past_locks
with owned as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token order by held.lane for update of held skip locked
), busy as materialized (
  select held.lane from "sagabox".relay_lane as held
    join unnest($1::text::integer[], $2::text::bigint[], $3::text::text[]) as claim (lane, fence, token)
    on claim.lane = held.lane and claim.fence = held.fence
        and claim.token = held.token where held.lane not in (select lane from owned)
), there as materialized (
  select row.lane, row.seq, row.stream from "sagabox".queue as row join unnest($4::text::integer[], $5::text::bigint[],
      $6::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where row.lane in (select lane from owned)
), free as materialized (
  select row.lane, row.seq, row.stream from "sagabox".queue as row join unnest($4::text::integer[], $5::text::bigint[],
      $6::text::text[]) as given (lane, seq, id) on row.lane = given.lane and row.seq = given.seq
      and row.message_id = given.id where row.lane in (select lane from owned) for update of row skip locked
), locked as materialized (
  select lane, seq, stream from there where (lane, seq) not in (select lane, seq from free)
), going as materialized (
  select free.lane, free.seq from free
    where not false or not exists (
      select 1 from locked where locked.stream = free.stream and locked.seq < free.seq)
),
kept as (
  update "sagabox".queue as row
    set attempts = row.attempts + failure.counted_attempts, last_error = failure.error,
      due_at = clock_timestamp() + failure.delay_ms * interval '1 ms'
    from unnest($4::text::integer[], $5::text::bigint[], $6::text::text[], $7::text::double precision[],
          $8::text::smallint[], $9::text::text[])
      as failure (lane, seq, id, delay_ms, counted_attempts, error)
    where row.lane = failure.lane and row.seq = failure.seq and row.message_id = failure.id and (row.lane,
        row.seq) in (select lane, seq from going)
)
select pg_current_xact_id()::text as xid, (select coalesce(array_agg(lane), '{}') from owned) as owned,
    (select coalesce(array_agg(lane), '{}') from busy) as busy, (select coalesce(array_agg(seq::text), '{}') from there
    where (lane, seq) not in (select lane, seq from going)) as left_out;

-- sagabox.queue.lag
with moment as materialized (
  select clock_timestamp() as at
), wanted as materialized (
  select id, name from "sagabox".consumer_group
    where $1::text is null or name = any($1::text::text[])
    order by name limit 500
), first_row as materialized (
  select wanted.id as group_id, lane.number as lane, row.topic, row.due_at
    from wanted
    cross join lateral generate_series(wanted.id * 256, wanted.id * 256 + 255) as lane (number)
    cross join lateral (
      select topic, due_at from "sagabox".queue
        where queue.lane = lane.number order by seq limit 16) as row
), longer as materialized (
  select distinct group_id
    from (select group_id from first_row group by group_id, lane having count(*) = 16) as lane
), counted as materialized (
  select group_id, topic, count(*) filter (where due_at < 'infinity')::integer as counted,
      (extract(epoch from moment.at - min(due_at) filter (where due_at <= moment.at)))::double precision
      as oldest_seconds
    from first_row, moment
    group by group_id, topic, moment.at
), queue_size as materialized (
  select least(100, 100.0 * 500 / greatest(1, pg_relation_size('"sagabox".queue') / 8192))::real as percent
), queue_waiting as (
  select size.percent, row.*
    from queue_size as size
    cross join lateral (
      select topic,
          lane / 256 as group_id from "sagabox".queue tablesample system (size.percent) where due_at < 'infinity') as row
), sampled as materialized (
  select group_id, topic, count(*)::integer as seen from queue_waiting group by group_id, topic
)
select wanted.name as consumer, known.topic, coalesce(counted.counted, 0) as counted,
    wanted.id not in (select group_id from longer) as is_complete, coalesce(sampled.seen, 0) as seen,
    (select percent::double precision from queue_size) as percent, counted.oldest_seconds
  from wanted
  join (select group_id, topic from "sagabox".subscription
    union select group_id, topic from counted
    union select group_id, topic from sampled) as known on known.group_id = wanted.id
  left join counted using (group_id, topic)
  left join sampled using (group_id, topic)
  order by wanted.name, known.topic;

-- ══ src/transports/postgres/subscribe-statements.ts ════════════════════════════════════════════════════════════════

-- sagabox.queue.create_group
insert into "sagabox".consumer_group (name) values ($1::text) on conflict (name) do nothing;

-- sagabox.queue.find_group
select id from "sagabox".consumer_group where name = $1::text;

-- sagabox.queue.create_lanes
insert into "sagabox".relay_lane (lane, scope)
select $1::integer * 256 + n, $1::integer from generate_series(0, 255) as n
  on conflict do nothing;

-- sagabox.queue.standing
select coalesce(bool_or(group_id = $2::integer), false) as present, count(*) > 0 as claimed,
    (select to_char(retired_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        from "sagabox".retired_subscription where topic = $1::text) as retired_at
  from "sagabox".subscription where topic = $1::text;

-- sagabox.queue.subscribe
insert into "sagabox".subscription (topic, group_id) values ($1::text, $2::integer)
  on conflict do nothing
  returning (select count(*)::integer from "sagabox".subscription where topic = $1::text) as others;

-- sagabox.queue.in_turn
select pg_advisory_xact_lock(hashtextextended('sagabox.subscribe.' || $1::text, 0));

-- sagabox.queue.horizon
select pg_snapshot_xmax(pg_current_snapshot())::text as xid,
    ((clock_timestamp() at time zone 'utc')::date - 1)::text as day;

-- sagabox.queue.passed
select pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8 as passed;

-- sagabox.queue.copy_past
with moment as materialized (select pg_current_xact_id() as xid, clock_timestamp() as at), message as materialized (
  select message.id, message.lane, message.stream, message.topic, message.type, message.written_on, message.priority,
      message.max_attempts, message.expires_at, message.seq, message.written_at,
      outbox.seq is not null or dead.message_id is not null as stays
    from "sagabox".message
    left join "sagabox".outbox on outbox.lane = message.lane and outbox.seq = message.seq
    left join (select distinct message_id from "sagabox".dead_letter
        where origin = 'outbox' and closed_at is null) as dead on dead.message_id = message.id
    where message.topic = $1::text and message.written_at >= $3::text::timestamptz
      and message.written_on >= ($3::text::timestamptz at time zone 'utc')::date - 1
), copied as (
  insert into "sagabox".queue (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at,
      expires_at)
  select $2::integer * 256 + past.lane, nextval('"sagabox".queue_seq'), past.stream, past.topic, past.type, past.id,
      past.written_on, past.priority, past.max_attempts, moment.at, past.expires_at
    from moment, (
      select message.* from message where not message.stays
        order by message.seq = 0 desc, case when message.seq = 0 then message.written_at end, message.seq
    ) as past
    where moment.xid is not null
)
select coalesce(array_agg(id), '{}') as stayed from message where stays and written_on < $4::text::date;

-- sagabox.queue.copy_rest
with moment as materialized (select pg_current_xact_id() as xid, clock_timestamp() as at), message as materialized (
  select message.id, message.lane, message.stream, message.topic, message.type, message.written_on, message.priority,
      message.max_attempts, message.expires_at, message.seq,
          message.written_at from "sagabox".message where message.topic = $1::text
          and message.written_at >= $3::text::timestamptz
      and message.written_on >= ($3::text::timestamptz at time zone 'utc')::date - 1
          and message.written_on >= $4::text::date
  union all
  select message.id, message.lane, message.stream, message.topic, message.type, message.written_on, message.priority,
      message.max_attempts, message.expires_at, message.seq, message.written_at from "sagabox".message
    where message.id = any($5::text::text[]) and message.topic = $1::text
        and message.written_at >= $3::text::timestamptz
      and message.written_on >= ($3::text::timestamptz at time zone 'utc')::date - 1
          and message.written_on < $4::text::date
), missing as materialized (
  select id from message
      except
  select queue.message_id from "sagabox".queue
    where queue.lane >= $2::integer * 256 and queue.lane < ($2::integer + 1) * 256 and queue.topic = $1::text
)
insert into "sagabox".queue (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at,
    expires_at)
select $2::integer * 256 + past.lane, nextval('"sagabox".queue_seq'), past.stream, past.topic, past.type, past.id,
    past.written_on, past.priority, past.max_attempts, moment.at, past.expires_at
  from moment, (
    select message.*
      from message
      where message.id in (select id from missing)
        and not exists (select 1 from "sagabox".outbox
            where outbox.lane = message.lane and outbox.seq = message.seq)
        and not exists (select 1 from "sagabox".dead_letter as dead
            where dead.message_id = message.id and dead.origin = 'outbox' and dead.closed_at is null)
      order by message.seq = 0 desc, case when message.seq = 0 then message.written_at end, message.seq
  ) as past
  where moment.xid is not null;

-- sagabox.queue.lock_subscriptions
select "sagabox".lock_subscriptions();

-- sagabox.queue.retire
select subscriptions, deliveries from "sagabox".retire_consumer($1::integer);

-- sagabox.queue.patience
select set_config('lock_timeout', $1::integer::text || 'ms', true);

-- sagabox.queue.mark
    savepoint before_lock;

-- sagabox.queue.back_to_mark
    rollback to savepoint before_lock;
