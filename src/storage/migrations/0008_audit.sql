-- breaking: versions before this one delete lines of the saga log when they forget a saga, which is refused from here on.
-- What happened to sagas and what people decided: kept by the month, append-only, sealed by a chain of hashes.
-- Each row carries the id of its transaction, so that a background job can seal what is older than every transaction
-- that still runs: nobody who writes waits for anybody, and nothing can slip in before a sealed point.

create function {schema}.audit_refuse() returns trigger language plpgsql
  set search_path = pg_catalog, pg_temp
as $refuse$
begin
  raise exception '% is refused: %.% is append-only', tg_op, tg_table_schema, tg_table_name
    using errcode = 'restrict_violation',
          hint = 'Write a new row that corrects the old one. Old months are dropped whole after their retention.';
end
$refuse$;

revoke execute on function {schema}.audit_refuse() from public;

-- ── what happened to sagas ──────────────────────────────────────────────────────────────────────────
alter table {schema}.saga_audit_log rename to saga_audit_log_before;

create sequence {schema}.saga_audit_log_seq as bigint cache 1;

create table {schema}.saga_audit_log (
  id         bigint      not null default nextval('{schema}.saga_audit_log_seq'),
  xid        xid8        not null default pg_current_xact_id(),
  at         timestamptz not null default clock_timestamp(),
  saga_id    text        not null,
  version    integer     not null,
  event_type text        not null check (event_type in
               ('state_changed', 'step_executed', 'compensated', 'failed', 'noted', 'ignored')),
  step       text,
  old_status text,
  new_status text,
  note       text,
  cause      text        not null,
  user_id    text,
  reason     text, -- why a person did it; in clear, unlike the input, which may be sealed under somebody's key
  trace_id   text,
  input      json,
  drawn      json,
  changes    json -- what the transition changed in the state: before and after
) partition by range (at);

create index saga_audit_log_saga on {schema}.saga_audit_log (saga_id, id);
create index saga_audit_log_order on {schema}.saga_audit_log (xid, id);
create index saga_audit_log_actor on {schema}.saga_audit_log (user_id, xid, id) where user_id is not null;
create index saga_audit_log_trace on {schema}.saga_audit_log (trace_id) where version = 1; -- one entry leads to a saga

-- ── what people and the house itself decided ────────────────────────────────────────────────────────
create sequence {schema}.audit_log_seq as bigint cache 1;

create table {schema}.audit_log (
  id          bigint      not null default nextval('{schema}.audit_log_seq'),
  xid         xid8        not null default pg_current_xact_id(),
  at          timestamptz not null default clock_timestamp(),
  actor       text        not null check (actor <> ''),
  action      text        not null check (action <> ''),
  target_kind text        not null check (target_kind <> ''),
  target_id   text,
  reason      text,
  trace_id    text,
  before      json,
  after       json,
  outcome     text        not null check (outcome in ('done', 'refused', 'failed')),
  error_code  text,
  check ((outcome = 'done') = (error_code is null))
) partition by range (at);

create index audit_log_order on {schema}.audit_log (xid, id);
create index audit_log_target on {schema}.audit_log (target_kind, target_id, xid, id);
create index audit_log_actor on {schema}.audit_log (actor, xid, id);
create index audit_log_action on {schema}.audit_log (action, xid, id);
create index audit_log_trace on {schema}.audit_log (trace_id) where trace_id is not null;

-- ── the chain ───────────────────────────────────────────────────────────────────────────────────────
-- A seal covers the rows of one log and one month whose transaction ids lie in its range. All seals together are one
-- chain: each hash covers the one before it. `leaves` is the id and the SHA-256 of each row, in order, so that the
-- very row can be named that was changed.
create table {schema}.audit_seal (
  number        bigint      not null check (number > 0),
  chain         integer     not null check (chain > 0), -- a new one begins when transaction ids went backwards
  log           text        not null check (log in ('saga', 'action')),
  month         date        not null,
  xid_from      xid8        not null,
  xid_to        xid8        not null, -- not included
  saga_after    bigint      not null, -- rows of the chain have greater ids than these …
  action_after  bigint      not null,
  saga_top      bigint      not null, -- … and up to here none greater than these
  action_top    bigint      not null,
  row_count     integer     not null check (row_count > 0),
  leaves        bytea       not null check (length(leaves) = row_count * 40),
  hash          bytea       not null check (length(hash) = 32),
  previous_hash bytea       not null check (length(previous_hash) = 32),
  sealed_at     timestamptz not null,
  check (xid_from < xid_to)
) partition by range (sealed_at);

alter table {schema}.audit_seal alter column leaves set storage external; -- hashes cannot be compressed

create index audit_seal_number on {schema}.audit_seal (number);

-- ── months, and what was there before ───────────────────────────────────────────────────────────────
do $months$
declare
  parent text;
  part   text;
  month  timestamp;
  oldest timestamptz := (select min(at) from {schema}.saga_audit_log_before);
  now_   timestamp := date_trunc('month', clock_timestamp() at time zone 'UTC');
begin
  foreach parent in array array['saga_audit_log', 'audit_log', 'audit_seal'] loop
    execute format('create trigger audit_refuse_change before update or delete on {schema}.%I
                    for each row execute function {schema}.audit_refuse()', parent);
    execute format('create trigger audit_refuse_truncate before truncate on {schema}.%I
                    for each statement execute function {schema}.audit_refuse()', parent);
    month := case when parent = 'saga_audit_log'
                  then least(now_, date_trunc('month', oldest at time zone 'UTC')) else now_ end;
    execute format('create table {schema}.%I partition of {schema}.%I default', parent || '_default', parent);
    execute format('create trigger audit_refuse_truncate before truncate on {schema}.%I
                    for each statement execute function {schema}.audit_refuse()', parent || '_default');
    while month <= now_ + interval '3 months' loop
      part := parent || to_char(month, '"_"YYYYMM');
      execute format('create table {schema}.%I partition of {schema}.%I for values from (%L) to (%L)', part, parent,
                     to_char(month, 'YYYY-MM-DD"T00:00:00Z"'),
                     to_char(month + interval '1 month', 'YYYY-MM-DD"T00:00:00Z"'));
      execute format('create trigger audit_refuse_truncate before truncate on {schema}.%I
                      for each statement execute function {schema}.audit_refuse()', part);
      month := month + interval '1 month';
    end loop;
  end loop;
end
$months$;

-- Nobody knows any more which transactions wrote these. They are spread over ids that no transaction of a user ever
-- had, so that they come first in the chain and are sealed in batches.
insert into {schema}.saga_audit_log
       (id, xid, at, saga_id, version, event_type, step, old_status, new_status, note, cause, user_id, reason,
        trace_id, input, drawn)
select id, (3 + (row_number() over (order by id) - 1) * 500 / count(*) over ())::text::xid8, at, saga_id, version,
       event_type, step, old_status, new_status, note, cause, user_id, input #>> '{by,reason}', trace_id, input,
       drawn
  from {schema}.saga_audit_log_before
 order by id;

select setval('{schema}.saga_audit_log_seq', coalesce(max(id), 0) + 1, false) from {schema}.saga_audit_log_before;

drop table {schema}.saga_audit_log_before;
