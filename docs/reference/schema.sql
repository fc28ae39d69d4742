-- The schema of a migrated database: tables with columns, constraints, indexes and triggers, views and functions.
-- Written by scripts/build-sql.ts from a database that was migrated, with the comments of src/storage/migrations.
-- Do not edit. To create the schema, run `sagabox migrate up`; to apply it with your own tool, `sagabox migrate sql`.
--
-- Not shown: the partitions, which `sagabox run` creates for days and months; and rights. PUBLIC has none, and
-- `sagabox roles sql` prints those of each role.

-- ══ the ledger of migrations ═════════════════════════════════════════════════════════════════════════════════════════

create table schema_migration (
  version     integer not null,
  name        text not null,
  breaking    boolean not null,
  checksum    text not null,
  applied_at  timestamptz not null default clock_timestamp(),
  constraint schema_migration_pkey primary key (version)
);

-- ══ 0001_messages.sql ════════════════════════════════════════════════════════════════════════════════════════════════
-- Messages on the publishing side: the message itself, the rows that wait to be sent, which worker may send them, and
-- the state machine that guards them.

-- The columns that every publish writes get their conditions from domains instead of CHECK constraints. PostgreSQL
-- prepares the CHECKs of a table again for each statement, which was a third of the cost of a publish; it prepares
-- those of a domain once per session.
create domain message_id as text check (((value <> ''::text) and (length(value) <= 255)));

create domain message_kind as text check ((value = any (array['event'::text, 'command'::text, 'stream'::text])));

create domain message_lane as smallint check (((value >= 0) and (value <= 255)));

create domain message_priority as smallint check (((value >= 0) and (value <= 9)));

create domain payload_version as integer check ((value >= 1));

create domain attempt_count as smallint check ((value >= 0));

create domain attempt_limit as smallint check ((value >= 1));

create domain outbox_lane as integer check (((value >= 0) and (value <= 255)));

-- Every message, written once and never updated, partitioned by day. This table is also the archive: republish, history
-- and the conservation check read it. Old days are dropped whole.
-- The id has no domain here, because the condition of a domain would be evaluated for its index as well; the outbox row
-- of the same insert checks it.
create table message (
  id              text not null,
  written_on      date not null, -- the UTC day of written_at; the partition key
  seq             bigint not null, -- the row's number in the outbox; 0 for a copy that never was in the outbox
  lane            message_lane not null, -- a hash of the key, or of the id if there is no key
  stream          bigint, -- a hash of topic and key: messages of one stream are sent in order of seq
  kind            message_kind not null,
  type            text not null,
  schema_version  payload_version not null, -- the version of the contract that `data` follows
  topic           text not null,
  key             text,
  aggregate_type  text,
  aggregate_id    text,
  saga_id         text,
  correlation_id  text not null,
  causation_id    text, -- the message that caused this one; null if none did
  traceparent     text not null, -- W3C trace context
  source          text not null, -- the publishing service
  target          text, -- the receiving service of a command
  priority        message_priority not null,
  max_attempts    attempt_limit not null,
  holds_on_death  boolean not null default false, -- later messages of the key wait if this one is dead-lettered
  headers         text not null default '{}'::text, -- JSON, kept as text so that it is sent exactly as written
  data            text not null, -- JSON, kept as text for the same reason
  written_at      timestamptz not null,
  expires_at      timestamptz, -- not sent after this time; dead-lettered with the reason "expired"
  constraint message_pkey primary key (id, written_on)
) partition by range (written_on);

create index message_aggregate on message (aggregate_type, aggregate_id) where (aggregate_id is not null);
create index message_saga on message (saga_id) where (saga_id is not null);
create index message_search on message using brin (key text_bloom_ops (n_distinct_per_range='1000', false_positive_rate='0.01'), correlation_id text_bloom_ops (n_distinct_per_range='1000', false_positive_rate='0.01'), substr(traceparent, 4, 32) text_bloom_ops (n_distinct_per_range='1000', false_positive_rate='0.01')) with (pages_per_range='32', autosummarize='on');
create index message_written_at on message using brin (written_at);

-- One narrow row per message that is not sent yet. Settling a row as sent deletes it. Rows come and go all day, so
-- autovacuum runs often and without pauses. VACUUM never truncates the table: truncating needs an exclusive lock, and a
-- table without pages gets bad plans (see reserve_pages in 0008).
create sequence outbox_seq as bigint cache 1;

create table outbox (
  lane          outbox_lane not null,
  seq           bigint not null, -- from outbox_seq; the order inside a stream
  stream        bigint,
  topic         text not null,
  type          text not null,
  message_id    message_id not null,
  written_on    date not null, -- with message_id the primary key of the message
  priority      message_priority not null default 5,
  attempts      attempt_count not null default 0,
  max_attempts  attempt_limit not null default 10,
  due_at        timestamptz not null, -- 'infinity': a dead-lettered message whose key waits for a decision
  lease_until   timestamptz, -- until then only the publishing process may send the row (optimistic send)
  expires_at    timestamptz,
  again         boolean not null default false, -- true: sent again, so seq is not the seq of the message
  last_error    text,
  constraint outbox_pkey primary key (lane, seq)
) with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_insert_scale_factor=0.05, vacuum_truncate=off);

create index outbox_again on outbox (message_id) where again;
create index outbox_express on outbox (lane, priority desc, seq) where ((priority)::smallint <> 5);
create index outbox_express_stream on outbox (stream, ((lane)::bigint), seq) where (((priority)::smallint <> 5) and (stream is not null));
create index outbox_stream on outbox (stream, ((lane)::bigint), seq) where (stream is not null);
create trigger outbox_legal_moves before update on outbox for each row execute function refuse_illegal_move();

-- Messages to be published later. A row holds back no other message and gets its seq when it is due, so it keeps the
-- whole message until then. Columns are those of `message`.
create table scheduled (
  id              text not null,
  due_at          timestamptz not null,
  lane            smallint not null,
  stream          bigint,
  kind            text not null,
  type            text not null,
  schema_version  integer not null,
  topic           text not null,
  key             text,
  aggregate_type  text,
  aggregate_id    text,
  saga_id         text,
  correlation_id  text not null,
  causation_id    text,
  traceparent     text not null,
  source          text not null,
  target          text,
  priority        smallint not null,
  max_attempts    smallint not null,
  holds_on_death  boolean not null default false,
  headers         text not null default '{}'::text,
  data            text not null,
  written_at      timestamptz not null,
  expires_at      timestamptz,
  constraint scheduled_pkey primary key (id),
  constraint scheduled_kind_check check ((kind = any (array['event'::text, 'command'::text, 'stream'::text]))),
  constraint scheduled_lane_check check (((lane >= 0) and (lane <= 255))),
  constraint scheduled_max_attempts_check check ((max_attempts >= 1)),
  constraint scheduled_priority_check check (((priority >= 0) and (priority <= 9))),
  constraint scheduled_schema_version_check check ((schema_version >= 1))
) with (vacuum_truncate=off);

create index scheduled_aggregate on scheduled (aggregate_type, aggregate_id) where (aggregate_id is not null);
create index scheduled_correlation on scheduled (hashtextextended(correlation_id, (0)::bigint));
create index scheduled_due on scheduled (due_at, id);
create index scheduled_key on scheduled (hashtextextended(key, (0)::bigint)) where (key is not null);
create index scheduled_saga on scheduled (saga_id) where (saga_id is not null);

-- Message ids that callers chose. Publishing such an id twice publishes one message, even after the first was sent.
-- Generated ids are unique and need no row.
create table published_id (
  id          text not null,
  written_on  date not null,
  constraint published_id_pkey primary key (id)
) with (vacuum_truncate=off);

create index published_id_age on published_id using brin (written_on);

-- Returns whether a message with this id was published or is scheduled. A message with seq 0 is only a copy that was
-- kept for a retry. Days ahead are partitions without pages; the settings of the function make every plan use the
-- primary key of each partition.
create function has_message(wanted text)
returns boolean
language plpgsql
stable
set search_path to 'pg_catalog', 'pg_temp'
set enable_seqscan to 'off'
set plan_cache_mode to 'force_generic_plan'
as $function$
begin
  return exists (select 1 from message where message.id = wanted and message.seq > 0)
      or exists (select 1 from scheduled where scheduled.id = wanted);
end
$function$;

-- Which relay sent which outbox rows of a lane, and when: one row per lane and batch, partitioned by day.
create table receipt (
  lane        integer not null,
  first_seq   bigint not null,
  last_seq    bigint not null,
  seqs        bigint[] not null,
  relay       text not null,
  sent_at     timestamptz not null,
  sent_on     date not null, -- the UTC day of sent_at; the partition key
  again_seqs  bigint[], -- those of seqs that were sent again: no message has these numbers
  again_ids   text[], -- the message ids of again_seqs, in the same order
  constraint receipt_check check ((last_seq >= first_seq))
) partition by range (sent_on);

create index receipt_lane on receipt (lane, last_seq);

-- The workers that share the lanes of a scope. Scope 0 is the outbox; scope g is consumer group g. A bus.drain() is a
-- guest: it takes only lanes that nobody owns, and no worker gives up a lane for it.
-- process, location and backend identify the operating system process, its machine and its session on this server. Another
-- worker on the same machine can see that the process is dead and need not wait for the end of its lease.
create table member (
  id           text not null,
  scope        integer not null,
  worker       text not null, -- the configured name of the worker
  joined_at    timestamptz not null default clock_timestamp(),
  lease_until  timestamptz not null, -- covers every lane that the member owns
  process      text,
  location     text,
  backend      integer,
  guest        boolean not null default false,
  constraint member_pkey primary key (id)
);

create index member_scope on member (scope, lease_until);

-- Which member owns a lane. A new owner gets a higher fence and a new random token. Both must match when rows of the
-- lane are settled, so a worker whose lease ended cannot settle rows that another worker has taken over.
create table relay_lane (
  lane       integer not null,
  scope      integer not null,
  owner      text,
  fence      bigint not null default 0,
  token      text,
  leased_at  timestamptz,
  constraint relay_lane_pkey primary key (lane),
  constraint relay_lane_check check ((scope = (lane / 256))),
  constraint relay_lane_check1 check (((owner is null) = (token is null))),
  constraint relay_lane_fence_check check ((fence >= 0)),
  constraint relay_lane_lane_check check ((lane >= 0))
);

create index relay_lane_scope on relay_lane (scope, lane);

-- The allowed moves between the states that the view outbox_events shows. The source is the table in code
-- (src/outbox/message-state.ts); the marked section below is generated from it.
create table outbox_move (
  name         text not null,
  from_status  text not null,
  to_status    text not null,
  constraint outbox_move_pkey primary key (name, from_status, to_status)
);

-- Returns the name of the move that an update makes, or null if it makes none. The change, the state before and the
-- state after must all fit one row of outbox_move.
create function outbox_move_of(before outbox, after outbox)
returns text
language sql
stable
set search_path to 'pg_catalog', 'pg_temp'
as $function$
  select move.name
    from outbox_move as move
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
$function$;

-- Refuses an update of an outbox row that is no move of the state machine. It runs with the rights of its owner, so
-- other roles need no right on outbox_move.
create function refuse_illegal_move()
returns trigger
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
as $function$
declare
  move text := outbox_move_of(old, new);
  carried outbox := old;
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
$function$;

-- Makes a failed message due now, and changes nothing else of its row. Returns its lane, when it was due, and its
-- attempts; returns no row if the message does not wait for a retry.
create function outbox_retry_now(wanted text)
returns table(retried_lane integer, was_due timestamptz, tried integer)
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
set enable_seqscan to 'off'
as $function$
begin
  return query
  with found as materialized (
    select message.lane::integer as lane, message.seq from message where message.id = wanted
    union
    select again.lane, again.seq from outbox as again where again.again and again.message_id = wanted
  ), failed as materialized (
    select row.lane, row.seq, row.due_at, row.attempts
      from found join outbox as row on row.lane = found.lane and row.seq = found.seq
     where row.message_id = wanted and row.attempts > 0
       and row.due_at > clock_timestamp() and row.due_at < 'infinity'
       for update of row
  ), retried as (
    update outbox as row set due_at = clock_timestamp()
      from failed
     where row.lane = failed.lane and row.seq = failed.seq
    returning row.lane, row.seq
  )
  select failed.lane::integer, failed.due_at, failed.attempts::integer
    from failed join retried on retried.lane = failed.lane and retried.seq = failed.seq;
end
$function$;

-- Waits for every open transaction that has written to the outbox, and lets no other one write until the caller's
-- transaction ends. Without it, an open transaction could hold a seq that puts a newer message in front of one that is
-- sent again. The first lock stops no publisher. It waits up to maintenance_ms for maintenance and for other republishes,
-- long enough for the server to cancel an autovacuum that holds the table (deadlock_timeout). The second lock stops
-- publishers while it waits, so writers_ms is short. The transaction id is taken before any seq is drawn, as in every
-- writer.
create function outbox_keep_writers_out(maintenance_ms integer, writers_ms integer)
returns void
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
as $function$
begin
  perform set_config('lock_timeout', maintenance_ms || 'ms', true);
  lock table outbox in share update exclusive mode;
  perform set_config('lock_timeout', writers_ms || 'ms', true);
  perform pg_current_xact_id();
  lock table outbox in share row exclusive mode;
end
$function$;

-- Sends messages of the archive again, in front of the newer messages of their keys that still wait. The order inside a
-- key is seq, and a relay may already have read past any existing number. So the messages get new numbers, and the
-- newer ones that wait get higher ones after them.
-- ids and days name the messages; sent_days names the copy that is sent, which differs if the message was edited. The
-- caller passes all messages of a key in one call, so its waiting rows are renumbered once. A row under a running
-- optimistic lease keeps its number. A row that holds its key for a dead letter is renumbered like any other, and the
-- dead letter is updated. Returns how many messages were put into the outbox.
create function outbox_send_again(ids text[], days date[], sent_days date[])
returns integer
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
as $function$
declare
  sent integer;
begin
  with given as materialized (
    select message.id, message.lane::integer as lane, message.stream, message.topic, message.type, wanted.sent_on,
           message.priority, message.max_attempts, message.seq as origin
      from unnest(ids, days, sent_days) as wanted (id, written_on, sent_on)
     cross join lateral (
       select * from message as kept
        where kept.id = wanted.id and kept.written_on = wanted.written_on offset 0
     ) as message
  ), earliest as materialized (
    select lane, stream, min(origin) as origin from given where stream is not null group by lane, stream
  ), waiting as materialized (
    select row.lane, row.seq, earliest.origin as earliest_origin,
           case when row.again
                then coalesce(
                  (select nullif(message.seq, 0) from message
                    where message.id = row.message_id and message.written_on = row.written_on),
                  (select max(message.seq) from message where message.id = row.message_id),
                  row.seq)
                else row.seq end as origin
      from earliest
      join outbox as row on row.lane = earliest.lane and row.stream = earliest.stream
     where row.lease_until is null or row.lease_until <= clock_timestamp()
  ), behind as (
    delete from outbox as row using waiting
     where row.lane = waiting.lane and row.seq = waiting.seq
       and waiting.origin > waiting.earliest_origin
    returning row.*, waiting.origin
  ), numbered as materialized (
    select sorted.*, nextval('outbox_seq') as new_seq
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
    insert into outbox
           (again, lane, seq, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at, expires_at,
            last_error)
    select true, lane, new_seq, stream, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at,
           expires_at, last_error
      from numbered
  ), held as (
    update dead_letter as letter set held_seq = numbered.new_seq
      from numbered
     where numbered.due_at = 'infinity' and letter.held_lane = numbered.lane and letter.held_seq = numbered.old_seq
       and letter.message_id = numbered.message_id and letter.closed_at is null
  )
  select count(*)::integer into sent from given;
  return sent;
end
$function$;

-- Raises an error. code is the code of the same error in docs/reference/errors.md.
create function publish_refuse(code text, problem text, remedy text)
returns void
language plpgsql
set search_path to 'pg_catalog', 'pg_temp'
as $function$
begin
  raise exception 'publish: %', problem
    using errcode = 'invalid_parameter_value', detail = code, hint = remedy;
end
$function$;

-- The hash of lane-hash.ts over UTF-8 bytes: two numbers of 32 bits, returned as one of 64 bits. It must never change.
create function publish_hash(bytes bytea)
returns bigint
language plpgsql
immutable parallel safe strict
set search_path to 'pg_catalog', 'pg_temp'
as $function$
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
  a := publish_scramble(a # b);
  b := publish_scramble((b + a) & low);
  a := publish_scramble(a # (b >> 7));
  return (a << 32) | b;
end
$function$;

create function publish_scramble(value bigint)
returns bigint
language plpgsql
immutable parallel safe strict
set search_path to 'pg_catalog', 'pg_temp'
as $function$
declare
  low constant bigint := 4294967295;
  mixed bigint := value # (value >> 16);
begin
  mixed := (mixed * 2146121005) & low;
  mixed := mixed # (mixed >> 15);
  mixed := (mixed * -2073254261) & low;
  return mixed # (mixed >> 16);
end
$function$;

-- Refuses a key, id or name that some transport or index cannot carry: it must be 1 to 255 characters (UTF-16 units, as
-- consumers count), not blank, and without control characters. Null passes.
create function publish_check_id(code text, parameter text, value text)
returns void
language plpgsql
set search_path to 'pg_catalog', 'pg_temp'
as $function$
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
  perform publish_refuse(code,
    parameter || ' must have 1 to 255 characters, must not be blank, and must not contain control characters.',
    'Pass a shorter value, such as the id of the row that the message is about.');
end
$function$;

-- Refuses data that consumers would refuse. jsonb itself cannot hold NUL, lone surrogates or a key twice.
create function publish_check_data(data jsonb)
returns void
language plpgsql
set search_path to 'pg_catalog', 'pg_temp'
as $function$
begin
  if data is null then
    perform publish_refuse('PAYLOAD_NOT_JSON', 'data must not be null.',
      'Pass jsonb, for example jsonb_build_object(''orderId'', new.id). The JSON value null is ''null''::jsonb.');
  elsif octet_length(data::text) > 1048576 then
    perform publish_refuse('PAYLOAD_TOO_LARGE', 'data is larger than 1048576 bytes.',
      'Publish a reference to the row instead, or publish with bus.publish and a claim check.');
  elsif jsonb_path_exists(data, 'strict $.** ? (@.type() == "number" && (@ > 9007199254740991 || @ < -9007199254740991))') then
    perform publish_refuse('PAYLOAD_UNSAFE_INTEGER', 'data contains a number of 2^53 or more, which may lose precision.',
      'Send it as a string, for example new.id::text.');
  elsif jsonb_path_exists(data, 'strict $.**{64 to last} ? (@.type() == "object" || @.type() == "array")') then
    perform publish_refuse('PAYLOAD_TOO_DEEP', 'data is nested more than 64 levels deep.',
      'Send it flatter, or the deep part as a string.');
  elsif jsonb_path_exists(data,
          'strict $.** ? (@.type() == "object" && (exists(@."__proto__") || exists(@."prototype") || exists(@."constructor")))') then
    perform publish_refuse('PAYLOAD_PROTOTYPE_KEY',
      'data has a key __proto__, prototype or constructor, which could change the prototype of objects.', 'Rename the key.');
  end if;
end
$function$;

-- Returns the headers as JSON text with lower-case names. Refuses names and values that some transport cannot carry.
create function publish_headers(headers jsonb)
returns text
language plpgsql
set search_path to 'pg_catalog', 'pg_temp'
as $function$
declare
  header record;
  previous text;
  listed text[] := '{}';
begin
  if jsonb_typeof(headers) is distinct from 'object' then
    if headers is null then
      return '{}';
    end if;
    perform publish_refuse('HEADER_INVALID', 'headers must be an object of strings.', 'Pass for example ''{"tenant": "a"}''.');
  end if;
  for header in
    select lower(each.key collate "C") as name, each.value #>> '{}' as value, jsonb_typeof(each.value) as kind
      from jsonb_each(headers) as each
     order by 1
  loop
    if header.name !~ '^[a-z0-9][a-z0-9._-]*$' or length(header.name) > 128 then
      perform publish_refuse('HEADER_INVALID', format('header "%s" must match ^[a-z0-9][a-z0-9._-]{0,127}$.', left(header.name, 40)),
        'Use letters, digits, dots, dashes and underscores in names of headers.');
    elsif header.name = any(array['message_id', 'correlation_id', 'causation_id', 'trace_id', 'traceparent', 'message_type', 'event_type',
                                  'schema_version', 'source_service', 'saga_id', 'content-type'])
       or header.name ~ '^(sagabox[-._]|ce[-_]|cloudevents_|nats-|x-death|x-first-death)' then
      perform publish_refuse('HEADER_INVALID', format('header "%s" is reserved and filled in automatically.', header.name),
        'Choose another name, or use the parameter of publish with that meaning.');
    elsif header.name = previous then
      perform publish_refuse('HEADER_INVALID', format('header "%s" is given twice, in different letter case.', header.name),
        'Remove one of them.');
    elsif header.kind <> 'string' or header.value ~ E'[\\r\\n]' or octet_length(header.value) > 8192 then
      perform publish_refuse('HEADER_INVALID',
        format('header "%s" must be a string of at most 8192 bytes without line breaks.', header.name),
        'Convert the value to text, or send it in data.');
    end if;
    previous := header.name;
    listed := listed || (to_json(header.name)::text || ':' || to_json(header.value)::text);
  end loop;
  if cardinality(listed) > 64 then
    perform publish_refuse('HEADER_INVALID', format('there are %s headers; at most 64 are allowed.', cardinality(listed)),
      'Send the rest in data.');
  end if;
  return '{' || array_to_string(listed, ',') || '}';
end
$function$;

-- Returns the topic: the given one, or a name made from kind and type, such as events.order.placed.
create function publish_topic(topic text, kind text, type text)
returns text
language plpgsql
set search_path to 'pg_catalog', 'pg_temp'
as $function$
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
    perform publish_refuse('TOPIC_INVALID', 'the topic must have 1 to 249 letters, digits, dots, dashes or underscores.',
      'Pass another topic, or a shorter type.');
  end if;
  return chosen;
end
$function$;

-- Returns the traceparent of a new span: a child of the given one, or of the one in the setting sagabox.traceparent, or
-- else the first of a new trace. An invalid setting starts a new trace; an invalid parameter is refused.
create function publish_traceparent(given text)
returns text
language plpgsql
set search_path to 'pg_catalog', 'pg_temp'
as $function$
declare
  parent constant text := coalesce(given, current_setting('traceparent', true));
  part text[] := regexp_match(parent, '^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$');
  span constant text := right(replace(gen_random_uuid()::text, '-', ''), 16);
begin
  if length(parent) > 512 or part[1] = 'ff' or (part[1] = '00' and part[5] is not null) or part[2] ~ '^0+$' or part[3] ~ '^0+$' then
    part := null;
  end if;
  if part is not null then
    return '00-' || part[2] || '-' || span || '-' || part[4];
  elsif given is not null then
    perform publish_refuse('HEADER_INVALID', 'traceparent must have the form 00-<trace id>-<span id>-<flags>.',
      'Pass the traceparent header of the request unchanged, or leave it out.');
  end if;
  return '00-' || replace(gen_random_uuid()::text, '-', '') || '-' || span || '-01';
end
$function$;

-- Writes a message in the caller's transaction and returns its id, or null if a message with this id exists already.
-- It runs with the rights of its owner, so a caller needs the right to execute it and no right on a table. It sends no
-- NOTIFY, which would serialise the commits of the server; relays find the message when they poll.
create function publish(type text, data jsonb, key text default null::text, headers jsonb default null::jsonb, delay interval default null::interval, at timestamptz default null::timestamptz, id text default null::text, topic text default null::text, kind text default 'event'::text, schema_version integer default 1, priority integer default 5, ttl interval default null::interval, source text default null::text, target text default null::text, correlation_id text default null::text, causation_id text default null::text, traceparent text default null::text, saga_id text default null::text, aggregate_type text default null::text, aggregate_id text default null::text, max_attempts integer default 10, strict_order boolean default false, on_dead text default 'continue'::text)
returns text
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
as $function$
declare
  to_kind constant text := coalesce(publish.kind, 'event');
  version constant integer := coalesce(publish.schema_version, 1);
  urgency constant integer := coalesce(publish.priority, 5);
  attempts constant integer := coalesce(publish.max_attempts, 10);
  is_strict constant boolean := coalesce(publish.strict_order, false);
  is_held constant boolean := coalesce(publish.on_dead, 'continue') = 'hold';
  -- The settings are for triggers, whose callers cannot pass parameters.
  service constant text := coalesce(publish.source, nullif(current_setting('service', true), ''), session_user::text);
  cause constant text := coalesce(publish.causation_id, nullif(current_setting('causation_id', true), ''));
  aggregate constant text := coalesce(publish.aggregate_id, case when publish.aggregate_type is not null then publish.key end);
  moment timestamptz := clock_timestamp();
  unique_id constant text := gen_random_uuid()::text;
  new_id text := publish.id;
  flow text := coalesce(publish.correlation_id, nullif(current_setting('correlation_id', true), ''));
  to_topic text;
  header_text text;
  trace text;
  to_lane integer;
  to_stream bigint;
  due timestamptz;
  new_seq bigint;
begin
  if publish.type is null or publish.type !~ '^[A-Za-z][A-Za-z0-9_.-]*$' or length(publish.type) > 255 then
    perform publish_refuse('CONTRACT_INVALID', 'type must match ^[A-Za-z][A-Za-z0-9_.-]{0,254}$.',
      'Pass the name of the contract, for example ''order.placed''.');
  elsif to_kind not in ('event', 'command', 'stream') then
    perform publish_refuse('CONTRACT_INVALID', 'kind must be event, command or stream.', 'Leave it out for an event.');
  elsif exists (select from personal_type as known where known.type = publish.type and known.fields <> '{}') then
    perform publish_refuse('PRIVACY_KEYS_MISSING', format('"%s" has personal fields, which SQL cannot encrypt.', publish.type),
      'Publish it with bus.publish, or publish an event with the id of the row and let a handler read the rest. '
      'The table personal_type lists such types.');
  elsif version < 1 then
    perform publish_refuse('CONTRACT_INVALID', 'schema_version must be a whole number from 1.', 'Pass the version of the contract.');
  elsif urgency not between 0 and 9 then
    perform publish_refuse('OPTIONS_INVALID', 'priority must be a whole number from 0 to 9.', '9 is the most urgent; the default is 5.');
  elsif attempts not between 1 and 1000 then
    perform publish_refuse('OPTIONS_INVALID', 'max_attempts must be a whole number from 1 to 1000.', 'Leave it out for 10 attempts.');
  elsif publish.on_dead not in ('continue', 'hold') then
    perform publish_refuse('OPTIONS_INVALID', 'on_dead must be continue or hold.', 'Leave it out for continue.');
  elsif publish.key is null and (is_strict or is_held) then
    perform publish_refuse('OPTIONS_INVALID', 'strict_order and on_dead => ''hold'' need a key.', 'Pass the key of the message.');
  elsif publish.delay is not null and publish.at is not null then
    perform publish_refuse('OPTIONS_INVALID', 'give either delay or at, not both.', 'Remove one of them.');
  elsif publish.delay < interval '0' or publish.delay > interval '3650 days' then
    perform publish_refuse('OPTIONS_INVALID', 'delay must be from 0 to 3650 days.', 'Pass for example interval ''15 minutes''.');
  elsif not isfinite(publish.at) then
    perform publish_refuse('OPTIONS_INVALID', 'at must not be infinite.', 'Pass the time when the message is due.');
  elsif publish.ttl < interval '1 millisecond' or publish.ttl > interval '3650 days' then
    perform publish_refuse('OPTIONS_INVALID', 'ttl must be from 1 millisecond to 3650 days.', 'Pass for example interval ''5 minutes''.');
  end if;
  perform publish_check_id('MESSAGE_ID_INVALID', 'id', publish.id);
  perform publish_check_id('KEY_INVALID', 'key', publish.key);
  perform publish_check_id('OPTIONS_INVALID', 'source', service);
  perform publish_check_id('MESSAGE_ID_INVALID', 'target', publish.target);
  perform publish_check_id('MESSAGE_ID_INVALID', 'saga_id', publish.saga_id);
  perform publish_check_id('MESSAGE_ID_INVALID', 'aggregate_type', publish.aggregate_type);
  perform publish_check_id('MESSAGE_ID_INVALID', 'aggregate_id', publish.aggregate_id);
  perform publish_check_id('HEADER_INVALID', 'correlation_id', flow);
  perform publish_check_id('HEADER_INVALID', 'causation_id', cause);
  perform publish_check_data(publish.data);
  header_text := publish_headers(publish.headers);
  to_topic := publish_topic(publish.topic, to_kind, publish.type);
  trace := publish_traceparent(publish.traceparent);
  if new_id is null then
    -- A UUID of version 7: the time in milliseconds, and 74 random bits of a UUID of version 4.
    new_id := lpad(to_hex(floor(extract(epoch from moment) * 1000)::bigint), 12, '0');
    new_id := left(new_id, 8) || '-' || right(new_id, 4) || '-7' || substr(unique_id, 16);
  end if;
  flow := coalesce(flow, new_id);
  to_lane := (publish_hash(convert_to(coalesce(publish.key, new_id), 'UTF8')) >> 32) & 255;
  to_stream := publish_hash(convert_to(to_topic, 'UTF8') || decode('ff', 'hex') || convert_to(publish.key, 'UTF8'));

  if is_strict then
    perform pg_advisory_xact_lock(hashtextextended('stream.' || to_stream, 0));
  end if;
  -- The transaction id is taken before a seq is drawn, as in every writer: the readers' horizon depends on that.
  perform pg_current_xact_id();
  moment := clock_timestamp();
  -- A generated id is stored with its message only, so an id of that form is looked up there. Of two concurrent writers
  -- the second waits at published_id.
  if publish.id is not null then
    if publish.id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' and has_message(publish.id) then
      return null;
    end if;
    insert into published_id (id, written_on) values (new_id, (moment at time zone 'utc')::date) on conflict do nothing;
    if not found then
      return null;
    end if;
  end if;
  if publish.at is not null or publish.delay > interval '0' then
    due := coalesce(publish.at, moment + publish.delay);
    insert into scheduled
           (id, due_at, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id, correlation_id,
            causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data, written_at, expires_at)
    values (new_id, due, to_lane, to_stream, to_kind, publish.type, version, to_topic, publish.key, publish.aggregate_type, aggregate,
            publish.saga_id, flow, cause, trace, service, publish.target, urgency, attempts, is_held, header_text, publish.data::text,
            moment, due + publish.ttl);
    return new_id;
  end if;
  new_seq := nextval('outbox_seq');
  -- Read again: the insert into published_id may have waited for another transaction.
  moment := clock_timestamp();
  insert into message
         (id, written_on, seq, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
          correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death, headers, data, written_at,
          expires_at)
  values (new_id, (moment at time zone 'utc')::date, new_seq, to_lane, to_stream, to_kind, publish.type, version, to_topic, publish.key,
          publish.aggregate_type, aggregate, publish.saga_id, flow, cause, trace, service, publish.target, urgency, attempts, is_held,
          header_text, publish.data::text, moment, moment + publish.ttl);
  insert into outbox
         (lane, seq, stream, topic, type, message_id, written_on, priority, max_attempts, due_at, expires_at)
  values (to_lane, new_seq, to_stream, to_topic, publish.type, new_id, (moment at time zone 'utc')::date, urgency, attempts, moment,
          moment + publish.ttl);
  return new_id;
end
$function$;

-- Tells relays to look for messages now instead of at their next poll. Call it after COMMIT, as a statement of its own:
-- it refuses to run in a transaction that has written, because a NOTIFY there would serialise the commits of the server.
create function wake_relays()
returns void
language plpgsql
set search_path to 'pg_catalog', 'pg_temp'
as $function$
begin
  if pg_current_xact_id_if_assigned() is not null then
    raise exception 'wake_relays: this transaction has written, and its NOTIFY would make other commits wait'
      using errcode = 'active_sql_transaction', hint = 'Call it after COMMIT, as a statement of its own.';
  end if;
  perform pg_notify(left('sagabox_' || (select nspname from pg_namespace where oid = '"sagabox"'::regnamespace), 63), '*');
end
$function$;

-- ══ 0002_consumers.sql ═══════════════════════════════════════════════════════════════════════════════════════════════
-- Messages on the consuming side: the queue of the PostgreSQL transport, what each consumer has processed, which
-- messages crash workers, replies to requests, and events of declared flows.

-- A consumer of the PostgreSQL transport. Group g owns the lanes g*256 to g*256+255 of `queue` and `relay_lane`.
create table consumer_group (
  id          integer not null generated always as identity,
  name        text not null,
  created_at  timestamptz not null default clock_timestamp(),
  constraint consumer_group_pkey primary key (id),
  constraint consumer_group_name_key unique (name),
  constraint consumer_group_name_check check (((name <> ''::text) and (length(name) <= 255)))
);

-- Which topics a group receives.
create table subscription (
  topic       text not null,
  group_id    integer not null,
  created_at  timestamptz not null default clock_timestamp(),
  constraint subscription_pkey primary key (topic, group_id),
  constraint subscription_group_id_fkey foreign key (group_id) references consumer_group(id)
);

-- When the last subscription of a topic was retired. The next group that takes over unclaimed commands of the topic
-- starts here: commands published earlier had a consumer.
create table retired_subscription (
  topic       text not null,
  retired_at  timestamptz not null default clock_timestamp(),
  constraint retired_subscription_pkey primary key (topic)
);

-- Keeps deliveries to new subscribers out while a group that reads from the beginning copies the archive. A role could
-- take this lock itself only with the right to delete the subscriptions of other groups.
create function lock_subscriptions()
returns void
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
as $function$
begin
  lock table subscription in access exclusive mode;
end
$function$;

-- How far each consumer is behind, as one of its workers last measured it. For `sagabox status`, which cannot ask a
-- broker, and for the metrics of the other workers. A worker claims the row before it measures, so that one does at a
-- time.
create table consumer_lag (
  consumer     text not null,
  transport    text not null,
  claimed_at   timestamptz not null,
  measured_at  timestamptz, -- null: not measured yet
  lags         text not null default '[]'::text, -- JSON: one entry per topic; a value of null is unknown
  constraint consumer_lag_pkey primary key (consumer)
) with (vacuum_truncate=off);

-- Deliveries of the PostgreSQL transport: one narrow row per message and consumer group, and failed messages of a key
-- that wait beside a broker. It has the columns of `outbox`, so one reader serves both; see there for their meaning and
-- for the storage parameters and indexes.
create sequence queue_seq as bigint cache 1;

create table queue (
  lane          integer not null,
  seq           bigint not null default nextval('queue_seq'::regclass),
  stream        bigint,
  topic         text not null,
  type          text not null,
  message_id    text not null,
  written_on    date not null,
  priority      smallint not null default 5,
  attempts      smallint not null default 0,
  max_attempts  smallint not null default 10,
  due_at        timestamptz not null,
  lease_until   timestamptz,
  expires_at    timestamptz,
  again         boolean not null default false,
  last_error    text,
  constraint queue_pkey primary key (lane, seq),
  constraint queue_attempts_check check ((attempts >= 0)),
  constraint queue_lane_check check ((lane >= 256)),
  constraint queue_max_attempts_check check ((max_attempts >= 1)),
  constraint queue_priority_check check (((priority >= 0) and (priority <= 9)))
) with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_insert_scale_factor=0.05, vacuum_truncate=off);

create index queue_express on queue (lane, priority desc, seq) where (priority <> 5);
create index queue_express_stream on queue (stream, ((lane)::bigint), seq) where ((priority <> 5) and (stream is not null));
create index queue_stream on queue (stream, ((lane)::bigint), seq) where (stream is not null);

-- One row per consumer and message it has processed, written in the transaction of the handler. A second delivery finds
-- the row and does not run the handler.
-- The last three columns let a saga repeat or undo a command:
--   effect     false: nothing was done for the command; it was rejected, or undone before it arrived
--   effect_of  an earlier command whose effect counts for this one too
--   undone_by  the command that undid the effect of this one
create table consumer_inbox (
  consumer_name           text not null,
  event_id                text not null,
  source_topic            text not null,
  event_type              text not null,
  consumed_at             timestamptz not null default clock_timestamp(),
  processing_duration_ms  integer,
  result                  text, -- JSON returned by the handler; given to a duplicate
  payload                 text, -- only if the consumer is configured to keep it
  effect                  boolean not null default true,
  effect_of               text,
  undone_by               text,
  constraint consumer_inbox_pkey primary key (consumer_name, event_id),
  constraint consumer_inbox_effect_of check ((effect or (effect_of is null))),
  constraint consumer_inbox_event_id_check check (((event_id <> ''::text) and (length(event_id) <= 255))),
  constraint consumer_inbox_processing_duration_ms_check check ((processing_duration_ms >= 0)),
  constraint consumer_inbox_undone_by check (((effect and (effect_of is null)) or (undone_by is null)))
) with (vacuum_truncate=off);

create index consumer_inbox_age on consumer_inbox using brin (consumed_at);

-- The messages a worker is about to handle. If the worker is gone and its row is still here, one of them may have
-- crashed it.
create table running (
  member      text not null,
  consumer    text not null,
  event_ids   text[] not null,
  alone       boolean not null default false, -- true: a single suspect message, so a crash is its fault
  started_at  timestamptz not null default clock_timestamp(),
  constraint running_pkey primary key (member, consumer)
);

-- Messages that were in flight when a worker crashed. Each is handled alone from then on.
create table suspect (
  consumer    text not null,
  event_id    text not null,
  crashes     smallint not null default 0, -- crashes while it was handled alone
  noticed_at  timestamptz not null default clock_timestamp(),
  constraint suspect_pkey primary key (consumer, event_id),
  constraint suspect_crashes_check check ((crashes >= 0))
);

-- Replies to requests, kept until the waiting process, which may be any, has read them.
create table reply (
  request_id  text not null,
  outcome     text not null,
  body        text not null,
  arrived_at  timestamptz not null default clock_timestamp(),
  constraint reply_pkey primary key (request_id),
  constraint reply_outcome_check check ((outcome = any (array['done'::text, 'failed'::text]))),
  constraint reply_request_id_check check (((request_id <> ''::text) and (length(request_id) <= 255)))
) with (vacuum_truncate=off);

create index reply_arrived_at on reply (arrived_at);

-- Events of declared flows (choreography): which event was seen under which correlation id, from which service and
-- caused by which message.
create table flow_event (
  flow            text not null,
  message_id      text not null,
  correlation_id  text not null,
  type            text not null,
  causation_id    text,
  source          text not null,
  key             text,
  happened_at     timestamptz not null, -- by the clock of the publisher's database
  recorded_at     timestamptz not null default clock_timestamp(),
  open            boolean not null default true, -- false once the flow of its correlation id is complete
  constraint flow_event_pkey primary key (flow, message_id)
) with (vacuum_truncate=off);

create index flow_event_age on flow_event (recorded_at);
create index flow_event_correlation on flow_event (correlation_id, flow);
create index flow_event_open on flow_event (flow, recorded_at) where open;

-- Removes the subscriptions and waiting deliveries of a consumer group that is gone for good, and nothing of other
-- groups. Returns how many of each; does nothing and returns no row while a member of the group is alive. Processed
-- messages and dead letters stay. A dead letter whose replay was still waiting is marked as discarded. It runs with the
-- rights of its owner, so the caller needs no right to delete deliveries.
create function retire_consumer(in_group integer)
returns table(subscriptions integer, deliveries integer)
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
as $function$
begin
  if exists (select 1 from member where scope = in_group and lease_until > clock_timestamp()) then
    return;
  end if;
  return query
  with unsubscribed as (
    delete from subscription where group_id = in_group returning topic
  ), noted as (
    insert into retired_subscription (topic)
    select topic from unsubscribed
    on conflict (topic) do update set retired_at = excluded.retired_at
  ), removed as (
    delete from queue as row
     where row.lane between in_group * 256 and in_group * 256 + 255
    returning row.message_id
  ), unmeasured as (
    delete from consumer_lag
     where consumer = (select name from consumer_group where id = in_group)
  ), given_up as (
    update dead_letter as letter set closed_as = 'discarded'
      from consumer_group as own
     where own.id = in_group and letter.consumer = own.name and letter.closed_as = 'replayed'
       and letter.message_id in (select message_id from removed)
       and not exists (select 1 from consumer_inbox as inbox
                        where inbox.consumer_name = letter.consumer and inbox.event_id = letter.message_id)
  )
  select (select count(*)::integer from unsubscribed), (select count(*)::integer from removed);
end
$function$;

-- ══ 0003_sagas.sql ═══════════════════════════════════════════════════════════════════════════════════════════════════
-- Sagas: running and finished instances, the input that waits for them, their definitions, and incidents that need a
-- decision. The log of their transitions is in 0007_audit.sql.

-- The structure of each version of each saga: names, kinds and order of its steps. A worker registers a version when it
-- first starts with it, and compares it at each later start. If the structure has changed while instances of the
-- version are unfinished, the worker refuses to start or warns.
create table saga_definition (
  saga_type      text not null,
  version        integer not null,
  hash           text not null,
  structure      json not null,
  registered_at  timestamptz not null default clock_timestamp(),
  constraint saga_definition_pkey primary key (saga_type, version),
  constraint saga_definition_saga_type_check check ((saga_type <> ''::text)),
  constraint saga_definition_version_check check ((version > 0))
);

-- One row per running or finished saga. `state` is the whole truth; status, current_step, waits_for and last_error are
-- derived from it, so that instances can be found.
-- The fill factor leaves room in each page: an update that changes no indexed column then writes no index entry.
create table saga_instance (
  id                      text not null,
  saga_type               text not null,
  definition_version      integer not null,
  correlation_id          text not null, -- its key
  status                  text not null,
  input                   json not null,
  state                   json not null,
  current_step            text,
  waits_for               text, -- what it waits for, for people: a step, a message, a time
  waiting_since           timestamptz,
  version                 integer not null default 0, -- +1 per transition: optimistic concurrency
  last_error              text,
  retry_count             integer not null default 0,
  trace_id                text not null,
  traceparent             text not null, -- W3C trace context of the message that started it
  message_correlation_id  text not null, -- the correlation id of the messages it sends
  parent_id               text, -- of a child saga: the instance that started it …
  parent_step             text, -- … and the step that did
  due_at                  timestamptz, -- when it must run again; null while it waits for input only
  claimed_by              text, -- the worker that runs it …
  claimed_until           timestamptz, -- … and the end of its lease
  claims                  integer not null default 0, -- claims since its last transition: a high number means that its step keeps crashing workers
  created_at              timestamptz not null default clock_timestamp(),
  updated_at              timestamptz not null default clock_timestamp(),
  completed_at            timestamptz,
  attachments             text[], -- blobs it refers to, if its input and state are encrypted
  subject                 text, -- keyed hash of its data subject; its input and state are encrypted then
  constraint saga_instance_pkey primary key (id),
  constraint saga_instance_check check (((parent_id is null) = (parent_step is null))),
  constraint saga_instance_check1 check (((completed_at is not null) = (status = any (array['completed'::text, 'compensated'::text])))),
  constraint saga_instance_claims_check check ((claims >= 0)),
  constraint saga_instance_correlation_id_check check (((correlation_id <> ''::text) and (length(correlation_id) <= 255))),
  constraint saga_instance_definition_version_check check ((definition_version > 0)),
  constraint saga_instance_id_check check (((id <> ''::text) and (length(id) <= 255))),
  constraint saga_instance_retry_count_check check ((retry_count >= 0)),
  constraint saga_instance_saga_type_check check ((saga_type <> ''::text)),
  constraint saga_instance_status_check check ((status = any (array['started'::text, 'running'::text, 'completing'::text, 'compensating'::text, 'compensated'::text, 'completed'::text, 'failed'::text]))),
  constraint saga_instance_version_check check ((version >= 0))
) with (fillfactor=70, vacuum_truncate=off);

create index saga_instance_completed on saga_instance (completed_at) where (completed_at is not null);
create index saga_instance_due on saga_instance (due_at) where (due_at is not null);
create index saga_instance_message_correlation on saga_instance (message_correlation_id);
create index saga_instance_open on saga_instance (status) where (completed_at is null);
create index saga_instance_parent on saga_instance (parent_id) where (parent_id is not null);
create index saga_instance_subject on saga_instance (subject) where (subject is not null);
create unique index saga_instance_correlation on saga_instance (correlation_id, saga_type);
create trigger saga_instance_attachments after insert or update of input, state on saga_instance for each row when (((strpos((new.state)::text, '"$attachment"'::text) > 0) or (strpos((new.input)::text, '"$attachment"'::text) > 0) or (new.attachments is not null))) execute function keep_saga_attachments();

-- Pending input: input for an instance that could not be applied at once. The instance does not exist yet
-- (correlation_id is set), no worker here knows its version, a child has ended, or an operator has acted (saga_id is
-- set). Exactly one of saga_id and correlation_id is set.
create table saga_input (
  id              text not null, -- the id of the message, or one made for the input
  saga_type       text not null,
  saga_id         text,
  correlation_id  text,
  cause           text not null,
  input           json not null,
  arrived_at      timestamptz not null default clock_timestamp(),
  expires_at      timestamptz not null,
  constraint saga_input_pkey primary key (id, saga_type),
  constraint saga_input_check check (((saga_id is null) <> (correlation_id is null))),
  constraint saga_input_id_check check ((id <> ''::text))
) with (vacuum_truncate=off);

create index saga_input_expires on saga_input (expires_at);
create index saga_input_saga on saga_input (saga_id, arrived_at) where (saga_id is not null);
create index saga_input_unclaimed on saga_input (saga_type, correlation_id) where (saga_id is null);

-- Failures that an operator has to decide about. A failed instance has exactly one open incident, any other has none.
create table saga_incident (
  id          bigint not null generated always as identity,
  saga_id     text not null,
  steps       text[] not null, -- the steps that failed
  error       text not null,
  opened_at   timestamptz not null default clock_timestamp(),
  closed_at   timestamptz,
  resolution  text,
  constraint saga_incident_pkey primary key (id),
  constraint saga_incident_check check (((closed_at is null) = (resolution is null)))
) with (vacuum_truncate=off);

create index saga_incident_saga on saga_incident (saga_id);
create unique index saga_incident_open on saga_incident (saga_id) where (closed_at is null);

-- ══ 0004_dead_letters.sql ════════════════════════════════════════════════════════════════════════════════════════════
-- Dead letters: messages that could not be sent or handled, with everything an operator needs to look at them and to
-- replay them under their own id.

-- A full copy of the message, since the day of the message may be dropped from the archive earlier. Columns that are
-- not explained here are those of `message`.
create table dead_letter (
  id              bigint not null generated always as identity,
  origin          text not null, -- failed to be sent, or to be handled
  consumer        text, -- the consumer that failed to handle it; null for the outbox
  message_id      text not null,
  kind            text not null,
  type            text not null,
  schema_version  integer not null,
  topic           text not null,
  key             text,
  aggregate_type  text,
  aggregate_id    text,
  saga_id         text,
  correlation_id  text not null,
  causation_id    text,
  traceparent     text not null,
  source          text not null,
  target          text,
  priority        smallint not null,
  max_attempts    smallint not null,
  headers         text not null,
  data            text not null,
  written_at      timestamptz not null,
  expires_at      timestamptz,
  reason          text not null,
  attempts        integer not null,
  error_type      text not null,
  error_message   text not null,
  stack_trace     text,
  fingerprint     text, -- a hash of the cause; dead letters of one cause are shown as one group
  key_order       bigint not null default '-1'::integer, -- the seq of the message, which is its order inside its key; set by a trigger; 0 if there is no key or no such message in the archive
  failed_at       timestamptz not null default clock_timestamp(),
  closed_at       timestamptz,
  closed_as       text,
  held_lane       integer, -- with held_seq the outbox row that holds back the later messages of its key
  held_seq        bigint,
  constraint dead_letter_pkey primary key (id),
  constraint dead_letter_attempts_check check ((attempts >= 0)),
  constraint dead_letter_check check (((origin = 'consumer'::text) = (consumer is not null))),
  constraint dead_letter_check1 check (((closed_at is null) = (closed_as is null))),
  constraint dead_letter_check2 check (((reason <> 'exhausted'::text) or (attempts >= max_attempts))),
  constraint dead_letter_closed_as_check check ((closed_as = any (array['replayed'::text, 'discarded'::text]))),
  constraint dead_letter_origin_check check ((origin = any (array['outbox'::text, 'consumer'::text]))),
  constraint dead_letter_reason_check check ((reason = any (array['exhausted'::text, 'rejected'::text, 'expired'::text, 'buried'::text, 'poison'::text])))
) with (vacuum_truncate=off);

create index dead_letter_closed_cause on dead_letter (fingerprint, closed_as) where (closed_at is not null);
create index dead_letter_correlation on dead_letter (hashtextextended(correlation_id, (0)::bigint));
create index dead_letter_failed on dead_letter (failed_at);
create index dead_letter_key on dead_letter (hashtextextended(key, (0)::bigint)) where (key is not null);
create index dead_letter_message on dead_letter (message_id);
create index dead_letter_open on dead_letter (failed_at) where (closed_at is null);
create index dead_letter_open_cause on dead_letter (fingerprint, key_order, written_at, message_id) include (failed_at) where (closed_at is null);
create index dead_letter_open_key on dead_letter (hashtextextended(key, (0)::bigint), key_order, written_at) where ((closed_at is null) and (key is not null));
create index dead_letter_saga on dead_letter (saga_id) where (saga_id is not null);
create index dead_letter_trace on dead_letter (hashtextextended(substr(traceparent, 4, 32), (0)::bigint));
create trigger dead_letter_key_order before insert on dead_letter for each row execute function dead_letter_find_key_order();

-- Fills in `key_order`. A message that is dead-lettered again keeps its first value: the copy that the archive has by then
-- may have been written by a replay, with a higher seq.
create function dead_letter_find_key_order()
returns trigger
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
set enable_seqscan to 'off'
as $function$
begin
  new.key_order := case when new.key is null then 0 else coalesce(
    (select min(earlier.key_order) from dead_letter as earlier
      where earlier.message_id = new.message_id and earlier.key_order >= 0),
    (select min(message.seq) from message where message.id = new.message_id and message.seq > 0), 0) end;
  return new;
end
$function$;

-- A dead letter that was replayed with other data: who changed it, why, and the SHA-256 of the data before and after.
-- The dead letter keeps the old data and the archive has the new copy, so there is no payload here. The row is deleted
-- with its dead letter.
create table dead_letter_edit (
  dead_letter_id  bigint not null,
  edited_at       timestamptz not null default clock_timestamp(),
  actor           text not null,
  reason          text not null,
  before_hash     text not null,
  after_hash      text not null,
  contract        text, -- name and version of the contract the data was checked against; null if it was not checked
  kept_on         date, -- the day of the message copy with the new data
  constraint dead_letter_edit_pkey primary key (dead_letter_id),
  constraint dead_letter_edit_dead_letter_id_fkey foreign key (dead_letter_id) references dead_letter(id) on delete cascade,
  constraint dead_letter_edit_actor_check check ((actor <> ''::text)),
  constraint dead_letter_edit_after_hash_check check ((after_hash ~ '^[0-9a-f]{64}$'::text)),
  constraint dead_letter_edit_before_hash_check check ((before_hash ~ '^[0-9a-f]{64}$'::text)),
  constraint dead_letter_edit_check check ((before_hash <> after_hash)),
  constraint dead_letter_edit_reason_check check ((reason <> ''::text))
);

-- Makes the outbox row that held back its key due again, in its old position. Returns whether there was such a row.
create function dead_letter_rearm(dead_letter_id bigint)
returns boolean
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
as $function$
begin
  update outbox as held
     set attempts = 0, due_at = clock_timestamp(),
         expires_at = case when held.expires_at > clock_timestamp() then held.expires_at end
    from dead_letter as letter
   where letter.id = dead_letter_id and letter.closed_as = 'replayed'
     and held.lane = letter.held_lane and held.seq = letter.held_seq and held.due_at = 'infinity';
  return found;
end
$function$;

-- Deletes the outbox row of a discarded dead letter, so that later messages of its key are sent. Returns whether there
-- was such a row.
create function dead_letter_free_key(dead_letter_id bigint)
returns boolean
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
as $function$
begin
  delete from outbox as held
   using dead_letter as letter
   where letter.id = dead_letter_id and letter.closed_as = 'discarded'
     and held.lane = letter.held_lane and held.seq = letter.held_seq and held.due_at = 'infinity';
  return found;
end
$function$;

-- Finds the newest copy of the message with this content, or writes one: for today, or for the first later day on which
-- the archive has no copy of it. Content that differs from the dead letter's must match its edit. Such a copy gets seq 0,
-- because it never was in the outbox: only the dead letter's own consumer receives it again. Rows move to younger
-- copies only, so data that is edited back to an earlier text gets a copy of its own. Returns the day of the copy.
create function dead_letter_keep_copy(dead_letter_id bigint, in_lane smallint, content text, in_stream bigint default null::bigint)
returns date
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
set enable_seqscan to 'off'
as $function$
declare
  letter dead_letter;
  kept   date;
  wanted text;
begin
  select * into letter from dead_letter as one
   where one.id = dead_letter_id and one.closed_as = 'replayed';
  if letter.id is null then return null; end if;
  wanted := coalesce(content, letter.data);
  if wanted <> letter.data and not exists (
       select 1 from dead_letter_edit as edit
        where edit.dead_letter_id = letter.id and edit.after_hash = encode(sha256(convert_to(wanted, 'UTF8')), 'hex')) then
    raise exception 'letter % has no edit with these data', letter.id using errcode = 'check_violation';
  end if;
  select message.written_on into kept from message
   where message.id = letter.message_id and message.data = wanted and message.headers = letter.headers
     and (wanted = letter.data or not exists (
           select 1 from message as younger
            where younger.id = message.id and younger.written_on > message.written_on))
   order by message.written_on desc limit 1;
  if kept is null then
    select greatest((clock_timestamp() at time zone 'UTC')::date, max(message.written_on) + 1) into kept
      from message where message.id = letter.message_id;
    insert into message
           (id, written_on, seq, lane, stream, kind, type, schema_version, topic, key, aggregate_type, aggregate_id,
            saga_id, correlation_id, causation_id, traceparent, source, target, priority, max_attempts, holds_on_death,
            headers, data, written_at, expires_at)
    values (letter.message_id, kept, case when wanted = letter.data then nextval('outbox_seq') else 0 end,
            in_lane, in_stream, letter.kind, letter.type, letter.schema_version, letter.topic, letter.key,
            letter.aggregate_type, letter.aggregate_id, letter.saga_id, letter.correlation_id, letter.causation_id,
            letter.traceparent, letter.source, letter.target, letter.priority, letter.max_attempts,
            letter.held_lane is not null, letter.headers, wanted, letter.written_at, null);
  end if;
  update dead_letter_edit as edit set kept_on = kept where edit.dead_letter_id = letter.id;
  return kept;
end
$function$;

-- Points the outbox row that held the key of an edited dead letter to the copy with the new data. The row keeps its
-- position. Returns whether there was such a row.
create function dead_letter_move_row(dead_letter_id bigint, to_day date)
returns boolean
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
as $function$
begin
  update outbox as held
     set written_on = to_day
    from dead_letter as letter, dead_letter_edit as edit
   where letter.id = dead_letter_move_row.dead_letter_id and edit.dead_letter_id = letter.id and letter.closed_as = 'replayed'
     and held.lane = letter.held_lane and held.seq = letter.held_seq and held.due_at = 'infinity'
     and held.written_on < to_day;
  return found;
end
$function$;

-- Dead-letters a delivery that waits for one consumer, by decision of an operator. If a worker is handling it at this
-- moment, that worker can no longer settle it and rolls back. Returns the id of the dead letter, or null if the delivery
-- is gone.
create function dead_letter_bury_delivery(in_lane integer, in_seq bigint, in_message text, cause text, note text)
returns bigint
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
as $function$
declare
  delivery queue;
  group_name text;
  buried bigint;
begin
  delete from queue as row
   where row.lane = in_lane and row.seq = in_seq and row.message_id = in_message
  returning * into delivery;
  if delivery.lane is null then return null; end if;
  select name into group_name from consumer_group where id = in_lane / 256;
  select id into buried from dead_letter
   where message_id = in_message and origin = 'consumer' and consumer = group_name and closed_at is null
   order by id limit 1;
  if buried is not null then return buried; end if;
  insert into dead_letter
         (origin, consumer, message_id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
          correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
          written_at, expires_at, reason, attempts, error_type, error_message, fingerprint)
  select 'consumer', group_name, id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
         correlation_id, causation_id, traceparent, source, target, priority, delivery.max_attempts, headers, data,
         written_at, delivery.expires_at, 'buried', delivery.attempts, 'Buried', note, cause
    from message where id = in_message and written_on = delivery.written_on
  returning dead_letter.id into strict buried;
  return buried;
end
$function$;

-- Dead-letters a message that waits to be sent, by decision of an operator. The lock on the lane keeps settles away. A
-- row that a relay may be sending at this moment is left alone, because the send cannot be undone. If its contract says
-- so, the row stays and holds back its key. Returns the id of the dead letter, or null if nothing was done.
create function dead_letter_bury_waiting(in_lane integer, in_seq bigint, in_message text, cause text, note text)
returns bigint
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
as $function$
declare
  waiting outbox;
  stays boolean;
  buried bigint;
begin
  perform 1 from relay_lane where lane = in_lane for update;
  select * into waiting from outbox as row
   where row.lane = in_lane and row.seq = in_seq and row.message_id = in_message and row.due_at < 'infinity'
     and (row.lease_until is null or row.lease_until < clock_timestamp())
     and (row.due_at > clock_timestamp() + interval '1 second' or not exists (
           select 1 from relay_lane as lane
             join member on member.id = lane.owner and member.lease_until > clock_timestamp()
            where lane.lane = in_lane))
     for update;
  if waiting.lane is null then return null; end if;
  select holds_on_death into strict stays from message
   where id = in_message and written_on = waiting.written_on;
  insert into dead_letter
         (origin, message_id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
          correlation_id, causation_id, traceparent, source, target, priority, max_attempts, headers, data,
          written_at, expires_at, reason, attempts, error_type, error_message, held_lane, held_seq, fingerprint)
  select 'outbox', id, kind, type, schema_version, topic, key, aggregate_type, aggregate_id, saga_id,
         correlation_id, causation_id, traceparent, source, target, priority, waiting.max_attempts, headers, data,
         written_at, waiting.expires_at, 'buried', waiting.attempts, 'Buried', note,
         case when stays then in_lane end, case when stays then in_seq end, cause
    from message where id = in_message and written_on = waiting.written_on
  returning dead_letter.id into strict buried;
  if stays then
    update outbox set due_at = 'infinity', lease_until = null, last_error = note
     where lane = in_lane and seq = in_seq;
  else
    delete from outbox where lane = in_lane and seq = in_seq;
  end if;
  return buried;
end
$function$;

-- ══ 0005_claim_check.sql ═════════════════════════════════════════════════════════════════════════════════════════════
-- Claim check: large payloads and attachments that are kept in a store beside the message, and which message or saga
-- still needs them.

-- The identity of this database, one row. Every blob key starts with it, so that the clean-up of one database never
-- deletes blobs that another one put into a shared store.
create table blob_home (
  id       text not null,
  made_on  date not null,
  constraint blob_home_pkey primary key (id),
  constraint blob_home_id_check check ((id ~ '^[0-9a-f]{12}$'::text))
);

-- Up to which day the clean-up has searched each store for blobs that no row names. A store without a row is searched
-- from the beginning.
create table blob_sweep (
  store     text not null,
  swept_to  date not null,
  constraint blob_sweep_pkey primary key (store)
);

-- One row per blob, in whatever store. It is written before the first byte is stored, so that the clean-up can tell a
-- running upload from an orphan.
create table blob (
  key        text collate "C" not null,
  store      text not null,
  bytes      bigint not null,
  sha256     text, -- null until an upload of unknown content is complete
  stored_at  timestamptz not null default clock_timestamp(),
  doomed_at  timestamptz, -- set: it will be deleted, and no new use may be recorded
  constraint blob_pkey primary key (key),
  constraint blob_bytes_check check ((bytes >= 0)),
  constraint blob_sha256_check check ((sha256 ~ '^[0-9a-f]{64}$'::text))
) with (vacuum_truncate=off);

create index blob_age on blob (stored_at, key) where (doomed_at is null);
create index blob_doomed on blob (key) where (doomed_at is not null);
create index blob_unfinished on blob (stored_at) where ((sha256 is null) and (doomed_at is null));

-- Which message or saga uses a blob. used_by is the id of a message, or `saga:` and the id of an instance. The use ends
-- when that message or instance is deleted.
create table blob_use (
  key      text collate "C" not null,
  used_by  text not null,
  used_at  timestamptz not null default clock_timestamp(),
  constraint blob_use_pkey primary key (key, used_by),
  constraint blob_use_key_fkey foreign key (key) references blob(key) on delete cascade
) with (vacuum_truncate=off);

-- The store that is this database: a blob in pieces small enough to be read one by one. Compressing them is not worth
-- its cost.
create table blob_chunk (
  key        text collate "C" not null,
  n          integer not null, -- position of the piece, from 0
  bytes      bytea not null,
  stored_at  timestamptz not null default clock_timestamp(),
  constraint blob_chunk_pkey primary key (key, n),
  constraint blob_chunk_n_check check ((n >= 0))
);

alter table blob_chunk alter column bytes set storage external;

-- Records the blobs that the input and state of a saga refer to, so that they live as long as the instance. Where these
-- are encrypted, the column `attachments` lists the keys. The coalesce is for the planner: with "doomed_at is null" it
-- might read the whole index blob_age if it takes the table for empty.
create function keep_saga_attachments()
returns trigger
language plpgsql
security definer
set search_path to 'pg_catalog', 'pg_temp'
as $function$
begin
  insert into blob_use (key, used_by)
  select blob.key, 'saga:' || new.id
    from blob
   where coalesce(blob.doomed_at, 'infinity') = 'infinity'
     and blob.key = any(array(
           select match[1] collate "C"
             from regexp_matches(new.input::text || new.state::text,
                    '"key":"([0-9a-f]{12}/[0-9]{4}-[0-9]{2}-[0-9]{2}/[0-9a-f]{32})"', 'g') as match) || new.attachments)
     for share
  on conflict (key, used_by) do nothing;
  return null;
end
$function$;

-- ══ 0006_privacy.sql ═════════════════════════════════════════════════════════════════════════════════════════════════
-- Privacy: one encryption key per data subject. Destroying the key makes every copy of the data encrypted with it
-- unreadable. Subjects appear here only as keyed hashes (43 characters of base64url), and keys only wrapped by a key
-- encryption key (KEK) that is kept elsewhere.

-- A subject may have several keys: two transactions that meet a new subject at once make one each, so that neither
-- waits for the other. A destroyed key leaves its row (wrapped is null), which proves that the data is erased and not
-- merely unreadable.
create table subject_key (
  key_id       text not null,
  subject      text not null,
  wrapped      text, -- the key, encrypted by the KEK
  kek_id       text, -- which KEK
  created_xid  xid8 not null default pg_current_xact_id(), -- compared with the xid of an erasure
  created_at   timestamptz not null default clock_timestamp(),
  erased_at    timestamptz,
  constraint subject_key_pkey primary key (key_id),
  constraint subject_key_check check (((wrapped is null) = (erased_at is not null))),
  constraint subject_key_check1 check (((wrapped is null) = (kek_id is null))),
  constraint subject_key_key_id_check check ((length(key_id) = 22)),
  constraint subject_key_subject_check check ((length(subject) = 43))
) with (vacuum_truncate=off);

create index subject_key_kek on subject_key (kek_id, key_id) where (wrapped is not null);
create index subject_key_subject on subject_key (subject);

-- A fingerprint of the secret that the subject hashes are made with. With another secret no subject would be found, and
-- none erased, so a worker refuses to start with one. The first row counts; there may be more, because its writers do
-- not wait for each other.
create table index_fingerprint (
  id           bigint not null generated always as identity,
  fingerprint  text not null,
  xid          xid8 not null default pg_current_xact_id(),
  constraint index_fingerprint_pkey primary key (id),
  constraint index_fingerprint_fingerprint_check check ((length(fingerprint) = 43))
);

-- Which subject was erased when, why and by whom. A transaction that was open at that moment may have made a key that
-- the erasure did not see. Such keys are destroyed once all those transactions have ended; swept_at is set then.
create table gdpr_erasure_log (
  id         bigint not null generated always as identity,
  subject    text not null,
  erased_at  timestamptz not null default clock_timestamp(),
  reason     text not null,
  actor      text not null,
  key_ids    text[] not null, -- the destroyed keys
  to_scrub   text[] not null, -- destroyed keys; error texts about messages encrypted with them must still be removed
  scrubbed   json not null, -- how much was removed, by table
  proof      text not null, -- keyed hash of the row: shows that it was not changed
  xid        xid8 not null default pg_current_xact_id(),
  swept_at   timestamptz,
  constraint gdpr_erasure_log_pkey primary key (id),
  constraint gdpr_erasure_log_actor_check check ((actor <> ''::text)),
  constraint gdpr_erasure_log_reason_check check ((reason <> ''::text)),
  constraint gdpr_erasure_log_subject_check check ((length(subject) = 43))
);

create index gdpr_erasure_log_subject on gdpr_erasure_log (subject);
create index gdpr_erasure_log_unswept on gdpr_erasure_log (id) where (swept_at is null);

-- While a subject has an open hold, its data cannot be erased.
create table legal_hold (
  id              bigint not null generated always as identity,
  subject         text not null,
  reason          text not null,
  actor           text not null,
  held_at         timestamptz not null default clock_timestamp(),
  released_at     timestamptz,
  released_by     text,
  release_reason  text,
  constraint legal_hold_pkey primary key (id),
  constraint legal_hold_actor_check check ((actor <> ''::text)),
  constraint legal_hold_check check (((released_at is null) = (released_by is null))),
  constraint legal_hold_reason_check check ((reason <> ''::text)),
  constraint legal_hold_subject_check check ((length(subject) = 43))
);

create unique index legal_hold_open on legal_hold (subject) where (released_at is null);

-- Message types with personal fields, by the service whose contract names them. SQL cannot encrypt, so the function
-- publish refuses a type that has fields here. A worker writes the types of its handlers when it starts, and a process
-- adds a type shortly after it published its first message of it.
create table personal_type (
  type           text not null,
  service        text not null,
  fields         text[] not null, -- empty if the contract of the service no longer has personal fields
  registered_at  timestamptz not null default clock_timestamp(),
  constraint personal_type_pkey primary key (type, service)
);

-- ══ 0007_audit.sql ═══════════════════════════════════════════════════════════════════════════════════════════════════
-- Audit: what happened to sagas, what operators did, and the proof that neither log was changed and no message was lost.
-- Both logs are append-only, partitioned by month, and sealed by a chain of hashes. Each row has the id of its
-- transaction. A background job seals the rows that are older than every transaction still running, so writers never
-- wait for each other and no row can appear before a sealed point later.

-- Refuses UPDATE, DELETE and TRUNCATE on the logs.
create function audit_refuse()
returns trigger
language plpgsql
set search_path to 'pg_catalog', 'pg_temp'
as $function$
begin
  raise exception '% is refused: %.% is append-only', tg_op, tg_table_schema, tg_table_name
    using errcode = 'restrict_violation',
          hint = 'Write a new row that corrects the old one. Old months are dropped whole after their retention.';
end
$function$;

-- Every transition of every saga, and every input that was not used, with the reason.
create sequence saga_audit_log_seq as bigint cache 1;

create table saga_audit_log (
  id          bigint not null default nextval('saga_audit_log_seq'::regclass),
  xid         xid8 not null default pg_current_xact_id(),
  timestamp   timestamptz not null default clock_timestamp(),
  saga_id     text not null,
  version     integer not null, -- the version of the instance after the transition
  event_type  text not null,
  step        text,
  old_status  text,
  new_status  text,
  note        text,
  cause       text not null, -- what triggered it: a message, a timer, an operator …
  user_id     text, -- the operator, if one did it
  reason      text, -- the operator's reason; never encrypted, unlike the input
  trace_id    text,
  input       json, -- the input that was applied; encrypted if the saga has a data subject
  metadata    json, -- time, ids and random numbers the decision used, so that it can be replayed
  old_state   json, -- the parts of the state that the transition changed, before it …
  new_state   json, -- … and after it
  constraint saga_audit_log_event_type_check check ((event_type = any (array['state_changed'::text, 'step_executed'::text, 'compensated'::text, 'failed'::text, 'noted'::text, 'ignored'::text])))
) partition by range ("timestamp");

create index saga_audit_log_actor on saga_audit_log (user_id, xid, id) where (user_id is not null);
create index saga_audit_log_order on saga_audit_log (xid, id);
create index saga_audit_log_saga on saga_audit_log (saga_id, id);
create index saga_audit_log_trace on saga_audit_log (trace_id) where (version = 1);
create trigger audit_refuse_change before delete or update on saga_audit_log for each row execute function audit_refuse();
create trigger audit_refuse_truncate before truncate on saga_audit_log for each statement execute function audit_refuse();

-- Every action of an operator and every decision the system made on its own, such as an erasure or a retention change.
create sequence audit_log_seq as bigint cache 1;

create table audit_log (
  id           bigint not null default nextval('audit_log_seq'::regclass),
  xid          xid8 not null default pg_current_xact_id(),
  timestamp    timestamptz not null default clock_timestamp(),
  actor        text not null,
  action       text not null,
  target_kind  text not null, -- what it acted on: message, saga, dead letter …
  target_id    text,
  reason       text,
  trace_id     text,
  before       json,
  after        json,
  outcome      text not null,
  error_code   text,
  constraint audit_log_action_check check ((action <> ''::text)),
  constraint audit_log_actor_check check ((actor <> ''::text)),
  constraint audit_log_check check (((outcome = 'done'::text) = (error_code is null))),
  constraint audit_log_outcome_check check ((outcome = any (array['done'::text, 'refused'::text, 'failed'::text]))),
  constraint audit_log_target_kind_check check ((target_kind <> ''::text))
) partition by range ("timestamp");

create index audit_log_action on audit_log (action, xid, id);
create index audit_log_actor on audit_log (actor, xid, id);
create index audit_log_order on audit_log (xid, id);
create index audit_log_target on audit_log (target_kind, target_id, xid, id);
create index audit_log_trace on audit_log (trace_id) where (trace_id is not null);
create trigger audit_refuse_change before delete or update on audit_log for each row execute function audit_refuse();
create trigger audit_refuse_truncate before truncate on audit_log for each statement execute function audit_refuse();

-- A seal covers the rows of one log and one month whose transaction ids are in its range. All seals are one chain: each
-- hash covers the one before it. `leaves` holds the id (8 bytes) and the SHA-256 (32 bytes) of each row in order, so
-- that verification can name the very row that was changed.
create table audit_seal (
  number         bigint not null,
  chain          integer not null, -- a new chain starts if transaction ids went backwards (restore)
  log            text not null,
  month          date not null,
  xid_from       xid8 not null,
  xid_to         xid8 not null, -- exclusive
  saga_after     bigint not null, -- rows of the chain have ids greater than these two …
  action_after   bigint not null,
  saga_top       bigint not null, -- … and, up to this seal, none greater than these two
  action_top     bigint not null,
  row_count      integer not null,
  leaves         bytea not null,
  hash           bytea not null,
  previous_hash  bytea not null,
  sealed_at      timestamptz not null,
  constraint audit_seal_chain_check check ((chain > 0)),
  constraint audit_seal_check check ((length(leaves) = (row_count * 40))),
  constraint audit_seal_check1 check ((xid_from < xid_to)),
  constraint audit_seal_hash_check check ((length(hash) = 32)),
  constraint audit_seal_log_check check ((log = any (array['saga'::text, 'action'::text]))),
  constraint audit_seal_number_check check ((number > 0)),
  constraint audit_seal_previous_hash_check check ((length(previous_hash) = 32)),
  constraint audit_seal_row_count_check check ((row_count > 0))
) partition by range (sealed_at);

create index audit_seal_number on audit_seal (number);
create trigger audit_refuse_change before delete or update on audit_seal for each row execute function audit_refuse();
create trigger audit_refuse_truncate before truncate on audit_seal for each statement execute function audit_refuse();
alter table audit_seal alter column leaves set storage external;

-- The check that no message was lost: how far it has come, what it found, and for how long things are kept here. One
-- row; one process at a time works on it, under a lease.
create table conservation (
  only_row        boolean not null default true,
  claimed_by      text,
  claimed_until   timestamptz,
  dead_letter_ms  double precision, -- retention of dead letters
  archive_ms      double precision, -- retention of messages
  state           json not null default '{}'::json,
  checked_at      timestamptz,
  constraint conservation_pkey primary key (only_row),
  constraint conservation_archive_ms_check check ((archive_ms > (0)::double precision)),
  constraint conservation_check check (((claimed_by is null) = (claimed_until is null))),
  constraint conservation_dead_letter_ms_check check ((dead_letter_ms > (0)::double precision)),
  constraint conservation_only_row_check check (only_row)
);

-- ══ 0008_views_and_rights.sql ════════════════════════════════════════════════════════════════════════════════════════
-- Views for people, the function that keeps query plans stable, and the end of every right of PUBLIC. The rights of
-- roles are granted by the SQL that `sagabox roles sql` prints.

-- Every published and scheduled message with its status, in the words of the state machine. Status is computed:
--   dead_letter  an open dead letter, or one that was discarded, as long as it is kept
--   sent         no outbox row is left
--   optimistic   the publishing process holds a lease on the row and is sending it
--   failed       sent without success at least once, waiting for its next attempt
--   claimed      due, in a lane that a living relay owns
--   pending      waiting, never tried; also every scheduled message
-- Headers include the four that are filled in when a message is sent; a message without a cause is its own cause.
create view outbox_events as
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
  from message m
  left join lateral (
    select own.* from outbox own where own.lane = m.lane and own.seq = m.seq
    union all
    select resent.* from outbox resent where resent.again and resent.message_id = m.id
    limit 1
  ) o on true
  left join lateral (
    select lane.owner, lane.leased_at
      from relay_lane lane
      join member on member.id = lane.owner and member.lease_until > clock_timestamp()
     where lane.lane = m.lane
  ) l on true
  left join lateral (
    -- The latest decision counts: a message that was replayed after it had been discarded is alive.
    select last.* from (
      select dead.id, dead.attempts, dead.error_message, dead.closed_at, dead.closed_as
        from dead_letter dead
       where dead.message_id = m.id and dead.origin = 'outbox'
       order by dead.closed_at desc nulls first, dead.id desc
       limit 1
    ) last
     where last.closed_as is distinct from 'replayed'
  ) d on true
  left join lateral (
    select receipt.sent_at
      from receipt
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
  from scheduled s;

-- For roles that may look but not read: ids, names, states, times and sizes. Payloads, headers, keys, error texts and
-- names of people are left out; of an error text only its existence is shown. security_barrier keeps functions in a
-- caller's WHERE clause from seeing rows or columns that the view hides.
create view masked_message with (security_barrier) as
select id, kind, type, schema_version, topic, aggregate_type, saga_id, correlation_id, causation_id, traceparent, source,
       target, priority, max_attempts, holds_on_death, lane, seq, octet_length(data) as data_bytes, written_on,
       written_at, expires_at
  from message;

create view masked_outbox_events with (security_barrier) as
select event_id, saga_id, aggregate_type, event_type, status, topic, attempts, max_attempts, priority, available_at,
       expires_at, created_at, claimed_at, published_at, last_error is not null as has_error, correlation_id,
       causation_id, traceparent
  from outbox_events;

create view masked_outbox with (security_barrier) as
select lane, seq, topic, type, message_id, written_on, priority, attempts, max_attempts, due_at, lease_until, expires_at,
       again, last_error is not null as has_error
  from outbox;

create view masked_scheduled with (security_barrier) as
select id, due_at, kind, type, schema_version, topic, aggregate_type, saga_id, correlation_id, causation_id, traceparent,
       source, target, priority, max_attempts, lane, octet_length(data) as data_bytes, written_at, expires_at
  from scheduled;

create view masked_queue with (security_barrier) as
select queue.lane, queue.seq, consumer_group.name as consumer, queue.topic, queue.type, queue.message_id,
       queue.written_on, queue.priority, queue.attempts, queue.max_attempts, queue.due_at, queue.lease_until,
       queue.expires_at, queue.last_error is not null as has_error
  from queue
  left join consumer_group on consumer_group.id = queue.lane / 256;

create view masked_consumer_inbox with (security_barrier) as
select consumer_name, event_id, source_topic, event_type, consumed_at, processing_duration_ms, effect, effect_of, undone_by
  from consumer_inbox;

create view masked_dead_letter with (security_barrier) as
select id, origin, consumer, message_id, kind, type, schema_version, topic, aggregate_type, saga_id, correlation_id,
       causation_id, traceparent, source, target, priority, attempts, max_attempts, reason, error_type,
       octet_length(data) as data_bytes, written_at, expires_at, failed_at, closed_at, closed_as,
       held_lane is not null as holds_key, fingerprint
  from dead_letter;

create view masked_reply with (security_barrier) as
select request_id, outcome, arrived_at from reply;

create view masked_flow_event with (security_barrier) as
select flow, message_id, correlation_id, type, causation_id, source, happened_at, recorded_at, open
  from flow_event;

create view masked_saga_instance with (security_barrier) as
select id, saga_type, definition_version, status, current_step, waits_for, waiting_since, version, retry_count,
       last_error is not null as has_error, trace_id, message_correlation_id, parent_id, parent_step, due_at,
       claimed_by, claimed_until, created_at, updated_at, completed_at
  from saga_instance;

create view masked_saga_input with (security_barrier) as
select id, saga_type, saga_id, arrived_at, expires_at from saga_input;

create view masked_saga_incident with (security_barrier) as
select id, saga_id, steps, opened_at, closed_at from saga_incident;

create view masked_saga_audit_log with (security_barrier) as
select id, timestamp, saga_id, version, event_type, step, old_status, new_status, user_id is not null as by_a_person, trace_id
  from saga_audit_log;

create view masked_audit_log with (security_barrier) as
select id, timestamp, action, target_kind, outcome, error_code, trace_id from audit_log;

create view masked_audit_seal with (security_barrier) as
select number, chain, log, month, row_count, sealed_at from audit_seal;

create view masked_blob with (security_barrier) as
select key, store, bytes, stored_at, doomed_at from blob;

create view masked_subject_key with (security_barrier) as
select kek_id, created_at, erased_at from subject_key;

create view masked_erasure with (security_barrier) as
select id, erased_at, cardinality(key_ids) as keys, swept_at from gdpr_erasure_log;

-- Gives every table whose rows come and go at least 64 pages (512 kB), and returns how many tables had too few: new
-- ones, and those that TRUNCATE, VACUUM FULL or a restored dump has left small.
-- A session plans a prepared statement once and keeps the plan. If a table has no pages at that moment, the planner
-- expects a sequential scan to cost nothing and keeps it while the table fills. Any index is cheaper than 64 pages,
-- with or without rows in them. These tables are created with vacuum_truncate = off, so they keep their pages.
-- The function inserts rows that fill a quarter of a page each and deletes them in the same transaction, so no other
-- transaction ever sees one. It is called below and by the daily maintenance.
create function reserve_pages()
returns integer
language plpgsql
set search_path to 'pg_catalog', 'pg_temp'
as $function$
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
     where relnamespace = '"sagabox"'::regnamespace
       and relname = any(array['outbox', 'queue', 'scheduled', 'published_id', 'consumer_inbox', 'dead_letter', 'saga_instance',
                               'saga_input', 'saga_incident', 'reply', 'flow_event', 'blob', 'blob_use', 'subject_key'])
       and pg_relation_size(oid) < pages * current_setting('block_size')::bigint
     order by relname
  loop
    filled := filled + 1;
    case wanted
      when 'outbox' then
        insert into outbox (lane, seq, stream, topic, type, message_id, written_on, due_at, last_error)
        select 0, -n, -n, mark, mark, mark, 'epoch', 'infinity', padding from generate_series(1, 4 * pages) as n;
        delete from outbox where lane = 0 and seq < 0 and message_id = mark;
      when 'queue' then
        insert into queue (lane, seq, stream, topic, type, message_id, written_on, due_at, last_error)
        select 256, -n, -n, mark, mark, mark, 'epoch', 'infinity', padding from generate_series(1, 4 * pages) as n;
        delete from queue where lane = 256 and seq < 0 and message_id = mark;
      when 'scheduled' then
        insert into scheduled (id, due_at, lane, kind, type, schema_version, topic, correlation_id, traceparent,
               source, priority, max_attempts, data, written_at)
        select mark || n, 'infinity', 0, 'event', mark, 1, '', '', '', '', 5, 1, padding, clock_timestamp()
          from generate_series(1, 4 * pages) as n;
        delete from scheduled where type = mark;
      when 'published_id' then
        insert into published_id (id, written_on)
        select rpad(mark || n, 250, '.'), 'epoch' from generate_series(1, 32 * pages) as n;
        delete from published_id where starts_with(id, mark);
      when 'consumer_inbox' then
        insert into consumer_inbox (consumer_name, event_id, source_topic, event_type, result)
        select mark, n::text, mark, mark, padding from generate_series(1, 4 * pages) as n;
        delete from consumer_inbox where consumer_name = mark;
      when 'dead_letter' then
        insert into dead_letter (id, origin, message_id, kind, type, schema_version, topic, correlation_id,
               traceparent, source, priority, max_attempts, headers, data, written_at, reason, attempts, error_type,
               error_message, closed_at, closed_as)
        overriding system value
        select -n, 'outbox', mark, 'event', '', 1, '', '', '', '', 5, 1, '{}', padding, clock_timestamp(),
               'rejected', 0, '', '', clock_timestamp(), 'discarded'
          from generate_series(1, 4 * pages) as n;
        delete from dead_letter where message_id = mark;
      when 'saga_instance' then
        insert into saga_instance (id, saga_type, definition_version, correlation_id, status, input, state, last_error,
               trace_id, traceparent, message_correlation_id, completed_at)
        select mark || n, mark, 1, mark || n, 'completed', '{}', '{}', padding, '', '', '', clock_timestamp()
          from generate_series(1, 4 * pages) as n;
        delete from saga_instance where saga_type = mark;
      when 'saga_input' then
        insert into saga_input (id, saga_type, saga_id, cause, input, expires_at)
        select mark || n, mark, mark, padding, '{}', 'infinity' from generate_series(1, 4 * pages) as n;
        delete from saga_input where saga_id = mark;
      when 'saga_incident' then
        insert into saga_incident (id, saga_id, steps, error, closed_at, resolution)
        overriding system value
        select -n, mark, '{}', padding, clock_timestamp(), mark from generate_series(1, 4 * pages) as n;
        delete from saga_incident where saga_id = mark;
      when 'reply' then
        insert into reply (request_id, outcome, body)
        select mark || n, 'done', padding from generate_series(1, 4 * pages) as n;
        delete from reply where starts_with(request_id, mark);
      when 'flow_event' then
        insert into flow_event (flow, message_id, correlation_id, type, source, key, happened_at)
        select mark, n::text, mark, mark, mark, padding, clock_timestamp() from generate_series(1, 4 * pages) as n;
        delete from flow_event where flow = mark;
      when 'blob' then
        insert into blob (key, store, bytes, sha256)
        select mark || n, padding, 0, repeat('0', 64) from generate_series(1, 4 * pages) as n;
        delete from blob where starts_with(key, mark);
      when 'blob_use' then
        insert into blob (key, store, bytes, sha256) values (mark, mark, 0, repeat('0', 64));
        insert into blob_use (key, used_by) select mark, rpad(n::text, 250, '.') from generate_series(1, 32 * pages) as n;
        delete from blob_use where key = mark;
        delete from blob where key = mark;
      when 'subject_key' then
        insert into subject_key (key_id, subject, wrapped, kek_id)
        select lpad(n::text, 22, '.'), repeat('.', 43), padding, mark from generate_series(1, 4 * pages) as n;
        delete from subject_key where kek_id = mark;
    end case;
  end loop;
  return filled;
end
$function$;
