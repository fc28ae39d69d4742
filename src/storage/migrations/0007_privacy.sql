-- One key for each person: destroying it makes every copy of what was sealed with it unreadable. Persons appear here as
-- keyed hashes only, and keys only wrapped by others that are kept elsewhere.

-- A person may have several keys: two transactions that meet a new person at once make one each, so that neither waits
-- for the other. A destroyed key leaves its row, which says for certain that what it sealed is erased.
create table {schema}.subject_key (
  key_id      text        not null primary key check (length(key_id) = 22),
  subject     text        not null check (length(subject) = 43),
  wrapped     text,
  kek_id      text,
  created_xid xid8        not null default pg_current_xact_id(),
  created_at  timestamptz not null default clock_timestamp(),
  erased_at   timestamptz,
  check ((wrapped is null) = (erased_at is not null)),
  check ((wrapped is null) = (kek_id is null))
);

create index subject_key_subject on {schema}.subject_key (subject);
create index subject_key_kek on {schema}.subject_key (kek_id, key_id) where wrapped is not null;

-- Which key the hashes of persons were made with. With another one nobody would be found, and nobody erased. The first
-- row counts; there may be more, since those who write it do not wait for each other.
create table {schema}.index_fingerprint (
  id          bigint generated always as identity primary key,
  fingerprint text   not null check (length(fingerprint) = 43),
  xid         xid8   not null default pg_current_xact_id()
);

-- Who was erased when, why and by whom. Keys that older transactions, still open then, made are destroyed once these
-- have ended, and the erasure is swept. Texts about messages sealed with the keys in to_scrub are still to be removed.
create table {schema}.gdpr_erasure_log (
  id        bigint      generated always as identity primary key,
  subject   text        not null check (length(subject) = 43),
  erased_at timestamptz not null default clock_timestamp(),
  reason    text        not null check (reason <> ''),
  actor     text        not null check (actor <> ''),
  key_ids   text[]      not null,
  to_scrub  text[]      not null,
  scrubbed  json        not null,
  proof     text        not null,
  xid       xid8        not null default pg_current_xact_id(),
  swept_at  timestamptz
);

create index gdpr_erasure_log_subject on {schema}.gdpr_erasure_log (subject);
create index gdpr_erasure_log_unswept on {schema}.gdpr_erasure_log (id) where swept_at is null;

-- While a person is held, nothing of them can be erased.
create table {schema}.legal_hold (
  id             bigint      generated always as identity primary key,
  subject        text        not null check (length(subject) = 43),
  reason         text        not null check (reason <> ''),
  actor          text        not null check (actor <> ''),
  held_at        timestamptz not null default clock_timestamp(),
  released_at    timestamptz,
  released_by    text,
  release_reason text,
  check ((released_at is null) = (released_by is null))
);

create unique index legal_hold_open on {schema}.legal_hold (subject) where released_at is null;

-- Whose saga it is, where its definition says that it is about a person. What it holds is sealed then.
alter table {schema}.saga_instance add column subject text;
create index saga_instance_subject on {schema}.saga_instance (subject) where subject is not null;
