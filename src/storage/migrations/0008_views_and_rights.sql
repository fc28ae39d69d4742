-- Views for people, the function that keeps query plans stable, and the end of every right of PUBLIC. The rights of
-- roles are granted by the SQL that `sagabox roles sql` prints.

-- ── outbox_events ───────────────────────────────────────────────────────────────────────────────────
-- Every published and scheduled message with its status, in the words of the state machine. Status is computed:
--   dead_letter  an open dead letter, or one that was discarded, as long as it is kept
--   sent         no outbox row is left
--   optimistic   the publishing process holds a lease on the row and is sending it
--   failed       sent without success at least once, waiting for its next attempt
--   claimed      due, in a lane that a living relay owns
--   pending      waiting, never tried; also every scheduled message
-- Headers include the four that are filled in when a message is sent; a message without a cause is its own cause.
create view {schema}.outbox_events as
select m.id as event_id, m.saga_id, m.aggregate_type, m.aggregate_id, m.type as event_type,
       m.data::json as payload,
       (m.headers::jsonb || jsonb_build_object(
         'trace_id', substr(m.traceparent, 4, 32), 'message_id', m.id,
         'causation_id', coalesce(m.causation_id, m.id), 'correlation_id', m.correlation_id))::json as headers,
       case
         when d.id is not null and d.closed_at is null then 'dead_letter'
         when o.seq is null and d.id is not null and r.sent_at is null then 'dead_letter'
         when o.seq is null then 'sent'
         when o.lease_until > clock_timestamp() then 'optimistic'
         when o.attempts > 0 and o.due_at > clock_timestamp() then 'failed'
         when l.owner is not null and o.due_at <= clock_timestamp() then 'claimed'
         when o.attempts > 0 then 'failed'
         else 'pending'
       end as status,
       m.topic as routing_key, m.key as partition_key, m.topic,
       coalesce(o.attempts, d.attempts, 0) as attempts, m.max_attempts::smallint as max_attempts,
       m.priority::smallint as priority,
       coalesce(o.due_at, m.written_at) as available_at, m.expires_at, m.written_at as created_at,
       case when o.seq is not null and l.owner is not null then l.leased_at end as claimed_at,
       r.sent_at as published_at, coalesce(o.last_error, d.error_message) as last_error,
       m.correlation_id, m.causation_id, m.traceparent
  from {schema}.message m
  left join lateral (
    select own.* from {schema}.outbox own where own.lane = m.lane and own.seq = m.seq
    union all
    select resent.* from {schema}.outbox resent where resent.again and resent.message_id = m.id
    limit 1
  ) o on true
  left join lateral (
    select lane.owner, lane.leased_at
      from {schema}.relay_lane lane
      join {schema}.member on member.id = lane.owner and member.lease_until > clock_timestamp()
     where lane.lane = m.lane
  ) l on true
  left join lateral (
    -- The latest decision counts: a message that was replayed after it had been discarded is alive.
    select last.* from (
      select dead.id, dead.attempts, dead.error_message, dead.closed_at, dead.closed_as
        from {schema}.dead_letter dead
       where dead.message_id = m.id and dead.origin = 'outbox'
       order by dead.closed_at desc nulls first, dead.id desc
       limit 1
    ) last
     where last.closed_as is distinct from 'replayed'
  ) d on true
  left join lateral (
    select receipt.sent_at
      from {schema}.receipt
     where receipt.lane = m.lane and receipt.last_seq >= m.seq and receipt.first_seq <= m.seq
       and m.seq = any(receipt.seqs)
     order by receipt.last_seq desc
     limit 1
  ) r on o.seq is null
union all
select s.id, s.saga_id, s.aggregate_type, s.aggregate_id, s.type, s.data::json,
       (s.headers::jsonb || jsonb_build_object(
         'trace_id', substr(s.traceparent, 4, 32), 'message_id', s.id,
         'causation_id', coalesce(s.causation_id, s.id), 'correlation_id', s.correlation_id))::json,
       'pending', s.topic, s.key, s.topic, 0, s.max_attempts, s.priority, s.due_at, s.expires_at, s.written_at,
       null, null, null, s.correlation_id, s.causation_id, s.traceparent
  from {schema}.scheduled s;

-- ── masked views ────────────────────────────────────────────────────────────────────────────────────
-- For roles that may look but not read: ids, names, states, times and sizes. Payloads, headers, keys, error texts and
-- names of people are left out; of an error text only its existence is shown. security_barrier keeps functions in a
-- caller's WHERE clause from seeing rows or columns that the view hides.
create view {schema}.masked_message with (security_barrier) as
select id, kind, type, schema_version, topic, aggregate_type, saga_id, correlation_id, causation_id, traceparent, source,
       target, priority, max_attempts, holds_on_death, lane, seq, octet_length(data) as data_bytes, written_on,
       written_at, expires_at
  from {schema}.message;

create view {schema}.masked_outbox_events with (security_barrier) as
select event_id, saga_id, aggregate_type, event_type, status, topic, attempts, max_attempts, priority, available_at,
       expires_at, created_at, claimed_at, published_at, last_error is not null as has_error, correlation_id,
       causation_id, traceparent
  from {schema}.outbox_events;

create view {schema}.masked_outbox with (security_barrier) as
select lane, seq, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at, lease_until, expires_at,
       again, last_error is not null as has_error
  from {schema}.outbox;

create view {schema}.masked_scheduled with (security_barrier) as
select id, due_at, kind, type, schema_version, topic, aggregate_type, saga_id, correlation_id, causation_id, traceparent,
       source, target, priority, max_attempts, lane, octet_length(data) as data_bytes, written_at, expires_at
  from {schema}.scheduled;

create view {schema}.masked_queue with (security_barrier) as
select queue.lane, queue.seq, consumer_group.name as consumer, queue.topic, queue.type, queue.message_id,
       queue.written_on, queue.priority, queue.attempts, queue.max_attempts, queue.due_at, queue.lease_until,
       queue.expires_at, queue.last_error is not null as has_error
  from {schema}.queue
  left join {schema}.consumer_group on consumer_group.id = queue.lane / 256;

create view {schema}.masked_consumer_inbox with (security_barrier) as
select consumer_name, event_id, source_topic, event_type, consumed_at, processing_duration_ms, effect, effect_of, undone_by
  from {schema}.consumer_inbox;

create view {schema}.masked_dead_letter with (security_barrier) as
select id, origin, consumer, message_id, kind, type, schema_version, topic, aggregate_type, saga_id, correlation_id,
       causation_id, traceparent, source, target, priority, attempts, max_attempts, reason, error_type,
       octet_length(data) as data_bytes, written_at, expires_at, failed_at, closed_at, closed_as,
       held_lane is not null as holds_key, fingerprint
  from {schema}.dead_letter;

create view {schema}.masked_reply with (security_barrier) as
select request_id, outcome, arrived_at from {schema}.reply;

create view {schema}.masked_flow_event with (security_barrier) as
select flow, message_id, correlation_id, type, causation_id, source, happened_at, recorded_at, open
  from {schema}.flow_event;

create view {schema}.masked_saga_instance with (security_barrier) as
select id, saga_type, definition_version, status, current_step, waits_for, waiting_since, version, retry_count,
       last_error is not null as has_error, trace_id, message_correlation_id, parent_id, parent_step, due_at,
       claimed_by, claimed_until, created_at, updated_at, completed_at
  from {schema}.saga_instance;

create view {schema}.masked_saga_input with (security_barrier) as
select id, saga_type, saga_id, arrived_at, expires_at from {schema}.saga_input;

create view {schema}.masked_saga_incident with (security_barrier) as
select id, saga_id, steps, opened_at, closed_at from {schema}.saga_incident;

create view {schema}.masked_saga_audit_log with (security_barrier) as
select id, timestamp, saga_id, version, event_type, step, old_status, new_status, user_id is not null as by_a_person, trace_id
  from {schema}.saga_audit_log;

create view {schema}.masked_audit_log with (security_barrier) as
select id, timestamp, action, target_kind, outcome, error_code, trace_id from {schema}.audit_log;

create view {schema}.masked_audit_seal with (security_barrier) as
select number, chain, log, month, row_count, sealed_at from {schema}.audit_seal;

create view {schema}.masked_blob with (security_barrier) as
select key, store, bytes, stored_at, doomed_at from {schema}.blob;

create view {schema}.masked_subject_key with (security_barrier) as
select kek_id, created_at, erased_at from {schema}.subject_key;

create view {schema}.masked_erasure with (security_barrier) as
select id, erased_at, cardinality(key_ids) as keys, swept_at from {schema}.gdpr_erasure_log;

-- ── stable plans ────────────────────────────────────────────────────────────────────────────────────
-- Gives every table whose rows come and go at least 64 pages (512 kB), and returns how many tables had too few: new
-- ones, and those that TRUNCATE, VACUUM FULL or a restored dump has left small.
-- A session plans a prepared statement once and keeps the plan. If a table has no pages at that moment, the planner
-- expects a sequential scan to cost nothing and keeps it while the table fills. Any index is cheaper than 64 pages,
-- with or without rows in them. These tables are created with vacuum_truncate = off, so they keep their pages.
-- The function inserts rows that fill a quarter of a page each and deletes them in the same transaction, so no other
-- transaction ever sees one. It is called below and by the daily maintenance.
create function {schema}.reserve_pages() returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  pages constant integer := 64;
  padding constant text := repeat('.', 1600);
  -- No other row has this name.
  mark constant text := 'reserve ' || gen_random_uuid();
  filled integer := 0;
  wanted text;
begin
  for wanted in
    select relname from pg_class
     where relnamespace = '{schema}'::regnamespace
       and relname = any(array['outbox', 'queue', 'scheduled', 'published_id', 'consumer_inbox', 'dead_letter', 'saga_instance',
                               'saga_input', 'saga_incident', 'reply', 'flow_event', 'blob', 'blob_use', 'subject_key'])
       and pg_relation_size(oid) < pages * current_setting('block_size')::bigint
     order by relname
  loop
    filled := filled + 1;
    case wanted
      when 'outbox' then
        insert into {schema}.outbox (lane, seq, stream, topic, type, message_id, written_on, due_at, last_error)
        select 0, -n, -n, mark, mark, mark, 'epoch', 'infinity', padding from generate_series(1, 4 * pages) as n;
        delete from {schema}.outbox where lane = 0 and seq < 0 and message_id = mark;
      when 'queue' then
        insert into {schema}.queue (lane, seq, stream, topic, type, message_id, written_on, due_at, last_error)
        select 256, -n, -n, mark, mark, mark, 'epoch', 'infinity', padding from generate_series(1, 4 * pages) as n;
        delete from {schema}.queue where lane = 256 and seq < 0 and message_id = mark;
      when 'scheduled' then
        insert into {schema}.scheduled (id, due_at, lane, kind, type, schema_version, topic, correlation_id, traceparent,
               source, priority, max_attempts, data, written_at)
        select mark || n, 'infinity', 0, 'event', mark, 1, '', '', '', '', 5, 1, padding, clock_timestamp()
          from generate_series(1, 4 * pages) as n;
        delete from {schema}.scheduled where type = mark;
      when 'published_id' then
        insert into {schema}.published_id (id, written_on)
        select rpad(mark || n, 250, '.'), 'epoch' from generate_series(1, 32 * pages) as n;
        delete from {schema}.published_id where starts_with(id, mark);
      when 'consumer_inbox' then
        insert into {schema}.consumer_inbox (consumer_name, event_id, source_topic, event_type, result)
        select mark, n::text, mark, mark, padding from generate_series(1, 4 * pages) as n;
        delete from {schema}.consumer_inbox where consumer_name = mark;
      when 'dead_letter' then
        insert into {schema}.dead_letter (id, origin, message_id, kind, type, schema_version, topic, correlation_id,
               traceparent, source, priority, max_attempts, headers, data, written_at, reason, attempts, error_type,
               error_message, closed_at, closed_as)
        overriding system value
        select -n, 'outbox', mark, 'event', '', 1, '', '', '', '', 5, 1, '{}', padding, clock_timestamp(),
               'rejected', 0, '', '', clock_timestamp(), 'discarded'
          from generate_series(1, 4 * pages) as n;
        delete from {schema}.dead_letter where message_id = mark;
      when 'saga_instance' then
        insert into {schema}.saga_instance (id, saga_type, definition_version, correlation_id, status, input, state, last_error,
               trace_id, traceparent, message_correlation_id, completed_at)
        select mark || n, mark, 1, mark || n, 'completed', '{}', '{}', padding, '', '', '', clock_timestamp()
          from generate_series(1, 4 * pages) as n;
        delete from {schema}.saga_instance where saga_type = mark;
      when 'saga_input' then
        insert into {schema}.saga_input (id, saga_type, saga_id, cause, input, expires_at)
        select mark || n, mark, mark, padding, '{}', 'infinity' from generate_series(1, 4 * pages) as n;
        delete from {schema}.saga_input where saga_id = mark;
      when 'saga_incident' then
        insert into {schema}.saga_incident (id, saga_id, steps, error, closed_at, resolution)
        overriding system value
        select -n, mark, '{}', padding, clock_timestamp(), mark from generate_series(1, 4 * pages) as n;
        delete from {schema}.saga_incident where saga_id = mark;
      when 'reply' then
        insert into {schema}.reply (request_id, outcome, body)
        select mark || n, 'done', padding from generate_series(1, 4 * pages) as n;
        delete from {schema}.reply where starts_with(request_id, mark);
      when 'flow_event' then
        insert into {schema}.flow_event (flow, message_id, correlation_id, type, source, key, happened_at)
        select mark, n::text, mark, mark, mark, padding, clock_timestamp() from generate_series(1, 4 * pages) as n;
        delete from {schema}.flow_event where flow = mark;
      when 'blob' then
        insert into {schema}.blob (key, store, bytes, sha256)
        select mark || n, padding, 0, repeat('0', 64) from generate_series(1, 4 * pages) as n;
        delete from {schema}.blob where starts_with(key, mark);
      when 'blob_use' then
        insert into {schema}.blob (key, store, bytes, sha256) values (mark, mark, 0, repeat('0', 64));
        insert into {schema}.blob_use (key, used_by) select mark, rpad(n::text, 250, '.') from generate_series(1, 32 * pages) as n;
        delete from {schema}.blob_use where key = mark;
        delete from {schema}.blob where key = mark;
      when 'subject_key' then
        insert into {schema}.subject_key (key_id, subject, wrapped, kek_id)
        select lpad(n::text, 22, '.'), repeat('.', 43), padding, mark from generate_series(1, 4 * pages) as n;
        delete from {schema}.subject_key where kek_id = mark;
    end case;
  end loop;
  return filled;
end
$$;

select {schema}.reserve_pages();

-- ── rights ──────────────────────────────────────────────────────────────────────────────────────────
-- PUBLIC gets nothing, not even the right to execute functions, which PostgreSQL grants by default. A later migration
-- must revoke the rights on what it creates.
revoke all on schema {schema} from public;
revoke all on all tables in schema {schema} from public;
revoke all on all sequences in schema {schema} from public;
revoke all on all functions in schema {schema} from public;
