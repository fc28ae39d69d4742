-- Claim check: large payloads and attachments that are kept in a store beside the message, and which message or saga
-- still needs them.

-- ── blob ────────────────────────────────────────────────────────────────────────────────────────────
-- The identity of this database, one row. Every blob key starts with it, so that the clean-up of one database never
-- deletes blobs that another one put into a shared store.
create table {schema}.blob_home (
  id       text not null primary key check (id ~ '^[0-9a-f]{12}$'),
  made_on  date not null
);

insert into {schema}.blob_home (id, made_on)
select left(replace(gen_random_uuid()::text, '-', ''), 12), (clock_timestamp() at time zone 'utc')::date;

-- Up to which day the clean-up has searched each store for blobs that no row names. A store without a row is searched
-- from the beginning.
create table {schema}.blob_sweep (
  store     text not null primary key,
  swept_to  date not null
);

-- One row per blob, in whatever store. It is written before the first byte is stored, so that the clean-up can tell a
-- running upload from an orphan.
create table {schema}.blob (
  key        text        collate "C" not null primary key,
  store      text        not null,
  bytes      bigint      not null check (bytes >= 0),
  sha256     text        check (sha256 ~ '^[0-9a-f]{64}$'), -- null until an upload of unknown content is complete
  stored_at  timestamptz not null default clock_timestamp(),
  doomed_at  timestamptz -- set: it will be deleted, and no new use may be recorded
) with (vacuum_truncate = off);

create index blob_age on {schema}.blob (stored_at, key) where doomed_at is null;
create index blob_doomed on {schema}.blob (key) where doomed_at is not null;
create index blob_unfinished on {schema}.blob (stored_at) where sha256 is null and doomed_at is null;

-- Which message or saga uses a blob. used_by is the id of a message, or `saga:` and the id of an instance. The use ends
-- when that message or instance is deleted.
create table {schema}.blob_use (
  key      text        collate "C" not null references {schema}.blob on delete cascade,
  used_by  text        not null,
  used_at  timestamptz not null default clock_timestamp(),
  primary key (key, used_by)
) with (vacuum_truncate = off);

-- The store that is this database: a blob in pieces small enough to be read one by one. Compressing them is not worth
-- its cost.
create table {schema}.blob_chunk (
  key        text        collate "C" not null,
  n          integer     not null check (n >= 0), -- position of the piece, from 0
  bytes      bytea       not null,
  stored_at  timestamptz not null default clock_timestamp(),
  primary key (key, n)
);
alter table {schema}.blob_chunk alter column bytes set storage external; -- PostgreSQL 14 has no syntax for it above

-- ── attachments of sagas ────────────────────────────────────────────────────────────────────────────
-- Records the blobs that the input and state of a saga refer to, so that they live as long as the instance. Where these
-- are encrypted, the column `attachments` lists the keys. The coalesce is for the planner: with "doomed_at is null" it
-- might read the whole index blob_age if it takes the table for empty.
create function {schema}.keep_saga_attachments() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into {schema}.blob_use (key, used_by)
  select blob.key, 'saga:' || new.id
    from {schema}.blob
   where coalesce(blob.doomed_at, 'infinity') = 'infinity'
     and blob.key = any(array(
           select match[1] collate "C"
             from regexp_matches(new.input::text || new.state::text,
                    '"key":"([0-9a-f]{12}/[0-9]{4}-[0-9]{2}-[0-9]{2}/[0-9a-f]{32})"', 'g') as match) || new.attachments)
     for share
  on conflict (key, used_by) do nothing;
  return null;
end
$$;

create trigger saga_instance_attachments after insert or update of input, state on {schema}.saga_instance
  for each row when (strpos(new.state::text, '"$attachment"') > 0 or strpos(new.input::text, '"$attachment"') > 0
                     or new.attachments is not null)
  execute function {schema}.keep_saga_attachments();
