-- The path of one message: the immutable message, the narrow rows that move it, who owns which lane,
-- what consumers have seen, and what died on the way.

-- ── messages ────────────────────────────────────────────────────────────────────────────────────────
-- Written once, never updated, partitioned by day: it is the archive as well.
create table {schema}.message (
  id              text        not null check (id <> '' and length(id) <= 255),
  written_on      date        not null,
  seq             bigint      not null,
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
  expires_at      timestamptz,
  primary key (id, written_on)
) partition by range (written_on);

create index message_aggregate on {schema}.message (aggregate_type, aggregate_id) where aggregate_id is not null;
create index message_saga on {schema}.message (saga_id) where saga_id is not null;
create index message_written_at on {schema}.message using brin (written_at);

-- ── what is still to be sent ────────────────────────────────────────────────────────────────────────
-- One narrow row per unsent message; settling deletes it. Order inside a stream (topic and key) is seq.
create sequence {schema}.outbox_seq as bigint cache 1;

create table {schema}.outbox (
  lane          integer     not null check (lane between 0 and 255),
  seq           bigint      not null,
  stream        bigint,
  topic         text        not null,
  type          text        not null,
  message_id    text        not null,
  written_on    date        not null,
  priority      smallint    not null default 5 check (priority between 0 and 9),
  attempts      smallint    not null default 0 check (attempts >= 0),
  max_attempts  smallint    not null default 10 check (max_attempts >= 1),
  due_at        timestamptz not null,
  lease_until   timestamptz,
  expires_at    timestamptz,
  again         boolean     not null default false,
  last_error    text,
  primary key (lane, seq)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 0.05);

create index outbox_stream on {schema}.outbox (lane, stream, seq) where stream is not null;
create index outbox_again on {schema}.outbox (message_id) where again;
create index outbox_express on {schema}.outbox (lane, priority desc, seq) where priority <> 5;
create index outbox_express_stream on {schema}.outbox (lane, stream, seq) where priority <> 5 and stream is not null;

-- ── what is sent later ──────────────────────────────────────────────────────────────────────────────
-- Holds nothing back and draws its seq when it is due, so it keeps its payload until then.
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
);

create index scheduled_due on {schema}.scheduled (due_at, id);
create index scheduled_aggregate on {schema}.scheduled (aggregate_type, aggregate_id) where aggregate_id is not null;
create index scheduled_saga on {schema}.scheduled (saga_id) where saga_id is not null;

-- ── ids that callers chose ──────────────────────────────────────────────────────────────────────────
-- The same id twice is one message, also after the first was settled. Generated ids need no entry.
create table {schema}.published_id (
  id          text not null primary key,
  written_on  date not null
);
create index published_id_age on {schema}.published_id using brin (written_on);

-- ── receipts ────────────────────────────────────────────────────────────────────────────────────────
-- Who sent which rows of a lane, and when: one row per lane and batch.
create table {schema}.receipt (
  lane       integer     not null,
  first_seq  bigint      not null,
  last_seq   bigint      not null check (last_seq >= first_seq),
  seqs       bigint[]    not null,
  relay      text        not null,
  sent_at    timestamptz not null,
  sent_on    date        not null
) partition by range (sent_on);
create index receipt_lane on {schema}.receipt (lane, last_seq);

-- ── deliveries of the Postgres transport ────────────────────────────────────────────────────────────
-- The same narrow row once per consumer group: group g owns the lanes g*256 … g*256+255.
create table {schema}.consumer_group (
  id          integer     generated always as identity primary key,
  name        text        not null unique check (name <> '' and length(name) <= 255),
  created_at  timestamptz not null default clock_timestamp()
);

create table {schema}.subscription (
  topic       text        not null,
  group_id    integer     not null references {schema}.consumer_group,
  created_at  timestamptz not null default clock_timestamp(),
  primary key (topic, group_id)
);

create sequence {schema}.queue_seq as bigint cache 1;

create table {schema}.queue (
  lane          integer     not null check (lane >= 256),
  seq           bigint      not null default nextval('{schema}.queue_seq'),
  stream        bigint,
  topic         text        not null,
  type          text        not null,
  message_id    text        not null,
  written_on    date        not null,
  priority      smallint    not null default 5 check (priority between 0 and 9),
  attempts      smallint    not null default 0 check (attempts >= 0),
  max_attempts  smallint    not null default 10 check (max_attempts >= 1),
  due_at        timestamptz not null,
  lease_until   timestamptz,
  expires_at    timestamptz,
  again         boolean     not null default false,
  last_error    text,
  primary key (lane, seq)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 0.05);

create index queue_stream on {schema}.queue (lane, stream, seq) where stream is not null;
create index queue_express on {schema}.queue (lane, priority desc, seq) where priority <> 5;
create index queue_express_stream on {schema}.queue (lane, stream, seq) where priority <> 5 and stream is not null;

-- ── who works on what ───────────────────────────────────────────────────────────────────────────────
-- A member's lease covers every lane it owns; a lane changes hands only with a new fence and a new token.
create table {schema}.member (
  id           text        not null primary key,
  scope        integer     not null,
  worker       text        not null,
  joined_at    timestamptz not null default clock_timestamp(),
  lease_until  timestamptz not null
);
create index member_scope on {schema}.member (scope, lease_until);

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
insert into {schema}.relay_lane (lane, scope) select lane, 0 from generate_series(0, 255) as lane;

-- ── what consumers have seen ────────────────────────────────────────────────────────────────────────
create table {schema}.consumer_inbox (
  consumer                text        not null,
  event_id                text        not null check (event_id <> '' and length(event_id) <= 255),
  source_topic            text        not null,
  event_type              text        not null,
  consumed_at             timestamptz not null default clock_timestamp(),
  processing_duration_ms  integer     check (processing_duration_ms >= 0),
  result                  text,
  payload                 text,
  primary key (consumer, event_id)
);
create index consumer_inbox_age on {schema}.consumer_inbox using brin (consumed_at);

-- What a worker is about to run; what is left here by a worker that is gone may have killed it.
create table {schema}.running (
  member      text        not null,
  consumer    text        not null,
  event_ids   text[]      not null,
  alone       boolean     not null default false,
  started_at  timestamptz not null default clock_timestamp(),
  primary key (member, consumer)
);

create table {schema}.suspect (
  consumer    text        not null,
  event_id    text        not null,
  crashes     smallint    not null default 0 check (crashes >= 0),
  noticed_at  timestamptz not null default clock_timestamp(),
  primary key (consumer, event_id)
);

-- ── dead letters ────────────────────────────────────────────────────────────────────────────────────
-- Own copy of everything needed to look at it, and to send it again under its own id.
create table {schema}.dead_letter (
  id              bigint      generated always as identity primary key,
  origin          text        not null check (origin in ('outbox', 'consumer')),
  consumer        text,
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
  failed_at       timestamptz not null default clock_timestamp(),
  closed_at       timestamptz,
  closed_as       text        check (closed_as in ('replayed', 'discarded')),
  held_lane       integer,
  held_seq        bigint,
  check ((origin = 'consumer') = (consumer is not null)),
  check ((closed_at is null) = (closed_as is null)),
  check (reason <> 'exhausted' or attempts >= max_attempts)
);
create index dead_letter_open on {schema}.dead_letter (failed_at) where closed_at is null;
create index dead_letter_message on {schema}.dead_letter (message_id);

-- ── the state machine, refused here too ─────────────────────────────────────────────────────────────
-- Filled from the table in code (outbox/message-state.ts); a test compares the two.
create table {schema}.outbox_move (
  name         text not null,
  from_status  text not null,
  to_status    text not null,
  primary key (name, from_status, to_status)
);
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
  ('bury', 'claimed', 'dead_letter');

-- Names the move an update makes, or null when no move explains it.
create function {schema}.outbox_move_of(before {schema}.outbox, after {schema}.outbox) returns text
language sql stable set search_path = pg_catalog as $$
  select case
    when (before.lane, before.seq, before.topic, before.message_id, before.written_on)
         is distinct from (after.lane, after.seq, after.topic, after.message_id, after.written_on)
      or before.stream is distinct from after.stream then null
    when before.lease_until is null and after.lease_until is not null then null
    when after.due_at = 'infinity' and after.attempts >= before.attempts then 'bury'
    when before.due_at = 'infinity' and after.attempts = 0 then 'manual_retry_dlq'
    when after.attempts = before.attempts + 1 and (before.lease_until is null or before.lease_until < clock_timestamp())
      then 'publish_failed'
    when after.attempts = before.attempts and before.lease_until is not null and after.lease_until is null
      then 'optimistic_send_failed'
    when after.attempts = before.attempts and after.due_at <= before.due_at and after.lease_until is not distinct from before.lease_until
      then 'retry'
  end
$$;

create function {schema}.refuse_illegal_move() returns trigger
language plpgsql set search_path = pg_catalog as $$
declare
  move text := {schema}.outbox_move_of(old, new);
  carried {schema}.outbox := old;
begin
  -- The archive carries what still waits into a younger partition; nothing happens to the message.
  carried.written_on := new.written_on;
  if new is not distinct from carried and new.written_on > old.written_on then
    return new;
  end if;
  if move is null or not exists (select 1 from {schema}.outbox_move where name = move) then
    raise exception 'illegal move of outbox row %/% (message %)', old.lane, old.seq, old.message_id
      using errcode = 'check_violation',
            hint = 'Allowed moves are listed in outbox_move; use the functions of sagabox to change a message.';
  end if;
  return new;
end
$$;

create trigger outbox_legal_moves before update on {schema}.outbox
  for each row execute function {schema}.refuse_illegal_move();
revoke all on function {schema}.outbox_move_of({schema}.outbox, {schema}.outbox) from public;
revoke all on function {schema}.refuse_illegal_move() from public;

-- ── partitions ──────────────────────────────────────────────────────────────────────────────────────
-- The default ones catch what arrives on a day nobody prepared; they stay empty while maintenance runs.
create table {schema}.message_default partition of {schema}.message default;
create table {schema}.receipt_default partition of {schema}.receipt default;

-- ── what people see ─────────────────────────────────────────────────────────────────────────────────
create view {schema}.outbox_events as
select m.id as event_id, m.saga_id, m.aggregate_type, m.aggregate_id, m.type as event_type,
       m.data::json as payload, m.headers::json as headers,
       case
         when d.id is not null then 'dead_letter'
         when o.seq is null then 'sent'
         when o.lease_until > clock_timestamp() then 'optimistic'
         when o.attempts > 0 and o.due_at > clock_timestamp() then 'failed'
         when l.owner is not null and o.due_at <= clock_timestamp() then 'claimed'
         when o.attempts > 0 then 'failed'
         else 'pending'
       end as status,
       m.topic as routing_key, m.key as partition_key, m.topic,
       coalesce(o.attempts, d.attempts, 0) as attempts, m.max_attempts, m.priority,
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
    select dead.id, dead.attempts, dead.error_message
      from {schema}.dead_letter dead
     where dead.message_id = m.id and dead.origin = 'outbox' and dead.closed_at is null
     limit 1
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
select s.id, s.saga_id, s.aggregate_type, s.aggregate_id, s.type, s.data::json, s.headers::json, 'pending',
       s.topic, s.key, s.topic, 0, s.max_attempts, s.priority, s.due_at, s.expires_at, s.written_at,
       null, null, null, s.correlation_id, s.causation_id, s.traceparent
  from {schema}.scheduled s;
