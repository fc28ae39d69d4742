-- Messages on the publishing side: the message itself, the rows that wait to be sent, which worker may send them, and
-- the state machine that guards them.

-- ── types ───────────────────────────────────────────────────────────────────────────────────────────
-- The columns that every publish writes get their conditions from domains instead of CHECK constraints. PostgreSQL
-- prepares the CHECKs of a table again for each statement, which was a third of the cost of a publish; it prepares
-- those of a domain once per session.
create domain {schema}.message_id as text check (value <> '' and length(value) <= 255);
create domain {schema}.message_kind as text check (value in ('event', 'command', 'stream'));
create domain {schema}.message_lane as smallint check (value between 0 and 255);
create domain {schema}.message_priority as smallint check (value between 0 and 9); -- 9 is the most urgent
create domain {schema}.payload_version as integer check (value >= 1);
create domain {schema}.attempt_count as smallint check (value >= 0);
create domain {schema}.attempt_limit as smallint check (value >= 1);
create domain {schema}.outbox_lane as integer check (value between 0 and 255);

-- ── message ─────────────────────────────────────────────────────────────────────────────────────────
-- Every message, written once and never updated, partitioned by day. This table is also the archive: republish, history
-- and the conservation check read it. Old days are dropped whole.
-- The id has no domain here, because the condition of a domain would be evaluated for its index as well; the outbox row
-- of the same insert checks it.
create table {schema}.message (
  id              text        not null,
  written_on      date        not null, -- the UTC day of written_at; the partition key
  seq             bigint      not null, -- the row's number in the outbox; 0 for a copy that never was in the outbox
  lane            {schema}.message_lane     not null, -- a hash of the key, or of the id if there is no key
  stream          bigint,               -- a hash of topic and key: messages of one stream are sent in order of seq
  kind            {schema}.message_kind     not null,
  type            text        not null,
  schema_version  {schema}.payload_version  not null, -- the version of the contract that `data` follows
  topic           text        not null,
  key             text,
  aggregate_type  text,
  aggregate_id    text,
  saga_id         text,
  correlation_id  text        not null,
  causation_id    text,                 -- the message that caused this one; null if none did
  traceparent     text        not null, -- W3C trace context
  source          text        not null, -- the publishing service
  target          text,                 -- the receiving service of a command
  priority        {schema}.message_priority not null,
  max_attempts    {schema}.attempt_limit    not null,
  holds_on_death  boolean     not null default false, -- later messages of the key wait if this one is dead-lettered
  headers         text        not null default '{}', -- JSON, kept as text so that it is sent exactly as written
  data            text        not null, -- JSON, kept as text for the same reason
  written_at      timestamptz not null,
  expires_at      timestamptz,          -- not sent after this time; dead-lettered with the reason "expired"
  primary key (id, written_on)
) partition by range (written_on);

create index message_aggregate on {schema}.message (aggregate_type, aggregate_id) where aggregate_id is not null;
create index message_saga on {schema}.message (saga_id) where saga_id is not null;
create index message_written_at on {schema}.message using brin (written_at);

-- For people who look for a message by key, correlation id or trace id. A publish writes nothing to this index: autovacuum
-- stores one bloom filter for each 32 pages, and a search reads the pages whose filter matches or that have none yet. One
-- index for all three, because each index is one more lock for a publishing transaction.
create index message_search on {schema}.message using brin (
  key text_bloom_ops (n_distinct_per_range = 1000, false_positive_rate = 0.01),
  correlation_id text_bloom_ops (n_distinct_per_range = 1000, false_positive_rate = 0.01),
  substr(traceparent, 4, 32) text_bloom_ops (n_distinct_per_range = 1000, false_positive_rate = 0.01)
) with (pages_per_range = 32, autosummarize = on);

-- Receives messages of a day that has no partition of its own. It stays empty while the maintenance runs.
create table {schema}.message_default partition of {schema}.message default;

-- ── outbox ──────────────────────────────────────────────────────────────────────────────────────────
-- One narrow row per message that is not sent yet. Settling a row as sent deletes it. Rows come and go all day, so
-- autovacuum runs often and without pauses. VACUUM never truncates the table: truncating needs an exclusive lock, and a
-- table without pages gets bad plans (see reserve_pages in 0008).
create sequence {schema}.outbox_seq as bigint cache 1;

create table {schema}.outbox (
  lane          {schema}.outbox_lane      not null,
  seq           bigint      not null, -- from outbox_seq; the order inside a stream
  stream        bigint,
  topic         text        not null,
  type          text        not null,
  message_id    {schema}.message_id       not null,
  written_on    date        not null, -- with message_id the primary key of the message
  priority      {schema}.message_priority not null default 5,
  attempts      {schema}.attempt_count    not null default 0,
  max_attempts  {schema}.attempt_limit    not null default 10,
  due_at        timestamptz not null, -- 'infinity': a dead-lettered message whose key waits for a decision
  lease_until   timestamptz,          -- until then only the publishing process may send the row (optimistic send)
  expires_at    timestamptz,
  again         boolean     not null default false, -- true: sent again, so seq is not the seq of the message
  last_error    text,
  primary key (lane, seq)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 0.05, vacuum_truncate = off);

-- The stream indexes hold the lane as a bigint. No other index does, so a condition on lane::bigint leaves the planner
-- no choice: on a table it believes to be empty it would find the primary key just as cheap and read the whole lane.
create index outbox_stream on {schema}.outbox (stream, (lane::bigint), seq) where stream is not null;
create index outbox_again on {schema}.outbox (message_id) where again;
-- "Express" rows have another priority than the default and are read first.
create index outbox_express on {schema}.outbox (lane, priority desc, seq) where priority <> 5;
create index outbox_express_stream on {schema}.outbox (stream, (lane::bigint), seq)
  where priority <> 5 and stream is not null;

-- ── scheduled ───────────────────────────────────────────────────────────────────────────────────────
-- Messages to be published later. A row holds back no other message and gets its seq when it is due, so it keeps the
-- whole message until then. Columns are those of `message`.
create table {schema}.scheduled (
  id              text        not null primary key,
  due_at          timestamptz not null,
  lane            smallint    not null check (lane between 0 and 255),
  stream          bigint,
  kind            text        not null check (kind in ('event', 'command', 'stream')),
  type            text        not null,
  schema_version  integer     not null check (schema_version >= 1),
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
  priority        smallint    not null check (priority between 0 and 9),
  max_attempts    smallint    not null check (max_attempts >= 1),
  holds_on_death  boolean     not null default false,
  headers         text        not null default '{}',
  data            text        not null,
  written_at      timestamptz not null,
  expires_at      timestamptz
) with (vacuum_truncate = off);

create index scheduled_due on {schema}.scheduled (due_at, id);
create index scheduled_aggregate on {schema}.scheduled (aggregate_type, aggregate_id) where aggregate_id is not null;
create index scheduled_saga on {schema}.scheduled (saga_id) where saga_id is not null;
-- For people who look for a message. Hashes keep the entries small, and a key may be too long for an entry. A search by
-- trace id reads the table: it is rare, and a third index would cost every delayed publish.
create index scheduled_key on {schema}.scheduled (hashtextextended(key, 0)) where key is not null;
create index scheduled_correlation on {schema}.scheduled (hashtextextended(correlation_id, 0));

-- ── published_id ────────────────────────────────────────────────────────────────────────────────────
-- Message ids that callers chose. Publishing such an id twice publishes one message, even after the first was sent.
-- Generated ids are unique and need no row.
create table {schema}.published_id (
  id          text not null primary key,
  written_on  date not null
) with (vacuum_truncate = off);

create index published_id_age on {schema}.published_id using brin (written_on);

-- Returns whether a message with this id was published or is scheduled. A message with seq 0 is only a copy that was
-- kept for a retry. Days ahead are partitions without pages; the settings of the function make every plan use the
-- primary key of each partition.
create function {schema}.has_message(wanted text) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
  set plan_cache_mode = force_generic_plan as $$
begin
  return exists (select 1 from {schema}.message where message.id = wanted and message.seq > 0)
      or exists (select 1 from {schema}.scheduled where scheduled.id = wanted);
end
$$;

-- ── receipt ─────────────────────────────────────────────────────────────────────────────────────────
-- Which relay sent which outbox rows of a lane, and when: one row per lane and batch, partitioned by day.
create table {schema}.receipt (
  lane        integer     not null,
  first_seq   bigint      not null,
  last_seq    bigint      not null check (last_seq >= first_seq),
  seqs        bigint[]    not null,
  relay       text        not null,
  sent_at     timestamptz not null,
  sent_on     date        not null, -- the UTC day of sent_at; the partition key
  again_seqs  bigint[],             -- those of seqs that were sent again: no message has these numbers
  again_ids   text[]                -- the message ids of again_seqs, in the same order
) partition by range (sent_on);

create index receipt_lane on {schema}.receipt (lane, last_seq);

-- Receives receipts of a day that has no partition of its own.
create table {schema}.receipt_default partition of {schema}.receipt default;

-- ── member and relay_lane ───────────────────────────────────────────────────────────────────────────
-- The workers that share the lanes of a scope. Scope 0 is the outbox; scope g is consumer group g. A bus.drain() is a
-- guest: it takes only lanes that nobody owns, and no worker gives up a lane for it.
-- process, location and backend identify the operating system process, its machine and its session on this server. Another
-- worker on the same machine can see that the process is dead and need not wait for the end of its lease.
create table {schema}.member (
  id           text        not null primary key,
  scope        integer     not null,
  worker       text        not null, -- the configured name of the worker
  joined_at    timestamptz not null default clock_timestamp(),
  lease_until  timestamptz not null, -- covers every lane that the member owns
  process      text,
  location     text,
  backend      integer,
  guest        boolean     not null default false
);

create index member_scope on {schema}.member (scope, lease_until);

-- Which member owns a lane. A new owner gets a higher fence and a new random token. Both must match when rows of the
-- lane are settled, so a worker whose lease ended cannot settle rows that another worker has taken over.
create table {schema}.relay_lane (
  lane       integer     not null primary key check (lane >= 0),
  scope      integer     not null check (scope = lane / 256),
  owner      text,
  fence      bigint      not null default 0 check (fence >= 0),
  token      text,
  leased_at  timestamptz,
  check ((owner is null) = (token is null))
);

create index relay_lane_scope on {schema}.relay_lane (scope, lane);

-- The 256 lanes of the outbox; a consumer group adds its own 256 lanes when it is created.
insert into {schema}.relay_lane (lane, scope) select lane, 0 from generate_series(0, 255) as lane;

-- ── the state machine of an outbox row ──────────────────────────────────────────────────────────────
-- The allowed moves between the states that the view outbox_events shows. The source is the table in code
-- (src/outbox/message-state.ts); the marked section below is generated from it.
create table {schema}.outbox_move (
  name         text not null,
  from_status  text not null,
  to_status    text not null,
  primary key (name, from_status, to_status)
);

-- ▼ written by scripts/embed-migrations.ts from src/outbox/message-state.ts
insert into {schema}.outbox_move (name, from_status, to_status) values
  ('attempt_optimistic_send', 'pending', 'optimistic'),
  ('claim_for_processing', 'pending', 'claimed'),
  ('optimistic_send_succeeded', 'optimistic', 'sent'),
  ('optimistic_send_failed', 'optimistic', 'pending'),
  ('publish_succeeded', 'claimed', 'sent'),
  ('publish_failed', 'claimed', 'failed'),
  ('retry', 'failed', 'pending'),
  ('move_to_dlq', 'failed', 'dead_letter'),
  ('manual_retry_dlq', 'dead_letter', 'pending'),
  ('lease_expired', 'claimed', 'pending'),
  ('lease_expired', 'optimistic', 'pending'),
  ('reject', 'claimed', 'dead_letter'),
  ('bury', 'pending', 'dead_letter'),
  ('bury', 'failed', 'dead_letter'),
  ('bury', 'claimed', 'dead_letter'),
  ('republish', 'sent', 'pending');

-- Returns the name of the move that an update makes, or null if it makes none. The change, the state before and the
-- state after must all fit one row of outbox_move.
create function {schema}.outbox_move_of(before {schema}.outbox, after {schema}.outbox) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select move.name
    from {schema}.outbox_move as move
   where (before.lane, before.seq, before.topic, before.message_id, before.written_on)
         is not distinct from (after.lane, after.seq, after.topic, after.message_id, after.written_on)
     and before.stream is not distinct from after.stream
     and (before.lease_until is not null or after.lease_until is null)
     and case move.name
           when 'publish_failed' then after.attempts = before.attempts + 1
           when 'optimistic_send_failed' then after.attempts = before.attempts and after.due_at <= before.due_at and after.lease_until is null
           when 'retry' then after.attempts = before.attempts and after.due_at <= before.due_at
                          and after.lease_until is not distinct from before.lease_until
           when 'manual_retry_dlq' then after.attempts = 0
           when 'bury' then after.attempts >= before.attempts
           else false
         end
     and case move.from_status
           when 'optimistic' then before.due_at < 'infinity' and before.lease_until is not null
           when 'claimed' then before.due_at < 'infinity' and (before.lease_until is null or before.lease_until <= clock_timestamp())
           when 'failed' then before.due_at < 'infinity' and (before.lease_until is null or before.lease_until <= clock_timestamp()) and before.attempts > 0
           when 'dead_letter' then before.due_at = 'infinity'
           when 'pending' then before.due_at < 'infinity' and (before.lease_until is null or before.lease_until <= clock_timestamp())
         end
     and case move.to_status
           when 'pending' then after.due_at < 'infinity' and (after.lease_until is null or after.lease_until <= clock_timestamp())
           when 'failed' then after.due_at < 'infinity' and (after.lease_until is null or after.lease_until <= clock_timestamp()) and after.attempts > 0
           when 'dead_letter' then after.due_at = 'infinity'
         end
   limit 1
$$;
-- ▲ end of the generated section

-- Refuses an update of an outbox row that is no move of the state machine. It runs with the rights of its owner, so
-- other roles need no right on outbox_move.
create function {schema}.refuse_illegal_move() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  move text := {schema}.outbox_move_of(old, new);
  carried {schema}.outbox := old;
begin
  -- The archive copies a message that still waits into a younger partition. Its row then names the new day; its state
  -- does not change.
  carried.written_on := new.written_on;
  if new is not distinct from carried and new.written_on > old.written_on then
    return new;
  end if;
  -- A row may expire earlier. Its state does not change.
  carried := old;
  carried.expires_at := new.expires_at;
  if new is not distinct from carried and new.expires_at < old.expires_at then
    return new;
  end if;
  if move is null then
    raise exception 'illegal move of outbox row %/% (message %)', old.lane, old.seq, old.message_id
      using errcode = 'check_violation',
            hint = 'Allowed moves are listed in outbox_move; use the functions of sagabox to change a message.';
  end if;
  return new;
end
$$;

create trigger outbox_legal_moves before update on {schema}.outbox
  for each row execute function {schema}.refuse_illegal_move();

-- ── what operators do with waiting messages ─────────────────────────────────────────────────────────
-- These functions run with the rights of their owner and do one thing each. A role may call them without a right on the
-- table, which would allow much more.

-- Makes a failed message due now, and changes nothing else of its row. Returns its lane, when it was due, and its
-- attempts; returns no row if the message does not wait for a retry.
create function {schema}.outbox_retry_now(wanted text) returns table (retried_lane integer, was_due timestamptz, tried integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  return query
  with found as materialized (
    select message.lane::integer as lane, message.seq from {schema}.message where message.id = wanted
    union
    select again.lane, again.seq from {schema}.outbox as again where again.again and again.message_id = wanted
  ), failed as materialized (
    select row.lane, row.seq, row.due_at, row.attempts
      from found join {schema}.outbox as row on row.lane = found.lane and row.seq = found.seq
     where row.message_id = wanted and row.attempts > 0
       and row.due_at > clock_timestamp() and row.due_at < 'infinity'
       for update of row
  ), retried as (
    update {schema}.outbox as row set due_at = clock_timestamp()
      from failed
     where row.lane = failed.lane and row.seq = failed.seq
    returning row.lane, row.seq
  )
  select failed.lane::integer, failed.due_at, failed.attempts::integer
    from failed join retried on retried.lane = failed.lane and retried.seq = failed.seq;
end
$$;

-- Waits for every open transaction that has written to the outbox, and lets no other one write until the caller's
-- transaction ends. Without it, an open transaction could hold a seq that puts a newer message in front of one that is
-- sent again. The first lock stops no publisher. It waits up to maintenance_ms for maintenance and for other republishes,
-- long enough for the server to cancel an autovacuum that holds the table (deadlock_timeout). The second lock stops
-- publishers while it waits, so writers_ms is short. The transaction id is taken before any seq is drawn, as in every
-- writer.
create function {schema}.outbox_keep_writers_out(maintenance_ms integer, writers_ms integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform set_config('lock_timeout', maintenance_ms || 'ms', true);
  lock table {schema}.outbox in share update exclusive mode;
  perform set_config('lock_timeout', writers_ms || 'ms', true);
  perform pg_current_xact_id();
  lock table {schema}.outbox in share row exclusive mode;
end
$$;

-- Sends messages of the archive again, in front of the newer messages of their keys that still wait. The order inside a
-- key is seq, and a relay may already have read past any existing number. So the messages get new numbers, and the
-- newer ones that wait get higher ones after them.
-- ids and days name the messages; sent_days names the copy that is sent, which differs if the message was edited. The
-- caller passes all messages of a key in one call, so its waiting rows are renumbered once. A row under a running
-- optimistic lease keeps its number. A row that holds its key for a dead letter is renumbered like any other, and the
-- dead letter is updated. Returns how many messages were put into the outbox.
create function {schema}.outbox_send_again(ids text[], days date[], sent_days date[]) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  sent integer;
begin
  with given as materialized (
    select message.id, message.lane::integer as lane, message.stream, message.topic, message.type, wanted.sent_on,
           message.priority, message.max_attempts, message.seq as origin
      from unnest(ids, days, sent_days) as wanted (id, written_on, sent_on)
     cross join lateral (
       select * from {schema}.message as kept
        where kept.id = wanted.id and kept.written_on = wanted.written_on offset 0
     ) as message
  ), earliest as materialized (
    select lane, stream, min(origin) as origin from given where stream is not null group by lane, stream
  ), waiting as materialized (
    select row.lane, row.seq, earliest.origin as earliest_origin,
           case when row.again
                then coalesce(
                  (select nullif(message.seq, 0) from {schema}.message
                    where message.id = row.message_id and message.written_on = row.written_on),
                  (select max(message.seq) from {schema}.message where message.id = row.message_id),
                  row.seq)
                else row.seq end as origin
      from earliest
      join {schema}.outbox as row on row.lane = earliest.lane and row.stream = earliest.stream
     where row.lease_until is null or row.lease_until <= clock_timestamp()
  ), behind as (
    delete from {schema}.outbox as row using waiting
     where row.lane = waiting.lane and row.seq = waiting.seq
       and waiting.origin > waiting.earliest_origin
    returning row.*, waiting.origin
  ), numbered as materialized (
    select sorted.*, nextval('{schema}.outbox_seq') as new_seq
      from (select lane, null::bigint as old_seq, stream, topic, type, id as message_id, sent_on as written_on, priority,
                   0::smallint as attempts, max_attempts, clock_timestamp() as due_at, null::timestamptz as expires_at,
                   null::text as last_error, origin
              from given
             union all
            select lane, seq, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at,
                   expires_at, last_error, origin
              from behind
             order by origin) as sorted
  ), placed as (
    insert into {schema}.outbox
           (again, lane, seq, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at, expires_at,
            last_error)
    select true, lane, new_seq, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at,
           expires_at, last_error
      from numbered
  ), held as (
    update {schema}.dead_letter as letter set held_seq = numbered.new_seq
      from numbered
     where numbered.due_at = 'infinity' and letter.held_lane = numbered.lane and letter.held_seq = numbered.old_seq
       and letter.message_id = numbered.message_id and letter.closed_at is null
  )
  select count(*)::integer into sent from given;
  return sent;
end
$$;

-- ── publish from SQL ────────────────────────────────────────────────────────────────────────────────
-- publish() writes a message like bus.publish, for triggers, psql and other languages. The rules are those of
-- src/outbox/outgoing.ts, src/message/headers.ts, json.ts and lane-hash.ts; tests compare both. The publish_* functions
-- below are its parts.

-- Raises an error. code is the code of the same error in docs/reference/errors.md.
create function {schema}.publish_refuse(code text, problem text, remedy text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'sagabox.publish: %', problem
    using errcode = 'invalid_parameter_value', detail = code, hint = remedy;
end
$$;

-- The hash of lane-hash.ts over UTF-8 bytes: two numbers of 32 bits, returned as one of 64 bits. It must never change.
create function {schema}.publish_hash(bytes bytea) returns bigint
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
  low constant bigint := 4294967295;
  a bigint := 2654435769;
  b bigint := 2246822507;
begin
  -- The multipliers are written as signed numbers, so that no product leaves 64 bits.
  for i in 0 .. octet_length(bytes) - 1 loop
    a := ((a # get_byte(bytes, i)) * 16777619) & low;
    b := ((((b # get_byte(bytes, i)) + (((b << 13) & low) | (b >> 19))) & low) * -1028477387) & low;
  end loop;
  a := {schema}.publish_scramble(a # b);
  b := {schema}.publish_scramble((b + a) & low);
  a := {schema}.publish_scramble(a # (b >> 7));
  return (a << 32) | b;
end
$$;

create function {schema}.publish_scramble(value bigint) returns bigint
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
  low constant bigint := 4294967295;
  mixed bigint := value # (value >> 16);
begin
  mixed := (mixed * 2146121005) & low;
  mixed := mixed # (mixed >> 15);
  mixed := (mixed * -2073254261) & low;
  return mixed # (mixed >> 16);
end
$$;

-- Refuses a key, id or name that some transport or index cannot carry: it must be 1 to 255 characters (UTF-16 units, as
-- consumers count), not blank, and without control characters. Null passes.
create function {schema}.publish_check_id(code text, parameter text, value text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  -- The pattern is much cheaper than the rest, and nearly every id matches it.
  if value is null or (value ~ '^[!-~]+$' and octet_length(value) <= 255) then
    return;
  end if;
  if value <> '' and value !~ E'[\\u0001-\\u001f\\u007f-\\u009f]'
     and value ~ E'[^ \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff]'
     and (octet_length(value) <= 255
          or length(value) + (select count(*) from regexp_split_to_table(value, '') as one where octet_length(one) = 4) <= 255) then
    return;
  end if;
  perform {schema}.publish_refuse(code,
    parameter || ' must have 1 to 255 characters, must not be blank, and must not contain control characters.',
    'Pass a shorter value, such as the id of the row that the message is about.');
end
$$;

-- Refuses data that consumers would refuse. jsonb itself cannot hold NUL, lone surrogates or a key twice.
create function {schema}.publish_check_data(data jsonb) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if data is null then
    perform {schema}.publish_refuse('PAYLOAD_NOT_JSON', 'data must not be null.',
      'Pass jsonb, for example jsonb_build_object(''orderId'', new.id). The JSON value null is ''null''::jsonb.');
  elsif octet_length(data::text) > 1048576 then
    perform {schema}.publish_refuse('PAYLOAD_TOO_LARGE', 'data is larger than 1048576 bytes.',
      'Publish a reference to the row instead, or publish with bus.publish and a claim check.');
  elsif jsonb_path_exists(data, 'strict $.** ? (@.type() == "number" && (@ > 9007199254740991 || @ < -9007199254740991))') then
    perform {schema}.publish_refuse('PAYLOAD_UNSAFE_INTEGER', 'data contains a number of 2^53 or more, which may lose precision.',
      'Send it as a string, for example new.id::text.');
  elsif jsonb_path_exists(data, 'strict $.**{64 to last} ? (@.type() == "object" || @.type() == "array")') then
    perform {schema}.publish_refuse('PAYLOAD_TOO_DEEP', 'data is nested more than 64 levels deep.',
      'Send it flatter, or the deep part as a string.');
  elsif jsonb_path_exists(data,
          'strict $.** ? (@.type() == "object" && (exists(@."__proto__") || exists(@."prototype") || exists(@."constructor")))') then
    perform {schema}.publish_refuse('PAYLOAD_PROTOTYPE_KEY',
      'data has a key __proto__, prototype or constructor, which could change the prototype of objects.', 'Rename the key.');
  end if;
end
$$;

-- Returns the headers as JSON text with lower-case names. Refuses names and values that some transport cannot carry.
create function {schema}.publish_headers(headers jsonb) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  header record;
  previous text;
  listed text[] := '{}';
begin
  if jsonb_typeof(headers) is distinct from 'object' then
    if headers is null then
      return '{}';
    end if;
    perform {schema}.publish_refuse('HEADER_INVALID', 'headers must be an object of strings.', 'Pass for example ''{"tenant": "a"}''.');
  end if;
  for header in
    select lower(each.key collate "C") as name, each.value #>> '{}' as value, jsonb_typeof(each.value) as kind
      from jsonb_each(headers) as each
     order by 1
  loop
    if header.name !~ '^[a-z0-9][a-z0-9._-]*$' or length(header.name) > 128 then
      perform {schema}.publish_refuse('HEADER_INVALID', format('header "%s" must match ^[a-z0-9][a-z0-9._-]{0,127}$.', left(header.name, 40)),
        'Use letters, digits, dots, dashes and underscores in names of headers.');
    elsif header.name = any(array['message_id', 'correlation_id', 'causation_id', 'trace_id', 'traceparent', 'message_type', 'event_type',
                                  'schema_version', 'source_service', 'saga_id', 'content-type'])
       or header.name ~ '^(sagabox[-._]|ce[-_]|cloudevents_|nats-|x-death|x-first-death)' then
      perform {schema}.publish_refuse('HEADER_INVALID', format('header "%s" is reserved and filled in automatically.', header.name),
        'Choose another name, or use the parameter of publish with that meaning.');
    elsif header.name = previous then
      perform {schema}.publish_refuse('HEADER_INVALID', format('header "%s" is given twice, in different letter case.', header.name),
        'Remove one of them.');
    elsif header.kind <> 'string' or header.value ~ E'[\\r\\n]' or octet_length(header.value) > 8192 then
      perform {schema}.publish_refuse('HEADER_INVALID',
        format('header "%s" must be a string of at most 8192 bytes without line breaks.', header.name),
        'Convert the value to text, or send it in data.');
    end if;
    previous := header.name;
    listed := listed || (to_json(header.name)::text || ':' || to_json(header.value)::text);
  end loop;
  if cardinality(listed) > 64 then
    perform {schema}.publish_refuse('HEADER_INVALID', format('there are %s headers; at most 64 are allowed.', cardinality(listed)),
      'Send the rest in data.');
  end if;
  return '{' || array_to_string(listed, ',') || '}';
end
$$;

-- Returns the topic: the given one, or a name made from kind and type, such as events.order.placed.
create function {schema}.publish_topic(topic text, kind text, type text) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  chosen text := topic;
begin
  if topic is null then
    chosen := type;
    if type !~ '^[a-z0-9.]+$' or strpos(type, '..') > 0 or right(type, 1) = '.' then
      chosen := regexp_replace(chosen, '([a-z0-9])([A-Z])', E'\\1.\\2', 'g');
      chosen := regexp_replace(chosen, '([A-Z])([A-Z][a-z])', E'\\1.\\2', 'g');
      chosen := lower(trim('.' from regexp_replace(chosen, '[._-]+', '.', 'g')) collate "C");
    end if;
    chosen := case kind when 'event' then 'events.' when 'command' then 'commands.' else 'streams.' end || chosen;
  end if;
  if chosen !~ '^[A-Za-z0-9._-]+$' or length(chosen) > 249 or chosen in ('.', '..') then
    perform {schema}.publish_refuse('TOPIC_INVALID', 'the topic must have 1 to 249 letters, digits, dots, dashes or underscores.',
      'Pass another topic, or a shorter type.');
  end if;
  return chosen;
end
$$;

-- Returns the traceparent of a new span: a child of the given one, or of the one in the setting sagabox.traceparent, or
-- else the first of a new trace. An invalid setting starts a new trace; an invalid parameter is refused.
create function {schema}.publish_traceparent(given text) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  parent constant text := coalesce(given, current_setting('sagabox.traceparent', true));
  part text[] := regexp_match(parent, '^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$');
  span constant text := right(replace(gen_random_uuid()::text, '-', ''), 16);
begin
  if length(parent) > 512 or part[1] = 'ff' or (part[1] = '00' and part[5] is not null) or part[2] ~ '^0+$' or part[3] ~ '^0+$' then
    part := null;
  end if;
  if part is not null then
    return '00-' || part[2] || '-' || span || '-' || part[4];
  elsif given is not null then
    perform {schema}.publish_refuse('HEADER_INVALID', 'traceparent must have the form 00-<trace id>-<span id>-<flags>.',
      'Pass the traceparent header of the request unchanged, or leave it out.');
  end if;
  return '00-' || replace(gen_random_uuid()::text, '-', '') || '-' || span || '-01';
end
$$;

-- Writes a message in the caller's transaction and returns its id, or null if a message with this id exists already.
-- It runs with the rights of its owner, so a caller needs the right to execute it and no right on a table. It sends no
-- NOTIFY, which would serialise the commits of the server; relays find the message when they poll.
create function {schema}.publish(
  type text,
  data jsonb,
  key text default null,             -- messages with the same key keep their order
  headers jsonb default null,
  delay interval default null,
  at timestamptz default null,
  id text default null,              -- publishing an id twice writes one message
  topic text default null,
  kind text default 'event',
  schema_version integer default 1,  -- the version of the contract that data follows
  priority integer default 5,
  ttl interval default null,
  source text default null,
  target text default null,
  correlation_id text default null,
  causation_id text default null,
  traceparent text default null,
  saga_id text default null,
  aggregate_type text default null,
  aggregate_id text default null,
  max_attempts integer default 10,
  strict_order boolean default false,
  on_dead text default 'continue'
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $publish$
declare
  to_kind constant text := coalesce(publish.kind, 'event');
  version constant integer := coalesce(publish.schema_version, 1);
  urgency constant integer := coalesce(publish.priority, 5);
  attempts constant integer := coalesce(publish.max_attempts, 10);
  is_strict constant boolean := coalesce(publish.strict_order, false);
  is_held constant boolean := coalesce(publish.on_dead, 'continue') = 'hold';
  -- The settings are for triggers, whose callers cannot pass parameters.
  service constant text := coalesce(publish.source, nullif(current_setting('sagabox.service', true), ''), session_user::text);
  cause constant text := coalesce(publish.causation_id, nullif(current_setting('sagabox.causation_id', true), ''));
  aggregate constant text := coalesce(publish.aggregate_id, case when publish.aggregate_type is not null then publish.key end);
  moment timestamptz := clock_timestamp();
  unique_id constant text := gen_random_uuid()::text;
  new_id text := publish.id;
  flow text := coalesce(publish.correlation_id, nullif(current_setting('sagabox.correlation_id', true), ''));
  to_topic text;
  header_text text;
  trace text;
  to_lane integer;
  to_stream bigint;
  due timestamptz;
  new_seq bigint;
begin
  if publish.type is null or publish.type !~ '^[A-Za-z][A-Za-z0-9_.-]*$' or length(publish.type) > 255 then
    perform {schema}.publish_refuse('CONTRACT_INVALID', 'type must match ^[A-Za-z][A-Za-z0-9_.-]{0,254}$.',
      'Pass the name of the contract, for example ''order.placed''.');
  elsif to_kind not in ('event', 'command', 'stream') then
    perform {schema}.publish_refuse('CONTRACT_INVALID', 'kind must be event, command or stream.', 'Leave it out for an event.');
  elsif exists (select from {schema}.personal_type as known where known.type = publish.type and known.fields <> '{}') then
    perform {schema}.publish_refuse('PRIVACY_KEYS_MISSING', format('"%s" has personal fields, which SQL cannot encrypt.', publish.type),
      'Publish it with bus.publish, or publish an event with the id of the row and let a handler read the rest. '
      'The table personal_type lists such types.');
  elsif version < 1 then
    perform {schema}.publish_refuse('CONTRACT_INVALID', 'schema_version must be a whole number from 1.', 'Pass the version of the contract.');
  elsif urgency not between 0 and 9 then
    perform {schema}.publish_refuse('OPTIONS_INVALID', 'priority must be a whole number from 0 to 9.', '9 is the most urgent; the default is 5.');
  elsif attempts not between 1 and 1000 then
    perform {schema}.publish_refuse('OPTIONS_INVALID', 'max_attempts must be a whole number from 1 to 1000.', 'Leave it out for 10 attempts.');
  elsif publish.on_dead not in ('continue', 'hold') then
    perform {schema}.publish_refuse('OPTIONS_INVALID', 'on_dead must be continue or hold.', 'Leave it out for continue.');
  elsif publish.key is null and (is_strict or is_held) then
    perform {schema}.publish_refuse('OPTIONS_INVALID', 'strict_order and on_dead => ''hold'' need a key.', 'Pass the key of the message.');
  elsif publish.delay is not null and publish.at is not null then
    perform {schema}.publish_refuse('OPTIONS_INVALID', 'give either delay or at, not both.', 'Remove one of them.');
  elsif publish.delay < interval '0' or publish.delay > interval '3650 days' then
    perform {schema}.publish_refuse('OPTIONS_INVALID', 'delay must be from 0 to 3650 days.', 'Pass for example interval ''15 minutes''.');
  elsif not isfinite(publish.at) then
    perform {schema}.publish_refuse('OPTIONS_INVALID', 'at must not be infinite.', 'Pass the time when the message is due.');
  elsif publish.ttl < interval '1 millisecond' or publish.ttl > interval '3650 days' then
    perform {schema}.publish_refuse('OPTIONS_INVALID', 'ttl must be from 1 millisecond to 3650 days.', 'Pass for example interval ''5 minutes''.');
  end if;
  perform {schema}.publish_check_id('MESSAGE_ID_INVALID', 'id', publish.id);
  perform {schema}.publish_check_id('KEY_INVALID', 'key', publish.key);
  perform {schema}.publish_check_id('OPTIONS_INVALID', 'source', service);
  perform {schema}.publish_check_id('MESSAGE_ID_INVALID', 'target', publish.target);
  perform {schema}.publish_check_id('MESSAGE_ID_INVALID', 'saga_id', publish.saga_id);
  perform {schema}.publish_check_id('MESSAGE_ID_INVALID', 'aggregate_type', publish.aggregate_type);
  perform {schema}.publish_check_id('MESSAGE_ID_INVALID', 'aggregate_id', publish.aggregate_id);
  perform {schema}.publish_check_id('HEADER_INVALID', 'correlation_id', flow);
  perform {schema}.publish_check_id('HEADER_INVALID', 'causation_id', cause);
  perform {schema}.publish_check_data(publish.data);
  header_text := {schema}.publish_headers(publish.headers);
  to_topic := {schema}.publish_topic(publish.topic, to_kind, publish.type);
  trace := {schema}.publish_traceparent(publish.traceparent);
  if new_id is null then
    -- A UUID of version 7: the time in milliseconds, and 74 random bits of a UUID of version 4.
    new_id := lpad(to_hex(floor(extract(epoch from moment) * 1000)::bigint), 12, '0');
    new_id := left(new_id, 8) || '-' || right(new_id, 4) || '-7' || substr(unique_id, 16);
  end if;
  flow := coalesce(flow, new_id);
  to_lane := ({schema}.publish_hash(convert_to(coalesce(publish.key, new_id), 'UTF8')) >> 32) & 255;
  to_stream := {schema}.publish_hash(convert_to(to_topic, 'UTF8') || decode('ff', 'hex') || convert_to(publish.key, 'UTF8'));

  if is_strict then
    perform pg_advisory_xact_lock(hashtextextended('sagabox.stream.' || to_stream, 0));
  end if;
  -- The transaction id is taken before a seq is drawn, as in every writer: the readers' horizon depends on that.
  perform pg_current_xact_id();
  moment := clock_timestamp();
  -- A generated id is stored with its message only, so an id of that form is looked up there. Of two concurrent writers
  -- the second waits at published_id.
  if publish.id is not null then
    if publish.id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' and {schema}.has_message(publish.id) then
      return null;
    end if;
    insert into {schema}.published_id (id, written_on) values (new_id, (moment at time zone 'utc')::date) on conflict do nothing;
    if not found then
      return null;
    end if;
  end if;
  if publish.at is not null or publish.delay > interval '0' then
    due := coalesce(publish.at, moment + publish.delay);
    insert into {schema}.scheduled
           (id, due_at, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id,
            causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data, written_at, expires_at)
    values (new_id, due, to_lane, to_stream, to_kind, publish.type, version, to_topic, publish.key, publish.aggregate_type, aggregate,
            publish.saga_id, flow, cause, trace, service, publish.target, urgency, attempts, is_held, header_text, publish.data::text,
            moment, due + publish.ttl);
    return new_id;
  end if;
  new_seq := nextval('{schema}.outbox_seq');
  -- Read again: the insert into published_id may have waited for another transaction.
  moment := clock_timestamp();
  insert into {schema}.message
         (id, written_on, seq, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
          correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data, written_at,
          expires_at)
  values (new_id, (moment at time zone 'utc')::date, new_seq, to_lane, to_stream, to_kind, publish.type, version, to_topic, publish.key,
          publish.aggregate_type, aggregate, publish.saga_id, flow, cause, trace, service, publish.target, urgency, attempts, is_held,
          header_text, publish.data::text, moment, moment + publish.ttl);
  insert into {schema}.outbox
         (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at)
  values (to_lane, new_seq, to_stream, to_topic, publish.type, new_id, (moment at time zone 'utc')::date, urgency, attempts, moment,
          moment + publish.ttl);
  return new_id;
end
$publish$;

-- Tells relays to look for messages now instead of at their next poll. Call it after COMMIT, as a statement of its own:
-- it refuses to run in a transaction that has written, because a NOTIFY there would serialise the commits of the server.
create function {schema}.wake_relays() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if pg_current_xact_id_if_assigned() is not null then
    raise exception 'sagabox.wake_relays: this transaction has written, and its NOTIFY would make other commits wait'
      using errcode = 'active_sql_transaction', hint = 'Call it after COMMIT, as a statement of its own.';
  end if;
  perform pg_notify(left('sagabox_' || (select nspname from pg_namespace where oid = '{schema}'::regnamespace), 63), '*');
end
$$;
