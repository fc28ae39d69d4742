-- Dead letters: messages that could not be sent or handled, with everything an operator needs to look at them and to
-- replay them under their own id.

-- ── dead_letter ─────────────────────────────────────────────────────────────────────────────────────
-- A full copy of the message, since the day of the message may be dropped from the archive earlier. Columns that are
-- not explained here are those of `message`.
create table {schema}.dead_letter (
  id              bigint      generated always as identity primary key,
  origin          text        not null check (origin in ('outbox', 'consumer')), -- failed to be sent, or to be handled
  consumer        text,                 -- the consumer that failed to handle it; null for the outbox
  message_id      text        not null,
  kind            text        not null,
  type            text        not null,
  schema_version  integer     not null,
  topic           text        not null,
  key             text,
  aggregate_type  text,
  aggregate_id    text,
  saga_id         text,
  correlation_id  text        not null,
  causation_id    text,
  traceparent     text        not null,
  source          text        not null,
  target          text,
  priority        smallint    not null,
  max_attempts    smallint    not null,
  headers         text        not null,
  data            text        not null,
  written_at      timestamptz not null,
  expires_at      timestamptz,
  reason          text        not null check (reason in ('exhausted', 'rejected', 'expired', 'buried', 'poison')),
  attempts        integer     not null check (attempts >= 0),
  error_type      text        not null,
  error_message   text        not null,
  stack_trace     text,
  fingerprint     text,                 -- a hash of the cause; dead letters of one cause are shown as one group
  key_order       bigint      not null default -1, -- the seq of the message, which is its order inside its key; set by
                                        -- a trigger; 0 if there is no key or no such message in the archive
  failed_at       timestamptz not null default clock_timestamp(),
  closed_at       timestamptz,
  closed_as       text        check (closed_as in ('replayed', 'discarded')),
  held_lane       integer,              -- with held_seq the outbox row that holds back the later messages of its key
  held_seq        bigint,
  check ((origin = 'consumer') = (consumer is not null)),
  check ((closed_at is null) = (closed_as is null)),
  check (reason <> 'exhausted' or attempts >= max_attempts)
) with (vacuum_truncate = off);

create index dead_letter_open on {schema}.dead_letter (failed_at) where closed_at is null;
create index dead_letter_failed on {schema}.dead_letter (failed_at);
create index dead_letter_message on {schema}.dead_letter (message_id);
-- Dead letters of one cause in the order of their messages, which is the order of a replay.
create index dead_letter_open_cause on {schema}.dead_letter (fingerprint, key_order, written_at, message_id)
  include (failed_at) where closed_at is null;
create index dead_letter_closed_cause on {schema}.dead_letter (fingerprint, closed_as) where closed_at is not null;
-- Finds earlier dead letters of the same key. The key is hashed because it may be too long for an index entry.
create index dead_letter_open_key on {schema}.dead_letter (hashtextextended(key, 0), key_order, written_at)
  where closed_at is null and key is not null;
-- For people who look for dead letters, also closed ones.
create index dead_letter_key on {schema}.dead_letter (hashtextextended(key, 0)) where key is not null;
create index dead_letter_correlation on {schema}.dead_letter (hashtextextended(correlation_id, 0));
create index dead_letter_trace on {schema}.dead_letter (hashtextextended(substr(traceparent, 4, 32), 0));
create index dead_letter_saga on {schema}.dead_letter (saga_id) where saga_id is not null;

-- Fills in `key_order`. A message that is dead-lettered again keeps its first value: the copy that the archive has by then
-- may have been written by a replay, with a higher seq.
create function {schema}.dead_letter_find_key_order() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  new.key_order := case when new.key is null then 0 else coalesce(
    (select min(earlier.key_order) from {schema}.dead_letter as earlier
      where earlier.message_id = new.message_id and earlier.key_order >= 0),
    (select min(message.seq) from {schema}.message where message.id = new.message_id and message.seq > 0), 0) end;
  return new;
end
$$;
create trigger dead_letter_key_order before insert on {schema}.dead_letter
  for each row execute function {schema}.dead_letter_find_key_order();

-- ── dead_letter_edit ────────────────────────────────────────────────────────────────────────────────
-- A dead letter that was replayed with other data: who changed it, why, and the SHA-256 of the data before and after.
-- The dead letter keeps the old data and the archive has the new copy, so there is no payload here. The row is deleted
-- with its dead letter.
create table {schema}.dead_letter_edit (
  dead_letter_id    bigint      not null primary key references {schema}.dead_letter on delete cascade,
  edited_at    timestamptz not null default clock_timestamp(),
  actor        text        not null check (actor <> ''),
  reason       text        not null check (reason <> ''),
  before_hash  text        not null check (before_hash ~ '^[0-9a-f]{64}$'),
  after_hash   text        not null check (after_hash ~ '^[0-9a-f]{64}$'),
  contract     text,       -- name and version of the contract the data was checked against; null if it was not checked
  kept_on      date,       -- the day of the message copy with the new data
  check (before_hash <> after_hash)
);

-- ── replay and discard ──────────────────────────────────────────────────────────────────────────────
-- Each of these functions does one thing, for one closed dead letter, with the rights of its owner. A role may call them
-- without a right on the tables. All names are qualified, so the search_path of the caller has no influence.

-- Makes the outbox row that held back its key due again, in its old position. Returns whether there was such a row.
create function {schema}.dead_letter_rearm(dead_letter_id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update {schema}.outbox as held
     set attempts = 0, due_at = clock_timestamp(),
         expires_at = case when held.expires_at > clock_timestamp() then held.expires_at end
    from {schema}.dead_letter as letter
   where letter.id = dead_letter_id and letter.closed_as = 'replayed'
     and held.lane = letter.held_lane and held.seq = letter.held_seq and held.due_at = 'infinity';
  return found;
end
$$;

-- Deletes the outbox row of a discarded dead letter, so that later messages of its key are sent. Returns whether there
-- was such a row.
create function {schema}.dead_letter_free_key(dead_letter_id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from {schema}.outbox as held
   using {schema}.dead_letter as letter
   where letter.id = dead_letter_id and letter.closed_as = 'discarded'
     and held.lane = letter.held_lane and held.seq = letter.held_seq and held.due_at = 'infinity';
  return found;
end
$$;

-- Finds the newest copy of the message with this content, or writes one: for today, or for the first later day on which
-- the archive has no copy of it. Content that differs from the dead letter's must match its edit. Such a copy gets seq 0,
-- because it never was in the outbox: only the dead letter's own consumer receives it again. Rows move to younger
-- copies only, so data that is edited back to an earlier text gets a copy of its own. Returns the day of the copy.
create function {schema}.dead_letter_keep_copy(dead_letter_id bigint, in_lane smallint, content text, in_stream bigint default null)
returns date
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  letter {schema}.dead_letter;
  kept   date;
  wanted text;
begin
  select * into letter from {schema}.dead_letter as one
   where one.id = dead_letter_id and one.closed_as = 'replayed';
  if letter.id is null then return null; end if;
  wanted := coalesce(content, letter.data);
  if wanted <> letter.data and not exists (
       select 1 from {schema}.dead_letter_edit as edit
        where edit.dead_letter_id = letter.id and edit.after_hash = encode(sha256(convert_to(wanted, 'UTF8')), 'hex')) then
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
  update {schema}.dead_letter_edit as edit set kept_on = kept where edit.dead_letter_id = letter.id;
  return kept;
end
$$;

-- Points the outbox row that held the key of an edited dead letter to the copy with the new data. The row keeps its
-- position. Returns whether there was such a row.
create function {schema}.dead_letter_move_row(dead_letter_id bigint, to_day date) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update {schema}.outbox as held
     set written_on = to_day
    from {schema}.dead_letter as letter, {schema}.dead_letter_edit as edit
   where letter.id = dead_letter_move_row.dead_letter_id and edit.dead_letter_id = letter.id and letter.closed_as = 'replayed'
     and held.lane = letter.held_lane and held.seq = letter.held_seq and held.due_at = 'infinity'
     and held.written_on < to_day;
  return found;
end
$$;

-- ── bury ────────────────────────────────────────────────────────────────────────────────────────────
-- Dead-letters a delivery that waits for one consumer, by decision of an operator. If a worker is handling it at this
-- moment, that worker can no longer settle it and rolls back. Returns the id of the dead letter, or null if the delivery
-- is gone.
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

-- Dead-letters a message that waits to be sent, by decision of an operator. The lock on the lane keeps settles away. A
-- row that a relay may be sending at this moment is left alone, because the send cannot be undone. If its contract says
-- so, the row stays and holds back its key. Returns the id of the dead letter, or null if nothing was done.
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
