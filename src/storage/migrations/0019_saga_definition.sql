-- The structure of each version of each saga: names, kinds and order of its steps. A worker writes it when it starts with a
-- version that is not here yet, and compares it afterwards. If it changes while instances of the version are unfinished,
-- the worker does not start, or warns.
create table {schema}.saga_definition (
  type          text        not null check (type <> ''),
  version       integer     not null check (version > 0),
  hash          text        not null,
  structure     json        not null,
  registered_at timestamptz not null default clock_timestamp(),
  primary key (type, version)
);

revoke all on {schema}.saga_definition from public;
