-- One row for each running or ended saga. Where it stands follows from its state; the columns beside it are for those
-- who look for it.
create table {schema}.saga_instance (
  id                 text        primary key check (id <> '' and length(id) <= 255),
  type               text        not null check (type <> ''),
  definition_version integer     not null check (definition_version > 0),
  correlation_id     text        not null check (correlation_id <> '' and length(correlation_id) <= 255),
  status             text        not null check (status in
                       ('started', 'running', 'completing', 'compensating', 'compensated', 'completed', 'failed')),
  input              json        not null,
  state              json        not null,
  current_step       text,
  waits_for          text,
  waiting_since      timestamptz,
  version            integer     not null default 0 check (version >= 0),
  last_error         text,
  retry_count        integer     not null default 0 check (retry_count >= 0),
  trace_id           text        not null,
  traceparent        text        not null,
  message_correlation_id text    not null,
  parent_id          text,
  parent_place       text,
  due_at             timestamptz,
  claimed_by         text,
  claimed_until      timestamptz,
  claims             integer     not null default 0 check (claims >= 0),
  started_at         timestamptz not null default clock_timestamp(),
  updated_at         timestamptz not null default clock_timestamp(),
  ended_at           timestamptz,
  check ((parent_id is null) = (parent_place is null)),
  check ((ended_at is not null) = (status in ('completed', 'compensated')))
) with (fillfactor = 70); -- room beside each row: a step that changes no indexed column then writes no index

create unique index saga_instance_correlation on {schema}.saga_instance (correlation_id, type);
create index saga_instance_due on {schema}.saga_instance (due_at) where due_at is not null;
create index saga_instance_open on {schema}.saga_instance (status) where ended_at is null;
create index saga_instance_ended on {schema}.saga_instance (ended_at) where ended_at is not null;
create index saga_instance_message_correlation on {schema}.saga_instance (message_correlation_id);
create index saga_instance_parent on {schema}.saga_instance (parent_id) where parent_id is not null;

-- What is to happen to an instance and could not happen at once: it does not exist yet, nobody here knows its version,
-- a child has ended, a person has decided.
create table {schema}.saga_mail (
  id             text        not null check (id <> ''),
  type           text        not null,
  saga_id        text,
  correlation_id text,
  cause          text        not null,
  input          json        not null,
  arrived_at     timestamptz not null default clock_timestamp(),
  expires_at     timestamptz not null,
  primary key (id, type),
  check ((saga_id is null) <> (correlation_id is null))
);

create index saga_mail_saga on {schema}.saga_mail (saga_id, arrived_at) where saga_id is not null;
create index saga_mail_unclaimed on {schema}.saga_mail (type, correlation_id) where saga_id is null;
create index saga_mail_expires on {schema}.saga_mail (expires_at);

-- Everything that ever happened to an instance, and everything that came and was not used, with the reason.
create table {schema}.saga_audit_log (
  id         bigint      generated always as identity,
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
  trace_id   text,
  input      json,
  drawn      json,
  at         timestamptz not null default clock_timestamp(),
  primary key (saga_id, id)
);

-- What a person has to decide. An instance has one open incident at most, exactly while it is failed.
create table {schema}.saga_incident (
  id         bigint      generated always as identity primary key,
  saga_id    text        not null,
  steps      text[]      not null,
  error      text        not null,
  opened_at  timestamptz not null default clock_timestamp(),
  closed_at  timestamptz,
  resolution text,
  check ((closed_at is null) = (resolution is null))
);

create unique index saga_incident_open on {schema}.saga_incident (saga_id) where closed_at is null;
create index saga_incident_saga on {schema}.saga_incident (saga_id);
