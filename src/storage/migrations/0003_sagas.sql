-- Sagas: running and finished instances, the input that waits for them, their definitions, and incidents that need a
-- decision. The log of their transitions is in 0007_audit.sql.

-- ── saga_definition ─────────────────────────────────────────────────────────────────────────────────
-- The structure of each version of each saga: names, kinds and order of its steps. A worker registers a version when it
-- first starts with it, and compares it at each later start. If the structure has changed while instances of the
-- version are unfinished, the worker refuses to start or warns.
create table {schema}.saga_definition (
  saga_type     text        not null check (saga_type <> ''),
  version       integer     not null check (version > 0),
  hash          text        not null,
  structure     json        not null,
  registered_at timestamptz not null default clock_timestamp(),
  primary key (saga_type, version)
);

-- ── saga_instance ───────────────────────────────────────────────────────────────────────────────────
-- One row per running or finished saga. `state` is the whole truth; status, current_step, waits_for and last_error are
-- derived from it, so that instances can be found.
-- The fill factor leaves room in each page: an update that changes no indexed column then writes no index entry.
create table {schema}.saga_instance (
  id                 text        primary key check (id <> '' and length(id) <= 255),
  saga_type          text        not null check (saga_type <> ''),
  definition_version integer     not null check (definition_version > 0),
  correlation_id     text        not null check (correlation_id <> '' and length(correlation_id) <= 255), -- its key
  status             text        not null check (status in
                       ('started', 'running', 'completing', 'compensating', 'compensated', 'completed', 'failed')),
  input              json        not null,
  state              json        not null,
  current_step       text,
  waits_for          text,        -- what it waits for, for people: a step, a message, a time
  waiting_since      timestamptz,
  version            integer     not null default 0 check (version >= 0), -- +1 per transition: optimistic concurrency
  last_error         text,
  retry_count        integer     not null default 0 check (retry_count >= 0),
  trace_id           text        not null,
  traceparent        text        not null, -- W3C trace context of the message that started it
  message_correlation_id text    not null, -- the correlation id of the messages it sends
  parent_id          text,                 -- of a child saga: the instance that started it …
  parent_step       text,                 -- … and the step that did
  due_at             timestamptz,          -- when it must run again; null while it waits for input only
  claimed_by         text,                 -- the worker that runs it …
  claimed_until      timestamptz,          -- … and the end of its lease
  claims             integer     not null default 0 check (claims >= 0), -- claims since its last transition: a high
                                           -- number means that its step keeps crashing workers
  created_at         timestamptz not null default clock_timestamp(),
  updated_at         timestamptz not null default clock_timestamp(),
  completed_at       timestamptz,
  attachments        text[],               -- blobs it refers to, if its input and state are encrypted
  subject            text,                 -- keyed hash of its data subject; its input and state are encrypted then
  check ((parent_id is null) = (parent_step is null)),
  check ((completed_at is not null) = (status in ('completed', 'compensated')))
) with (fillfactor = 70, vacuum_truncate = off);

create unique index saga_instance_correlation on {schema}.saga_instance (correlation_id, saga_type);
create index saga_instance_due on {schema}.saga_instance (due_at) where due_at is not null;
create index saga_instance_open on {schema}.saga_instance (status) where completed_at is null;
create index saga_instance_completed on {schema}.saga_instance (completed_at) where completed_at is not null;
create index saga_instance_message_correlation on {schema}.saga_instance (message_correlation_id);
create index saga_instance_parent on {schema}.saga_instance (parent_id) where parent_id is not null;
create index saga_instance_subject on {schema}.saga_instance (subject) where subject is not null;

-- ── saga_input ───────────────────────────────────────────────────────────────────────────────────────
-- Pending input: input for an instance that could not be applied at once. The instance does not exist yet
-- (correlation_id is set), no worker here knows its version, a child has ended, or an operator has acted (saga_id is
-- set). Exactly one of saga_id and correlation_id is set.
create table {schema}.saga_input (
  id             text        not null check (id <> ''), -- the id of the message, or one made for the input
  saga_type      text        not null,
  saga_id        text,
  correlation_id text,
  cause          text        not null,
  input          json        not null,
  arrived_at     timestamptz not null default clock_timestamp(),
  expires_at     timestamptz not null,
  primary key (id, saga_type),
  check ((saga_id is null) <> (correlation_id is null))
) with (vacuum_truncate = off);

create index saga_input_saga on {schema}.saga_input (saga_id, arrived_at) where saga_id is not null;
create index saga_input_unclaimed on {schema}.saga_input (saga_type, correlation_id) where saga_id is null;
create index saga_input_expires on {schema}.saga_input (expires_at);

-- ── saga_incident ───────────────────────────────────────────────────────────────────────────────────
-- Failures that an operator has to decide about. A failed instance has exactly one open incident, any other has none.
create table {schema}.saga_incident (
  id         bigint      generated always as identity primary key,
  saga_id    text        not null,
  steps      text[]      not null, -- the steps that failed
  error      text        not null,
  opened_at  timestamptz not null default clock_timestamp(),
  closed_at  timestamptz,
  resolution text,
  check ((closed_at is null) = (resolution is null))
) with (vacuum_truncate = off);

create unique index saga_incident_open on {schema}.saga_incident (saga_id) where closed_at is null;
create index saga_incident_saga on {schema}.saga_incident (saga_id);
