-- Messages on the consuming side: the queue of the PostgreSQL transport, what each consumer has processed, which
-- messages crash workers, replies to requests, and events of declared flows.

-- ── consumer groups ─────────────────────────────────────────────────────────────────────────────────
-- A consumer of the PostgreSQL transport. Group g owns the lanes g*256 to g*256+255 of `queue` and `relay_lane`.
create table {schema}.consumer_group (
  id          integer     generated always as identity primary key,
  name        text        not null unique check (name <> '' and length(name) <= 255),
  created_at  timestamptz not null default clock_timestamp()
);

-- Which topics a group receives.
create table {schema}.subscription (
  topic       text        not null,
  group_id    integer     not null references {schema}.consumer_group,
  created_at  timestamptz not null default clock_timestamp(),
  primary key (topic, group_id)
);

-- When the last subscription of a topic was retired. The next group that takes over unclaimed commands of the topic
-- starts here: commands published earlier had a consumer.
create table {schema}.retired_subscription (
  topic       text        not null primary key,
  retired_at  timestamptz not null default clock_timestamp()
);

-- Keeps deliveries to new subscribers out while a group that reads from the beginning copies the archive. A role could
-- take this lock itself only with the right to delete the subscriptions of other groups.
create function {schema}.lock_subscriptions() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  lock table {schema}.subscription in access exclusive mode;
end
$$;

-- ── consumer_lag ────────────────────────────────────────────────────────────────────────────────────
-- How far each consumer is behind, as one of its workers last measured it. For `sagabox status`, which cannot ask a
-- broker, and for the metrics of the other workers. A worker claims the row before it measures, so that one does at a
-- time.
create table {schema}.consumer_lag (
  consumer     text        not null primary key,
  transport    text        not null,
  claimed_at   timestamptz not null,
  measured_at  timestamptz,        -- null: not measured yet
  lags         text        not null default '[]' -- JSON: one entry per topic; a value of null is unknown
) with (vacuum_truncate = off);

-- ── queue ───────────────────────────────────────────────────────────────────────────────────────────
-- Deliveries of the PostgreSQL transport: one narrow row per message and consumer group, and failed messages of a key
-- that wait beside a broker. It has the columns of `outbox`, so one reader serves both; see there for their meaning and
-- for the storage parameters and indexes.
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
        autovacuum_vacuum_insert_scale_factor = 0.05, vacuum_truncate = off);

create index queue_stream on {schema}.queue (stream, (lane::bigint), seq) where stream is not null;
create index queue_express on {schema}.queue (lane, priority desc, seq) where priority <> 5;
create index queue_express_stream on {schema}.queue (stream, (lane::bigint), seq)
  where priority <> 5 and stream is not null;

-- ── consumer_inbox ──────────────────────────────────────────────────────────────────────────────────
-- One row per consumer and message it has processed, written in the transaction of the handler. A second delivery finds
-- the row and does not run the handler.
-- The last three columns let a saga repeat or undo a command:
--   effect     false: nothing was done for the command; it was rejected, or undone before it arrived
--   effect_of  an earlier command whose effect counts for this one too
--   undone_by  the command that undid the effect of this one
create table {schema}.consumer_inbox (
  consumer_name           text        not null,
  event_id                text        not null check (event_id <> '' and length(event_id) <= 255),
  source_topic            text        not null,
  event_type              text        not null,
  consumed_at             timestamptz not null default clock_timestamp(),
  processing_duration_ms  integer     check (processing_duration_ms >= 0),
  result                  text, -- JSON returned by the handler; given to a duplicate
  payload                 text, -- only if the consumer is configured to keep it
  effect                  boolean     not null default true,
  effect_of               text,
  undone_by               text,
  primary key (consumer_name, event_id),
  constraint consumer_inbox_effect_of check (effect or effect_of is null),
  constraint consumer_inbox_undone_by check (effect and effect_of is null or undone_by is null)
) with (vacuum_truncate = off);

create index consumer_inbox_age on {schema}.consumer_inbox using brin (consumed_at);

-- ── messages that crash workers ─────────────────────────────────────────────────────────────────────
-- The messages a worker is about to handle. If the worker is gone and its row is still here, one of them may have
-- crashed it.
create table {schema}.running (
  member      text        not null,
  consumer    text        not null,
  event_ids   text[]      not null,
  alone       boolean     not null default false, -- true: a single suspect message, so a crash is its fault
  started_at  timestamptz not null default clock_timestamp(),
  primary key (member, consumer)
);

-- Messages that were in flight when a worker crashed. Each is handled alone from then on.
create table {schema}.suspect (
  consumer    text        not null,
  event_id    text        not null,
  crashes     smallint    not null default 0 check (crashes >= 0), -- crashes while it was handled alone
  noticed_at  timestamptz not null default clock_timestamp(),
  primary key (consumer, event_id)
);

-- ── reply ───────────────────────────────────────────────────────────────────────────────────────────
-- Replies to requests, kept until the waiting process, which may be any, has read them.
create table {schema}.reply (
  request_id  text        primary key check (request_id <> '' and length(request_id) <= 255),
  outcome     text        not null check (outcome in ('done', 'failed')),
  body        text        not null,
  arrived_at  timestamptz not null default clock_timestamp()
) with (vacuum_truncate = off);

create index reply_arrived_at on {schema}.reply (arrived_at);

-- ── flow_event ──────────────────────────────────────────────────────────────────────────────────────
-- Events of declared flows (choreography): which event was seen under which correlation id, from which service and
-- caused by which message.
create table {schema}.flow_event (
  flow            text        not null,
  message_id      text        not null,
  correlation_id  text        not null,
  type            text        not null,
  causation_id    text,
  source          text        not null,
  key             text,
  happened_at     timestamptz not null, -- by the clock of the publisher's database
  recorded_at     timestamptz not null default clock_timestamp(),
  open            boolean     not null default true, -- false once the flow of its correlation id is complete
  primary key (flow, message_id)
) with (vacuum_truncate = off);

create index flow_event_correlation on {schema}.flow_event (correlation_id, flow);
create index flow_event_open on {schema}.flow_event (flow, recorded_at) where open;
create index flow_event_age on {schema}.flow_event (recorded_at);

-- ── retiring a consumer ─────────────────────────────────────────────────────────────────────────────
-- Removes the subscriptions and waiting deliveries of a consumer group that is gone for good, and nothing of other
-- groups. Returns how many of each; does nothing and returns no row while a member of the group is alive. Processed
-- messages and dead letters stay. A dead letter whose replay was still waiting is marked as discarded. It runs with the
-- rights of its owner, so the caller needs no right to delete deliveries.
create function {schema}.retire_consumer(in_group integer) returns table (subscriptions integer, deliveries integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select 1 from {schema}.member where scope = in_group and lease_until > clock_timestamp()) then
    return;
  end if;
  return query
  with unsubscribed as (
    delete from {schema}.subscription where group_id = in_group returning topic
  ), noted as (
    insert into {schema}.retired_subscription (topic)
    select topic from unsubscribed
    on conflict (topic) do update set retired_at = excluded.retired_at
  ), removed as (
    delete from {schema}.queue as row
     where row.lane between in_group * 256 and in_group * 256 + 255
    returning row.message_id
  ), unmeasured as (
    delete from {schema}.consumer_lag
     where consumer = (select name from {schema}.consumer_group where id = in_group)
  ), given_up as (
    update {schema}.dead_letter as letter set closed_as = 'discarded'
      from {schema}.consumer_group as own
     where own.id = in_group and letter.consumer = own.name and letter.closed_as = 'replayed'
       and letter.message_id in (select message_id from removed)
       and not exists (select 1 from {schema}.consumer_inbox as inbox
                        where inbox.consumer_name = letter.consumer and inbox.event_id = letter.message_id)
  )
  select (select count(*)::integer from unsubscribed), (select count(*)::integer from removed);
end
$$;
