-- What the person on call needs: dead letters grouped by their cause, replayed in the order of their keys, replayed with
-- other data, and live messages put among them by hand.

-- ── causes and order ────────────────────────────────────────────────────────────────────────────────
-- The cause is worked out by whoever buries. Null where a version before this one did: filled in when somebody looks.
-- The place is the seq of the message, which is its order within its key whatever the clocks said: 0 where the archive
-- here has no such message, -1 until somebody looks at a letter from before this version. Neither has a check, which would
-- read the whole table while nobody can bury.
alter table {schema}.dead_letter
  add column fingerprint text,
  add column place bigint not null default -1;

-- Whoever buries, in whatever version. A message that dies again keeps the place it had: its copy in the archive may be
-- one that a replay has written.
create function {schema}.dead_letter_find_place() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  new.place := case when new.key is null then 0 else coalesce(
    (select min(earlier.place) from {schema}.dead_letter as earlier
      where earlier.message_id = new.message_id and earlier.place >= 0),
    (select min(message.seq) from {schema}.message where message.id = new.message_id and message.seq > 0), 0) end;
  return new;
end
$$;
create trigger dead_letter_place before insert on {schema}.dead_letter
  for each row execute function {schema}.dead_letter_find_place();

-- The letters of a cause in the order of their messages, which is the order of a replay.
create index dead_letter_open_cause on {schema}.dead_letter (fingerprint, place, written_at, message_id)
  include (failed_at) where closed_at is null;
create index dead_letter_closed_cause on {schema}.dead_letter (fingerprint, closed_as) where closed_at is not null;
-- Is an earlier message of this key dead as well? By a hash, for a key may be longer than an index takes.
create index dead_letter_open_key on {schema}.dead_letter (hashtextextended(key, 0), place, written_at)
  where closed_at is null and key is not null;

-- ── other data ──────────────────────────────────────────────────────────────────────────────────────
-- The letter keeps what its message was, the archive gets the new copy; here is who changed it, why, and from what to
-- what. No payload: it goes when its letter goes.
create table {schema}.dead_letter_edit (
  letter_id    bigint      not null primary key references {schema}.dead_letter on delete cascade,
  edited_at    timestamptz not null default clock_timestamp(),
  actor        text        not null check (actor <> ''),
  reason       text        not null check (reason <> ''),
  before_hash  text        not null check (before_hash ~ '^[0-9a-f]{64}$'),
  after_hash   text        not null check (after_hash ~ '^[0-9a-f]{64}$'),
  contract     text,       -- name and version it was checked against; null when nobody gave a contract
  kept_on      date,       -- the day of the copy with the new data
  check (before_hash <> after_hash)
);

-- Finds the newest copy of the message with this content, or writes one: for today, or for the first day on which the
-- archive has no other copy. Content that is not the letter's own must be what an edit says; it never was in the outbox,
-- and its seq, 0, says so: nobody but the letter's own consumer is sent it again. Rows move to younger copies only, so
-- data that were edited back to what they once were are a copy of their own.
create function {schema}.dead_letter_keep_copy(letter_id bigint, in_lane smallint, content text, in_stream bigint default null)
returns date
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  letter {schema}.dead_letter;
  kept   date;
  wanted text;
begin
  select * into letter from {schema}.dead_letter as one
   where one.id = letter_id and one.closed_as = 'replayed';
  if letter.id is null then return null; end if;
  wanted := coalesce(content, letter.data);
  if wanted <> letter.data and not exists (
       select 1 from {schema}.dead_letter_edit as edit
        where edit.letter_id = letter.id and edit.after_hash = encode(sha256(convert_to(wanted, 'UTF8')), 'hex')) then
    raise exception 'letter % has no edit with these data', letter.id using errcode = 'check_violation';
  end if;
  select message.written_on into kept from {schema}.message
   where message.id = letter.message_id and message.data = wanted and message.headers = letter.headers
     and (wanted = letter.data or not exists (
           select 1 from {schema}.message as younger
            where younger.id = message.id and younger.written_on > message.written_on))
   order by message.written_on desc limit 1;
  if kept is null then
    select greatest((clock_timestamp() at time zone 'UTC')::date, max(message.written_on) + 1) into kept
      from {schema}.message where message.id = letter.message_id;
    insert into {schema}.message
           (id, written_on, seq, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
            saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
            headers, data, written_at, expires_at)
    values (letter.message_id, kept, case when wanted = letter.data then nextval('{schema}.outbox_seq') else 0 end,
            in_lane, in_stream, letter.kind, letter.type, letter.schema_version, letter.topic, letter.key,
            letter.aggregate_type, letter.aggregate_id, letter.saga_id, letter.correlation_id, letter.causation_id,
            letter.traceparent, letter.source, letter.target, letter.priority, letter.max_attempts,
            letter.held_lane is not null, letter.headers, wanted, letter.written_at, null);
  end if;
  update {schema}.dead_letter_edit as edit set kept_on = kept where edit.letter_id = letter.id;
  return kept;
end
$$;

create or replace function {schema}.dead_letter_keep_message(letter_id bigint, in_lane smallint) returns date
language sql security definer set search_path = pg_catalog, pg_temp as $$
  select {schema}.dead_letter_keep_copy(letter_id, in_lane, null)
$$;

-- The row that held the key of an edited letter stands for the new copy from here on, in its old place.
create function {schema}.dead_letter_move_place(letter_id bigint, to_day date) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update {schema}.outbox as held
     set written_on = to_day
    from {schema}.dead_letter as letter, {schema}.dead_letter_edit as edit
   where letter.id = dead_letter_move_place.letter_id and edit.letter_id = letter.id and letter.closed_as = 'replayed'
     and held.lane = letter.held_lane and held.seq = letter.held_seq and held.due_at = 'infinity'
     and held.written_on < to_day;
  return found;
end
$$;

-- ── what lives, put among the dead ──────────────────────────────────────────────────────────────────
-- A delivery that waits for one consumer. Whoever handles it this moment cannot settle it any more, and rolls back.
create function {schema}.dead_letter_bury_delivery(in_lane integer, in_seq bigint, in_message text, cause text, note text)
returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  delivery {schema}.queue;
  group_name text;
  buried bigint;
begin
  delete from {schema}.queue as row
   where row.lane = in_lane and row.seq = in_seq and row.message_id = in_message
  returning * into delivery;
  if delivery.lane is null then return null; end if;
  select name into group_name from {schema}.consumer_group where id = in_lane / 256;
  select id into buried from {schema}.dead_letter
   where message_id = in_message and origin = 'consumer' and consumer = group_name and closed_at is null
   order by id limit 1;
  if buried is not null then return buried; end if;
  insert into {schema}.dead_letter
         (origin, consumer, message_id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
          correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
          written_at, expires_at, reason, attempts, error_type, error_message, fingerprint)
  select 'consumer', group_name, id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
         correlation_id, causation_id, traceparent, source, target, priority, delivery.max_attempts, headers, data,
         written_at, delivery.expires_at, 'buried', delivery.attempts, 'Buried', note, cause
    from {schema}.message where id = in_message and written_on = delivery.written_on
  returning dead_letter.id into strict buried;
  return buried;
end
$$;

-- A row that waits to be sent. The lock keeps settles away; what a relay may be sending this moment is left alone, since
-- nobody could call that back. Like any other death it keeps its place where its contract says that its key waits.
create function {schema}.dead_letter_bury_waiting(in_lane integer, in_seq bigint, in_message text, cause text, note text)
returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  waiting {schema}.outbox;
  stays boolean;
  buried bigint;
begin
  perform 1 from {schema}.relay_lane where lane = in_lane for update;
  select * into waiting from {schema}.outbox as row
   where row.lane = in_lane and row.seq = in_seq and row.message_id = in_message and row.due_at < 'infinity'
     and (row.lease_until is null or row.lease_until < clock_timestamp())
     and (row.due_at > clock_timestamp() + interval '1 second' or not exists (
           select 1 from {schema}.relay_lane as lane
             join {schema}.member on member.id = lane.owner and member.lease_until > clock_timestamp()
            where lane.lane = in_lane))
     for update;
  if waiting.lane is null then return null; end if;
  select holds_on_death into strict stays from {schema}.message
   where id = in_message and written_on = waiting.written_on;
  insert into {schema}.dead_letter
         (origin, message_id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
          correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
          written_at, expires_at, reason, attempts, error_type, error_message, held_lane, held_seq, fingerprint)
  select 'outbox', id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
         correlation_id, causation_id, traceparent, source, target, priority, waiting.max_attempts, headers, data,
         written_at, waiting.expires_at, 'buried', waiting.attempts, 'Buried', note,
         case when stays then in_lane end, case when stays then in_seq end, cause
    from {schema}.message where id = in_message and written_on = waiting.written_on
  returning dead_letter.id into strict buried;
  if stays then
    update {schema}.outbox set due_at = 'infinity', lease_until = null, last_error = note
     where lane = in_lane and seq = in_seq;
  else
    delete from {schema}.outbox where lane = in_lane and seq = in_seq;
  end if;
  return buried;
end
$$;

-- ── what may be seen ────────────────────────────────────────────────────────────────────────────────
create or replace view {schema}.masked_dead_letter with (security_barrier) as
select id, origin, consumer, message_id, kind, type, schema_version, topic, aggregate_type, saga_id, correlation_id,
       causation_id, traceparent, source, target, priority, attempts, max_attempts, reason, error_type,
       octet_length(data) as data_bytes, written_at, expires_at, failed_at, closed_at, closed_as,
       held_lane is not null as holds_key, fingerprint
  from {schema}.dead_letter;

revoke all on {schema}.dead_letter_edit from public;
revoke all on function {schema}.dead_letter_find_place() from public;
revoke all on function {schema}.dead_letter_keep_copy(bigint, smallint, text, bigint) from public;
revoke all on function {schema}.dead_letter_move_place(bigint, date) from public;
revoke all on function {schema}.dead_letter_bury_delivery(integer, bigint, text, text, text) from public;
revoke all on function {schema}.dead_letter_bury_waiting(integer, bigint, text, text, text) from public;
