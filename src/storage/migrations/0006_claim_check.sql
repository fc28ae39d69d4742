-- Large payloads and attachments: what lies in which store, who needs it, and the store that is this database itself.

-- Which database this is. It begins every key, so that nobody ever sweeps away what others put into a shared store.
create table {schema}.blob_home (
  id       text not null primary key check (id ~ '^[0-9a-f]{12}$'),
  made_on  date not null
);
insert into {schema}.blob_home (id, made_on)
select left(replace(gen_random_uuid()::text, '-', ''), 12), (clock_timestamp() at time zone 'utc')::date;

-- Up to which day each store was looked through. One that is not here yet is looked through from the beginning.
create table {schema}.blob_sweep (
  store     text not null primary key,
  swept_to  date not null
);

create table {schema}.blob (
  key        text        collate "C" not null primary key,
  store      text        not null,
  bytes      bigint      not null check (bytes >= 0),
  sha256     text        not null check (sha256 ~ '^[0-9a-f]{64}$'),
  stored_at  timestamptz not null default clock_timestamp(),
  doomed_at  timestamptz -- from here on nobody may begin to need it
);
create index blob_age on {schema}.blob (stored_at, key) where doomed_at is null;
create index blob_doomed on {schema}.blob (key) where doomed_at is not null;

-- used_by: the id of a message, or `saga:` and that of an instance. Whether it still needs it shows where it lives.
create table {schema}.blob_use (
  key      text        collate "C" not null references {schema}.blob on delete cascade,
  used_by  text        not null,
  used_at  timestamptz not null default clock_timestamp(),
  primary key (key, used_by)
);

-- The store in this database. Pieces are small enough to be read one by one; they are not worth compressing.
create table {schema}.blob_chunk (
  key        text        collate "C" not null,
  n          integer     not null check (n >= 0),
  bytes      bytea       not null,
  stored_at  timestamptz not null default clock_timestamp(),
  primary key (key, n)
);
alter table {schema}.blob_chunk alter column bytes set storage external;

-- What a saga holds, it needs until it is forgotten. Where that is sealed, whoever seals it says what is in it.
alter table {schema}.saga_instance add column attachments text[];

create function {schema}.keep_saga_attachments() returns trigger
language plpgsql set search_path = pg_catalog as $$
begin
  insert into {schema}.blob_use (key, used_by)
  select blob.key, 'saga:' || new.id
    from {schema}.blob
   where blob.doomed_at is null
     and blob.key = any(array(
           select match[1] collate "C"
             from regexp_matches(new.input::text || new.state::text,
                    '"key":"([0-9a-f]{12}/[0-9]{4}-[0-9]{2}-[0-9]{2}/[0-9a-f]{32})"', 'g') as match) || new.attachments)
     for share
  on conflict (key, used_by) do nothing;
  return null;
end
$$;
revoke all on function {schema}.keep_saga_attachments() from public;

create trigger saga_instance_attachments after insert or update of input, state on {schema}.saga_instance
  for each row when (strpos(new.state::text, '"$attachment"') > 0 or strpos(new.input::text, '"$attachment"') > 0
                     or new.attachments is not null)
  execute function {schema}.keep_saga_attachments();
