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
-- The workers that share the lanes of a scope. Scope 0 is the outbox; scope g is consumer group g.
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
  backend      integer
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
