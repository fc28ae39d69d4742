-- Audit: what happened to sagas, what operators did, and the proof that neither log was changed and no message was lost.
-- Both logs are append-only, partitioned by month, and sealed by a chain of hashes. Each row has the id of its
-- transaction. A background job seals the rows that are older than every transaction still running, so writers never
-- wait for each other and no row can appear before a sealed point later.

-- Refuses UPDATE, DELETE and TRUNCATE on the logs.
create function {schema}.audit_refuse() returns trigger language plpgsql
  set search_path = pg_catalog, pg_temp
as $refuse$
begin
  raise exception '% is refused: %.% is append-only', tg_op, tg_table_schema, tg_table_name
    using errcode = 'restrict_violation',
          hint = 'Write a new row that corrects the old one. Old months are dropped whole after their retention.';
end
$refuse$;

-- ── saga_audit_log ──────────────────────────────────────────────────────────────────────────────────
-- Every transition of every saga, and every input that was not used, with the reason.
create sequence {schema}.saga_audit_log_seq as bigint cache 1;

create table {schema}.saga_audit_log (
  id         bigint      not null default nextval('{schema}.saga_audit_log_seq'),
  xid        xid8        not null default pg_current_xact_id(),
  timestamp  timestamptz not null default clock_timestamp(),
  saga_id    text        not null,
  version    integer     not null, -- the version of the instance after the transition
  event_type text        not null check (event_type in
               ('state_changed', 'step_executed', 'compensated', 'failed', 'noted', 'ignored')),
  step       text,
  old_status text,
  new_status text,
  note       text,
  cause      text        not null, -- what triggered it: a message, a timer, an operator …
  user_id    text,                 -- the operator, if one did it
  reason     text,                 -- the operator's reason; never encrypted, unlike the input
  trace_id   text,
  input      json,                 -- the input that was applied; encrypted if the saga has a data subject
  metadata   json,                 -- time, ids and random numbers the decision used, so that it can be replayed
  old_state  json,                 -- the parts of the state that the transition changed, before it …
  new_state  json                  -- … and after it
) partition by range (timestamp);

create index saga_audit_log_saga on {schema}.saga_audit_log (saga_id, id);
create index saga_audit_log_order on {schema}.saga_audit_log (xid, id);
create index saga_audit_log_actor on {schema}.saga_audit_log (user_id, xid, id) where user_id is not null;
create index saga_audit_log_trace on {schema}.saga_audit_log (trace_id) where version = 1; -- one row per saga is enough

-- ── audit_log ───────────────────────────────────────────────────────────────────────────────────────
-- Every action of an operator and every decision the system made on its own, such as an erasure or a retention change.
create sequence {schema}.audit_log_seq as bigint cache 1;

create table {schema}.audit_log (
  id          bigint      not null default nextval('{schema}.audit_log_seq'),
  xid         xid8        not null default pg_current_xact_id(),
  timestamp   timestamptz not null default clock_timestamp(),
  actor       text        not null check (actor <> ''),
  action      text        not null check (action <> ''),
  target_kind text        not null check (target_kind <> ''), -- what it acted on: message, saga, dead letter …
  target_id   text,
  reason      text,
  trace_id    text,
  before      json,
  after       json,
  outcome     text        not null check (outcome in ('done', 'refused', 'failed')),
  error_code  text,
  check ((outcome = 'done') = (error_code is null))
) partition by range (timestamp);

create index audit_log_order on {schema}.audit_log (xid, id);
create index audit_log_target on {schema}.audit_log (target_kind, target_id, xid, id);
create index audit_log_actor on {schema}.audit_log (actor, xid, id);
create index audit_log_action on {schema}.audit_log (action, xid, id);
create index audit_log_trace on {schema}.audit_log (trace_id) where trace_id is not null;

-- ── audit_seal ──────────────────────────────────────────────────────────────────────────────────────
-- A seal covers the rows of one log and one month whose transaction ids are in its range. All seals are one chain: each
-- hash covers the one before it. `leaves` holds the id (8 bytes) and the SHA-256 (32 bytes) of each row in order, so
-- that verification can name the very row that was changed.
create table {schema}.audit_seal (
  number        bigint      not null check (number > 0),
  chain         integer     not null check (chain > 0), -- a new chain starts if transaction ids went backwards (restore)
  log           text        not null check (log in ('saga', 'action')),
  month         date        not null,
  xid_from      xid8        not null,
  xid_to        xid8        not null, -- exclusive
  saga_after    bigint      not null, -- rows of the chain have ids greater than these two …
  action_after  bigint      not null,
  saga_top      bigint      not null, -- … and, up to this seal, none greater than these two
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

-- ── partitions and triggers of the three tables ─────────────────────────────────────────────────────
-- A default partition, this month and the next three; the maintenance adds later ones. Row triggers are inherited by
-- partitions. TRUNCATE triggers are not, so each partition gets its own.
do $months$
declare
  parent text;
  part   text;
  this_month timestamp := date_trunc('month', clock_timestamp() at time zone 'UTC');
  month  timestamp;
begin
  foreach parent in array array['saga_audit_log', 'audit_log', 'audit_seal'] loop
    execute format('create trigger audit_refuse_change before update or delete on {schema}.%I
                    for each row execute function {schema}.audit_refuse()', parent);
    execute format('create trigger audit_refuse_truncate before truncate on {schema}.%I
                    for each statement execute function {schema}.audit_refuse()', parent);
    execute format('create table {schema}.%I partition of {schema}.%I default', parent || '_default', parent);
    execute format('create trigger audit_refuse_truncate before truncate on {schema}.%I
                    for each statement execute function {schema}.audit_refuse()', parent || '_default');
    for month in select generate_series(this_month, this_month + interval '3 months', interval '1 month') loop
      part := parent || to_char(month, '"_"YYYYMM');
      execute format('create table {schema}.%I partition of {schema}.%I for values from (%L) to (%L)', part, parent,
                     to_char(month, 'YYYY-MM-DD"T00:00:00Z"'),
                     to_char(month + interval '1 month', 'YYYY-MM-DD"T00:00:00Z"'));
      execute format('create trigger audit_refuse_truncate before truncate on {schema}.%I
                      for each statement execute function {schema}.audit_refuse()', part);
    end loop;
  end loop;
end
$months$;

-- ── conservation ────────────────────────────────────────────────────────────────────────────────────
-- The check that no message was lost: how far it has come, what it found, and for how long things are kept here. One
-- row; one process at a time works on it, under a lease.
create table {schema}.conservation (
  only_row        boolean          not null primary key default true check (only_row),
  claimed_by      text,
  claimed_until   timestamptz,
  dead_letter_ms  double precision check (dead_letter_ms > 0), -- retention of dead letters
  archive_ms      double precision check (archive_ms > 0),     -- retention of messages
  state           json             not null default '{}',
  checked_at      timestamptz,
  check ((claimed_by is null) = (claimed_until is null))
);

insert into {schema}.conservation (only_row) values (true);
