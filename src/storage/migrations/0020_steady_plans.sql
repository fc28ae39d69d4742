-- Keeps the plans of prepared statements independent of statistics. A session plans a statement once and keeps that plan.
-- If the table has no pages at that moment, reading all of it costs nothing by PostgreSQL's reckoning, so the plan is a
-- sequential scan, and it stays one while the table fills. Any index is cheaper than 64 pages, with or without rows in
-- them. So each table whose rows come and go keeps at least 64 pages (512 kB), and VACUUM does not give pages back.

-- VACUUM also locks a table exclusively to cut it. Queues are emptied and filled all day, and use the space again.
alter table {schema}.outbox set (vacuum_truncate = off);
alter table {schema}.queue set (vacuum_truncate = off);
alter table {schema}.scheduled set (vacuum_truncate = off);
alter table {schema}.published_id set (vacuum_truncate = off);
alter table {schema}.consumer_inbox set (vacuum_truncate = off);
alter table {schema}.dead_letter set (vacuum_truncate = off);
alter table {schema}.saga_instance set (vacuum_truncate = off);
alter table {schema}.saga_mail set (vacuum_truncate = off);
alter table {schema}.saga_incident set (vacuum_truncate = off);
alter table {schema}.reply set (vacuum_truncate = off);
alter table {schema}.flow_event set (vacuum_truncate = off);
alter table {schema}.blob set (vacuum_truncate = off);
alter table {schema}.blob_use set (vacuum_truncate = off);
alter table {schema}.subject_key set (vacuum_truncate = off);

-- ── indexes ─────────────────────────────────────────────────────────────────────────────────────────
-- A planner that takes the table for empty finds reading a lane by the primary key as cheap as reading one stream of it. The
-- lane as a bigint is in no other index, so a condition on it leaves no choice. The stream comes first for versions before
-- this one, which ask for the lane itself.
drop index {schema}.outbox_stream;
drop index {schema}.outbox_express_stream;
drop index {schema}.queue_stream;
drop index {schema}.queue_express_stream;
create index outbox_stream on {schema}.outbox (stream, (lane::bigint), seq) where stream is not null;
create index outbox_express_stream on {schema}.outbox (stream, (lane::bigint), seq) where priority <> 5 and stream is not null;
create index queue_stream on {schema}.queue (stream, (lane::bigint), seq) where stream is not null;
create index queue_express_stream on {schema}.queue (stream, (lane::bigint), seq) where priority <> 5 and stream is not null;

-- What is old among dead letters, whether open or closed.
create index dead_letter_failed on {schema}.dead_letter (failed_at);

-- ── functions ───────────────────────────────────────────────────────────────────────────────────────
-- The days ahead are partitions without pages. A function plans its statements under its own settings, whatever the session
-- has, so these lookups by id read no partition from end to end.

-- Whether a message with this id was published or is scheduled. Without a number it was kept for a retry only.
create function {schema}.has_message(wanted text) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
begin
  return exists (select 1 from {schema}.message where message.id = wanted and message.seq > 0)
      or exists (select 1 from {schema}.scheduled where scheduled.id = wanted);
end
$$;
revoke all on function {schema}.has_message(text) from public;

alter function {schema}.dead_letter_find_place() set enable_seqscan = off;
alter function {schema}.dead_letter_keep_message(bigint, smallint) set enable_seqscan = off;
alter function {schema}.dead_letter_keep_copy(bigint, smallint, text, bigint) set enable_seqscan = off;
alter function {schema}.outbox_retry_now(text) set enable_seqscan = off;

-- "doomed_at is null" would let a planner that takes the table for empty read all of the index of what is not doomed.
create or replace function {schema}.keep_saga_attachments() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into {schema}.blob_use (key, used_by)
  select blob.key, 'saga:' || new.id
    from {schema}.blob
   where coalesce(blob.doomed_at, 'infinity') = 'infinity'
     and blob.key = any(array(
           select match[1] collate "C"
             from regexp_matches(new.input::text || new.state::text,
                    '"key":"([0-9a-f]{12}/[0-9]{4}-[0-9]{2}-[0-9]{2}/[0-9a-f]{32})"', 'g') as match) || new.attachments)
     for share
  on conflict (key, used_by) do nothing;
  return null;
end
$$;

-- ── pages ───────────────────────────────────────────────────────────────────────────────────────────
-- Gives every such table its pages, and returns how many tables had too few: new ones, and those that TRUNCATE, VACUUM FULL
-- or a restored dump has left small. It inserts rows that fill a quarter of a page each and deletes them in the same
-- transaction, so no other transaction ever sees one. Called by this migration and by the upkeep of the history.
create function {schema}.reserve_pages() returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  pages constant integer := 64;
  padding constant text := repeat('.', 1600);
  -- No row of anybody has these names.
  mark constant text := 'reserve ' || gen_random_uuid();
  filled integer := 0;
  wanted text;
begin
  for wanted in
    select relname from pg_class
     where relnamespace = '{schema}'::regnamespace
       and relname = any(array['outbox', 'queue', 'scheduled', 'published_id', 'consumer_inbox', 'dead_letter', 'saga_instance',
                               'saga_mail', 'saga_incident', 'reply', 'flow_event', 'blob', 'blob_use', 'subject_key'])
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
        insert into {schema}.consumer_inbox (consumer, event_id, source_topic, event_type, result)
        select mark, n::text, mark, mark, padding from generate_series(1, 4 * pages) as n;
        delete from {schema}.consumer_inbox where consumer = mark;
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
        insert into {schema}.saga_instance (id, type, definition_version, correlation_id, status, input, state, last_error,
               trace_id, traceparent, message_correlation_id, ended_at)
        select mark || n, mark, 1, mark || n, 'completed', '{}', '{}', padding, '', '', '', clock_timestamp()
          from generate_series(1, 4 * pages) as n;
        delete from {schema}.saga_instance where type = mark;
      when 'saga_mail' then
        insert into {schema}.saga_mail (id, type, saga_id, cause, input, expires_at)
        select mark || n, mark, mark, padding, '{}', 'infinity' from generate_series(1, 4 * pages) as n;
        delete from {schema}.saga_mail where saga_id = mark;
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

revoke all on function {schema}.reserve_pages() from public;
select {schema}.reserve_pages();
