import { defineStatement } from "../storage/index.ts";

/** Statements of the ledger. `schema` is already quoted. */
export function ledgerStatements(schema: string) {
  return {
    home: defineStatement("sagabox.blob.home", `select id from ${schema}.blob_home`),
    // Runs in the message's transaction, before the bytes are stored. A scheduled message uses the blob from its due time on.
    note: defineStatement(
      "sagabox.blob.note",
      `with stored as (
         insert into ${schema}.blob (key, store, bytes, sha256)
         values ($1::text, $2::text, $3::bigint, $4::text)
         returning key
       )
       insert into ${schema}.blob_use (key, used_by, used_at)
       select key, $5::text, ${dueAt("$6", "$7")} from stored`,
    ),
    // Runs before an upload whose length and hash are still unknown.
    reserve: defineStatement(
      "sagabox.blob.reserve",
      `insert into ${schema}.blob (key, store, bytes, sha256) values ($1::text, $2::text, 0, null)`,
    ),
    // touch and complete find no row once the collector has doomed the upload. A planner that believes the table to be
    // empty would scan the whole index blob_age for "doomed_at is null"; coalesce() prevents that.
    touch: defineStatement(
      "sagabox.blob.touch",
      `update ${schema}.blob set stored_at = clock_timestamp()
        where key = $1::text and coalesce(doomed_at, 'infinity') = 'infinity'`,
    ),
    complete: defineStatement(
      "sagabox.blob.complete",
      `update ${schema}.blob set bytes = $2::bigint, sha256 = $3::text, stored_at = clock_timestamp()
        where key = $1::text and coalesce(doomed_at, 'infinity') = 'infinity'`,
    ),
    // The lock keeps a collector from dooming the blob before this transaction ends. coalesce() as above.
    use: defineStatement(
      "sagabox.blob.use",
      `with known as materialized (
         select key from ${schema}.blob
          where key = any($1::text::text[]) and coalesce(doomed_at, 'infinity') = 'infinity'
            for share
       ), used as (
         insert into ${schema}.blob_use (key, used_by, used_at)
         select key, $2::text, ${dueAt("$3", "$4")} from known
         on conflict (key, used_by) do nothing
       )
       select key from known`,
    ),
  };
}

/** SQL for the due time of a message, from a delay or a time since the epoch, both in ms. At most one is not null. */
function dueAt(delay: string, at: string): string {
  return `greatest(clock_timestamp(), clock_timestamp() + ${delay}::double precision * interval '1 ms',
                   to_timestamp(${at}::double precision / 1000))`;
}

/** Statements of the store in this database. */
export function chunkStatements(schema: string) {
  return {
    write: defineStatement(
      "sagabox.blob.write",
      `insert into ${schema}.blob_chunk (key, n, bytes)
       values ($1::text, $2::integer, decode($3::text, 'base64'))`,
    ),
    read: defineStatement(
      "sagabox.blob.read",
      `select encode(bytes, 'base64') as bytes from ${schema}.blob_chunk
        where key = $1::text and n >= $2::integer
        order by n
        limit $3::integer`,
    ),
    remove: defineStatement(
      "sagabox.blob.remove",
      `delete from ${schema}.blob_chunk where key = any($1::text::text[])`,
    ),
    // The age of a blob is that of its last chunk: an upload in progress is not old.
    list: defineStatement(
      "sagabox.blob.list",
      `select key, extract(epoch from max(stored_at))::double precision * 1000 as stored_ms
         from ${schema}.blob_chunk
        where key > $1::text collate "C" and key < $2::text collate "C"
        group by key
        order by key
        limit $3::integer`,
    ),
  };
}

/** Statements that find and delete unused blobs. */
export function collectorStatements(schema: string) {
  return {
    // Skips blobs that a transaction is about to use, because that transaction has locked them. Whether a candidate is
    // used is checked by a second statement, whose snapshot sees the commits of transactions that held locks until now.
    candidates: defineStatement(
      "sagabox.blob.candidates",
      `select key, to_char(stored_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as stored from ${schema}.blob
        where doomed_at is null
          and stored_at < clock_timestamp() - $1::double precision * interval '1 ms'
          and (stored_at, key) > ($2::text::timestamptz, $3::text collate "C")
        order by stored_at, key
        limit $4::integer
          for update skip locked`,
    ),
    // Scalar subqueries run per row through their indexes. EXISTS could be planned as a hash over the whole archive.
    doom: defineStatement(
      "sagabox.blob.doom",
      `update ${schema}.blob
          set doomed_at = clock_timestamp()
        where key = any($1::text::text[])
          and doomed_at is null
          and not exists (
            select 1 from ${schema}.blob_use as used
             where used.key = blob.key
               and (used.used_at > clock_timestamp() - $2::double precision * interval '1 ms'
                    or coalesce(
                      (select true from ${schema}.message where message.id = used.used_by limit 1),
                      (select true from ${schema}.scheduled where scheduled.id = used.used_by),
                      (select true from ${schema}.dead_letter as letter
                        where letter.message_id = used.used_by and letter.closed_at is null limit 1),
                      (select true from ${schema}.saga_instance as instance
                        where instance.id = substr(used.used_by, 6) and starts_with(used.used_by, 'saga:')),
                      false)))
       returning key`,
    ),
    // Dooms uploads without progress during the grace period. If the process is still alive, its next touch finds no row.
    doomUnfinished: defineStatement(
      "sagabox.blob.doom_unfinished",
      `update ${schema}.blob
          set doomed_at = clock_timestamp()
        where sha256 is null and doomed_at is null
          and stored_at < clock_timestamp() - $1::double precision * interval '1 ms'`,
    ),
    doomed: defineStatement(
      "sagabox.blob.doomed",
      `select key, store, bytes::text from ${schema}.blob
        where doomed_at is not null and key > $1::text collate "C"
        order by key
        limit $2::integer`,
    ),
    forget: defineStatement(
      "sagabox.blob.forget",
      `delete from ${schema}.blob where key = any($1::text::text[]) and doomed_at is not null`,
    ),
    // Runs after a failed upload. A role without delete rights leaves the row to the collector.
    discard: defineStatement(
      "sagabox.blob.discard",
      `delete from ${schema}.blob where key = $1::text and doomed_at is null`,
    ),
    // Runs in a transaction that is rolled back. It waits for keys that an open transaction has inserted.
    probe: defineStatement(
      "sagabox.blob.probe",
      `insert into ${schema}.blob (key, store, bytes)
       select key, '', 0 from unnest($1::text::text[]) as listed (key)
       on conflict (key) do nothing
       returning key`,
    ),
    // Returns the listed keys that have no committed row.
    unknown: defineStatement(
      "sagabox.blob.unknown",
      `select listed.key from unnest($1::text::text[]) as listed (key)
        where (select true from ${schema}.blob where blob.key = listed.key collate "C") is null`,
    ),
    sweepFrom: defineStatement(
      "sagabox.blob.sweep_from",
      `select id, (coalesce(swept_to, made_on) - $1::integer)::text as day,
              to_char((clock_timestamp() - $2::double precision * interval '1 ms') at time zone 'utc', 'YYYY-MM-DD') as last_day,
              extract(epoch from clock_timestamp())::double precision * 1000 as now_ms
         from ${schema}.blob_home left join ${schema}.blob_sweep on store = $3::text`,
    ),
    swept: defineStatement(
      "sagabox.blob.swept",
      `insert into ${schema}.blob_sweep as known (store, swept_to) values ($1::text, $2::text::date)
       on conflict (store) do update set swept_to = greatest(known.swept_to, excluded.swept_to)`,
    ),
  };
}
