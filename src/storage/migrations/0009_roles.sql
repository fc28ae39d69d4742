-- What a role of the database may do that a right on a whole table would be too wide for: functions that do one thing each,
-- and views without payloads, headers, keys, error texts and names. The grants themselves are printed by `sagabox roles sql`.

-- ── one thing each ──────────────────────────────────────────────────────────────────────────────────
-- They run with the rights of their owner and name everything in full, so nobody's search_path has a say in them.

-- A consumer group that reads from the beginning keeps hops out while it copies. The lock itself would need the right
-- to delete the subscriptions of others.
create function {schema}.lock_subscriptions() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  lock table {schema}.subscription in access exclusive mode;
end
$$;

-- The three below act on a letter that this transaction, or an earlier one, has closed; on nothing else.
-- Lets the row that held its key be sent from its place. True when there was one.
create function {schema}.dead_letter_rearm(letter_id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update {schema}.outbox as held
     set attempts = 0, due_at = clock_timestamp(),
         expires_at = case when held.expires_at > clock_timestamp() then held.expires_at end
    from {schema}.dead_letter as letter
   where letter.id = letter_id and letter.closed_as = 'replayed'
     and held.lane = letter.held_lane and held.seq = letter.held_seq and held.due_at = 'infinity';
  return found;
end
$$;

-- Gives up the place of a discarded letter, so that its key goes on.
create function {schema}.dead_letter_free_key(letter_id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from {schema}.outbox as held
   using {schema}.dead_letter as letter
   where letter.id = letter_id and letter.closed_as = 'discarded'
     and held.lane = letter.held_lane and held.seq = letter.held_seq and held.due_at = 'infinity';
  return found;
end
$$;

-- Finds the newest copy of the message, or writes one for today from the letter when its partition is gone.
create function {schema}.dead_letter_keep_message(letter_id bigint, in_lane smallint) returns date
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  kept date;
begin
  select message.written_on into kept
    from {schema}.dead_letter as letter
    join {schema}.message on message.id = letter.message_id
   where letter.id = letter_id
   order by message.written_on desc limit 1;
  if kept is null then
    insert into {schema}.message
           (id, written_on, seq, lane, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
            correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
            headers, data, written_at, expires_at)
    select letter.message_id, (clock_timestamp() at time zone 'UTC')::date, nextval('{schema}.outbox_seq'), in_lane,
           letter.kind, letter.type, letter.schema_version, letter.topic, letter.key, letter.aggregate_type,
           letter.aggregate_id, letter.saga_id, letter.correlation_id, letter.causation_id, letter.traceparent,
           letter.source, letter.target, letter.priority, letter.max_attempts, letter.held_lane is not null,
           letter.headers, letter.data, letter.written_at, null
      from {schema}.dead_letter as letter
     where letter.id = letter_id and letter.closed_as = 'replayed'
    returning written_on into kept;
  end if;
  return kept;
end
$$;

-- What triggers look up and note down, nobody else need touch.
alter function {schema}.refuse_illegal_move() security definer set search_path = pg_catalog, pg_temp;
alter function {schema}.keep_saga_attachments() security definer set search_path = pg_catalog, pg_temp;
alter function {schema}.outbox_move_of({schema}.outbox, {schema}.outbox) set search_path = pg_catalog, pg_temp;

-- ── what may be seen ────────────────────────────────────────────────────────────────────────────────
-- Ids, names, states, times and sizes. What a person or a payload may have put there is left out, and that a text is
-- there at all is told as true or false.
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
select consumer, event_id, source_topic, event_type, consumed_at, processing_duration_ms, effect, effect_of, undone_by
  from {schema}.consumer_inbox;

create view {schema}.masked_dead_letter with (security_barrier) as
select id, origin, consumer, message_id, kind, type, schema_version, topic, aggregate_type, saga_id, correlation_id,
       causation_id, traceparent, source, target, priority, attempts, max_attempts, reason, error_type,
       octet_length(data) as data_bytes, written_at, expires_at, failed_at, closed_at, closed_as,
       held_lane is not null as holds_key
  from {schema}.dead_letter;

create view {schema}.masked_reply with (security_barrier) as
select request_id, outcome, arrived_at from {schema}.reply;

create view {schema}.masked_flow_event with (security_barrier) as
select flow, message_id, correlation_id, type, causation_id, source, happened_at, recorded_at, open
  from {schema}.flow_event;

create view {schema}.masked_saga_instance with (security_barrier) as
select id, type, definition_version, status, current_step, waits_for, waiting_since, version, retry_count,
       last_error is not null as has_error, trace_id, message_correlation_id, parent_id, parent_place, due_at,
       claimed_by, claimed_until, started_at, updated_at, ended_at
  from {schema}.saga_instance;

create view {schema}.masked_saga_mail with (security_barrier) as
select id, type, saga_id, arrived_at, expires_at from {schema}.saga_mail;

create view {schema}.masked_saga_incident with (security_barrier) as
select id, saga_id, steps, opened_at, closed_at from {schema}.saga_incident;

create view {schema}.masked_saga_audit_log with (security_barrier) as
select id, at, saga_id, version, event_type, step, old_status, new_status, user_id is not null as by_a_person, trace_id
  from {schema}.saga_audit_log;

create view {schema}.masked_audit_log with (security_barrier) as
select id, at, action, target_kind, outcome, error_code, trace_id from {schema}.audit_log;

create view {schema}.masked_audit_seal with (security_barrier) as
select number, chain, log, month, row_count, sealed_at from {schema}.audit_seal;

create view {schema}.masked_blob with (security_barrier) as
select key, store, bytes, stored_at, doomed_at from {schema}.blob;

create view {schema}.masked_subject_key with (security_barrier) as
select kek_id, created_at, erased_at from {schema}.subject_key;

create view {schema}.masked_erasure with (security_barrier) as
select id, erased_at, cardinality(key_ids) as keys, swept_at from {schema}.gdpr_erasure_log;

-- ── nobody in particular ────────────────────────────────────────────────────────────────────────────
revoke all on schema {schema} from public;
revoke all on all tables in schema {schema} from public;
revoke all on all sequences in schema {schema} from public;
revoke all on all functions in schema {schema} from public;
