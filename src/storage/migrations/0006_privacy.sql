-- Privacy: one encryption key per data subject. Destroying the key makes every copy of the data encrypted with it
-- unreadable. Subjects appear here only as keyed hashes (43 characters of base64url), and keys only wrapped by a key
-- encryption key (KEK) that is kept elsewhere.

-- ── subject_key ─────────────────────────────────────────────────────────────────────────────────────
-- A subject may have several keys: two transactions that meet a new subject at once make one each, so that neither
-- waits for the other. A destroyed key leaves its row (wrapped is null), which proves that the data is erased and not
-- merely unreadable.
create table {schema}.subject_key (
  key_id      text        not null primary key check (length(key_id) = 22),
  subject     text        not null check (length(subject) = 43),
  wrapped     text,       -- the key, encrypted by the KEK
  kek_id      text,       -- which KEK
  created_xid xid8        not null default pg_current_xact_id(), -- compared with the xid of an erasure
  created_at  timestamptz not null default clock_timestamp(),
  erased_at   timestamptz,
  check ((wrapped is null) = (erased_at is not null)),
  check ((wrapped is null) = (kek_id is null))
) with (vacuum_truncate = off);

create index subject_key_subject on {schema}.subject_key (subject);
create index subject_key_kek on {schema}.subject_key (kek_id, key_id) where wrapped is not null;

-- ── index_fingerprint ───────────────────────────────────────────────────────────────────────────────
-- A fingerprint of the secret that the subject hashes are made with. With another secret no subject would be found, and
-- none erased, so a worker refuses to start with one. The first row counts; there may be more, because its writers do
-- not wait for each other.
create table {schema}.index_fingerprint (
  id          bigint generated always as identity primary key,
  fingerprint text   not null check (length(fingerprint) = 43),
  xid         xid8   not null default pg_current_xact_id()
);

-- ── gdpr_erasure_log ────────────────────────────────────────────────────────────────────────────────
-- Which subject was erased when, why and by whom. A transaction that was open at that moment may have made a key that
-- the erasure did not see. Such keys are destroyed once all those transactions have ended; swept_at is set then.
create table {schema}.gdpr_erasure_log (
  id        bigint      generated always as identity primary key,
  subject   text        not null check (length(subject) = 43),
  erased_at timestamptz not null default clock_timestamp(),
  reason    text        not null check (reason <> ''),
  actor     text        not null check (actor <> ''),
  key_ids   text[]      not null, -- the destroyed keys
  to_scrub  text[]      not null, -- destroyed keys; error texts about messages encrypted with them must still be removed
  scrubbed  json        not null, -- how much was removed, by table
  proof     text        not null, -- keyed hash of the row: shows that it was not changed
  xid       xid8        not null default pg_current_xact_id(),
  swept_at  timestamptz
);

create index gdpr_erasure_log_subject on {schema}.gdpr_erasure_log (subject);
create index gdpr_erasure_log_unswept on {schema}.gdpr_erasure_log (id) where swept_at is null;

-- ── legal_hold ──────────────────────────────────────────────────────────────────────────────────────
-- While a subject has an open hold, its data cannot be erased.
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

-- ── personal_type ───────────────────────────────────────────────────────────────────────────────────
-- Message types with personal fields, by the service whose contract names them. SQL cannot encrypt, so the function
-- publish refuses a type that has fields here. A worker writes the types of its handlers when it starts, and a process
-- adds a type shortly after it published its first message of it.
create table {schema}.personal_type (
  type          text        not null,
  service       text        not null,
  fields        text[]      not null, -- empty if the contract of the service no longer has personal fields
  registered_at timestamptz not null default clock_timestamp(),
  primary key (type, service)
);
