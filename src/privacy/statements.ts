import { defineStatement } from "../storage/index.ts";
import { FORMAT } from "./encrypted-format.ts";

// Finds rows encrypted with one of the keys $1, by header or by the key ids of values and attachments in the data. Most
// replies have no such header.
export const mentions = `exists (select from unnest($1::text::text[]) as k
                where strpos(headers, k) > 0 or strpos(data, '.' || k || '.') > 0 or strpos(data, '"keyId":"' || k || '"') > 0)`;

// Matches exactly what replaces an encrypted value, because user data may look similar.
const encryptedForm = `'\\{"\\$sealed":"${FORMAT}\\.[A-Za-z0-9_-]{22}\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+"\\}'`;

// Error texts of failed attempts may quote personal data. The message exists as long as its row.
const scrubErrors = (schema: string, table: "outbox" | "queue"): string =>
  `update ${schema}.${table} as row set last_error = '[erased]'
    where row.last_error <> '[erased]'
      and exists (select from ${schema}.message
                   where message.id = row.message_id and message.written_on = row.written_on and ${mentions})`;

/** Statements that remove unencrypted texts about messages encrypted with the given keys. `schema` must be quoted. */
export function scrubStatements(schema: string) {
  return {
    scrubDeadLetters: defineStatement(
      "sagabox.privacy.scrub_dead_letters",
      `update ${schema}.dead_letter set error_message = '[erased]', stack_trace = null
        where (error_message <> '[erased]' or stack_trace is not null) and ${mentions}`,
    ),
    scrubOutbox: defineStatement("sagabox.privacy.scrub_outbox", scrubErrors(schema, "outbox")),
    scrubQueue: defineStatement("sagabox.privacy.scrub_queue", scrubErrors(schema, "queue")),
    // Failure replies that wait for their requester. The body is built again and not parsed, because jsonb may reject it.
    scrubReplies: defineStatement(
      "sagabox.privacy.scrub_replies",
      `update ${schema}.reply
          set body = json_build_object('requestId', request_id, 'outcome', outcome,
                'reason', coalesce(substring(body from '"reason":"([a-z]+)"'), 'unknown'), 'error', '[erased]')::text
        where outcome = 'failed' and body !~ '"error" ?: ?"\\[erased\\]"'
          and exists (select from ${schema}.message where message.id = reply.request_id and ${mentions})`,
    ),
    // A reply with encrypted fields contains no other personal data.
    scrubResults: defineStatement(
      "sagabox.privacy.scrub_results",
      `update ${schema}.consumer_inbox as seen set result = '{"$erased":true}'
        where seen.result <> '{"$erased":true}' and seen.result !~ ${encryptedForm}
          and (seen.event_id in (
                 select message.id from ${schema}.message
                  where exists (select from unnest($1::text::text[]) as k where strpos(message.headers, k) > 0)
                 union all
                 select letter.message_id from ${schema}.dead_letter as letter
                  where exists (select from unnest($1::text::text[]) as k where strpos(letter.headers, k) > 0))
               or exists (select from unnest($1::text::text[]) as k where strpos(seen.payload, k) > 0))`,
    ),
  };
}

export type PrivacyStatements = ReturnType<typeof privacyStatements>;

/** Statements about the types that the SQL function `publish` refuses. `schema` must be quoted. */
export function personalTypeStatements(schema: string) {
  return {
    // $2: a JSON array of { type, fields }. A type without fields changes only a row that exists. Sorted, so that two
    // processes cannot deadlock here.
    register: defineStatement(
      "sagabox.privacy.register_types",
      `insert into ${schema}.personal_type as known (type, service, fields)
       select listed.type, $1::text, array(select json_array_elements_text(listed.fields))
         from json_to_recordset($2::text::json) as listed (type text, fields json)
        where json_array_length(listed.fields) > 0
           or exists (select from ${schema}.personal_type as own where own.type = listed.type and own.service = $1::text)
        order by listed.type
       on conflict (type, service) do update set fields = excluded.fields, registered_at = clock_timestamp()
        where known.fields <> excluded.fields`,
    ),
  };
}

const utcSql = (time: string): string =>
  `to_char(${time} at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

const erasureColumns = `id::text, subject, reason, actor, to_json(key_ids)::text as key_ids, proof,
       ${utcSql("erased_at")} as erased_at`;

const messageColumns = (at: string): string =>
  `id, type, schema_version, topic, key, headers, data, ${utcSql(at)} as at`;

const parkSql = (schema: string, which: string): string => `with parked as (
         update ${schema}.saga_instance
            set status = 'failed', due_at = null, claimed_by = null, claimed_until = null, claims = 0,
                version = version + 1, updated_at = clock_timestamp(), last_error = $2::text
          where subject = $1::text and completed_at is null and ${which}
         returning id, version, trace_id, current_step),
       incident as (
         insert into ${schema}.saga_incident (saga_id, steps, error)
         select id, array_remove(array[current_step], null), $2::text from parked
         on conflict (saga_id) where closed_at is null do update set error = excluded.error)
       insert into ${schema}.saga_audit_log
         (saga_id, version, event_type, new_status, note, cause, user_id, trace_id)
       select id, version, 'failed', 'failed', $2::text, 'erasure', $3::text, trace_id from parked
       returning saga_id`;

/** The statements for keys and erasures. `schema` must be quoted. */
export function privacyStatements(schema: string) {
  return {
    // A key inserted by this transaction may be rolled back, and a key from an old snapshot may be destroyed. Such keys are
    // used but not cached as current.
    keyOf: defineStatement(
      "sagabox.privacy.key_of",
      `select key_id, subject, wrapped, kek_id,
              coalesce(created_xid = pg_current_xact_id_if_assigned(), false) as own,
              current_setting('transaction_isolation') = 'read committed' as fresh
         from (select * from ${schema}.subject_key where subject = $1::text offset 0) as known
        where wrapped is not null
        order by created_at desc limit 1`,
    ),
    addKey: defineStatement(
      "sagabox.privacy.add_key",
      `insert into ${schema}.subject_key (key_id, subject, wrapped, kek_id)
       values ($1::text, $2::text, $3::text, $4::text)`,
    ),
    keys: defineStatement(
      "sagabox.privacy.keys",
      `select key_id, subject, wrapped, kek_id, false as own,
              current_setting('transaction_isolation') = 'read committed' as fresh
         from ${schema}.subject_key
        where key_id = any($1::text::text[])`,
    ),

    fingerprint: defineStatement(
      "sagabox.privacy.fingerprint",
      `select fingerprint, coalesce(xid = pg_current_xact_id_if_assigned(), false) as own
         from ${schema}.index_fingerprint order by id limit 1`,
    ),
    addFingerprint: defineStatement(
      "sagabox.privacy.add_fingerprint",
      `insert into ${schema}.index_fingerprint (fingerprint) values ($1::text)`,
    ),

    // Serializes erasures and legal holds of one subject.
    lockSubject: defineStatement(
      "sagabox.privacy.lock_subject",
      `select pg_advisory_xact_lock(hashtextextended($1::text, 7461)),
              to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as now`,
    ),
    openHold: defineStatement(
      "sagabox.privacy.open_hold",
      `select ${utcSql("held_at")} as held_at from ${schema}.legal_hold where subject = $1::text and released_at is null`,
    ),
    hold: defineStatement(
      "sagabox.privacy.hold",
      `insert into ${schema}.legal_hold (subject, reason, actor) values ($1::text, $2::text, $3::text)
       on conflict (subject) where released_at is null do nothing`,
    ),
    release: defineStatement(
      "sagabox.privacy.release",
      `update ${schema}.legal_hold
          set released_at = clock_timestamp(), release_reason = $2::text, released_by = $3::text
        where subject = $1::text and released_at is null`,
    ),
    liveSagas: defineStatement(
      "sagabox.privacy.live_sagas",
      `select id, saga_type as type, status from ${schema}.saga_instance
        where subject = $1::text and completed_at is null order by id limit 1000`,
    ),
    // Parks the sagas of the subject, which cannot continue without its data, with an incident for the operator.
    parkSagas: defineStatement("sagabox.privacy.park_sagas", parkSql(schema, "true")),
    // Parks only sagas encrypted with these keys. The subject may have new sagas with new keys.
    parkSealed: defineStatement(
      "sagabox.privacy.park_sealed",
      parkSql(
        schema,
        `last_error is distinct from $2::text and exists (
           select from unnest($4::text::text[]) as k where strpos(input::text, k) > 0 or strpos(state::text, k) > 0)`,
      ),
    ),
    // Ends a parked saga without undoing anything, by decision of an operator.
    endSaga: defineStatement(
      "sagabox.privacy.end_saga",
      `with ended as (
         update ${schema}.saga_instance
            set status = 'compensated', completed_at = clock_timestamp(), version = version + 1, due_at = null,
                updated_at = clock_timestamp()
          where id = $1::text and completed_at is null and subject is not null and last_error = $2::text
         returning id, version, trace_id),
       closed as (
         update ${schema}.saga_incident set closed_at = clock_timestamp(), resolution = 'ended as it was'
          where saga_id in (select id from ended) and closed_at is null)
       insert into ${schema}.saga_audit_log
         (saga_id, version, event_type, old_status, new_status, note, cause, user_id, trace_id)
       select id, version, 'state_changed', 'failed', 'compensated', $3::text, 'operator:' || $4::text, $4::text, trace_id
         from ended
       returning saga_id`,
    ),
    keysOf: defineStatement(
      "sagabox.privacy.keys_of",
      `select key_id, wrapped is not null as live from ${schema}.subject_key where subject = $1::text order by key_id`,
    ),
    destroyKeys: defineStatement(
      "sagabox.privacy.destroy_keys",
      `update ${schema}.subject_key set wrapped = null, kek_id = null, erased_at = $2::timestamptz
        where subject = $1::text and wrapped is not null
       returning key_id`,
    ),
    log: defineStatement(
      "sagabox.privacy.log",
      `insert into ${schema}.gdpr_erasure_log (subject, erased_at, reason, actor, key_ids, to_scrub, scrubbed, proof)
       values ($1::text, $2::timestamptz, $3::text, $4::text, $5::text::text[], $5::text::text[], '{}', $6::text)
       returning id::text`,
    ),
    lastErasure: defineStatement(
      "sagabox.privacy.last_erasure",
      `select ${erasureColumns} from ${schema}.gdpr_erasure_log where subject = $1::text order by id desc limit 1`,
    ),
    erasuresAfter: defineStatement(
      "sagabox.privacy.erasures_after",
      `select ${erasureColumns} from ${schema}.gdpr_erasure_log where id > $1::bigint order by id limit $2::integer`,
    ),
    unswept: defineStatement(
      "sagabox.privacy.unswept",
      `select id::text from ${schema}.gdpr_erasure_log where swept_at is null order by id limit 100`,
    ),
    // Checks whether all transactions that were open during the erasure have ended, before their keys are searched. A
    // transaction id that this server has not reached yet is from another server, from which the log was restored.
    lockErasure: defineStatement(
      "sagabox.privacy.lock_erasure",
      `select ${erasureColumns}, to_json(to_scrub)::text as to_scrub,
              xid < pg_snapshot_xmin(pg_current_snapshot()) or xid >= pg_snapshot_xmax(pg_current_snapshot()) as over
         from ${schema}.gdpr_erasure_log
        where id = $1::bigint and swept_at is null for update`,
    ),
    // Destroys keys created by transactions that were open during the erasure. Later transactions write new data. For a log
    // entry from another server the time decides, or the transaction id if the key is from that server as well.
    destroyLate: defineStatement(
      "sagabox.privacy.destroy_late",
      `update ${schema}.subject_key as late set wrapped = null, kek_id = null, erased_at = clock_timestamp()
         from ${schema}.gdpr_erasure_log as log
        where log.id = $1::bigint and late.subject = log.subject and late.wrapped is not null
          and case when log.xid < pg_snapshot_xmax(pg_current_snapshot()) then late.created_xid < log.xid
                   else late.created_at <= log.erased_at
                        or late.created_xid >= pg_snapshot_xmax(pg_current_snapshot()) and late.created_xid < log.xid
              end
       returning late.key_id`,
    ),
    addLate: defineStatement(
      "sagabox.privacy.add_late",
      `update ${schema}.gdpr_erasure_log
          set key_ids = $2::text::text[], proof = $3::text, to_scrub = to_scrub || $4::text::text[]
        where id = $1::bigint`,
    ),
    scrubbed: defineStatement(
      "sagabox.privacy.scrubbed",
      `update ${schema}.gdpr_erasure_log
          set to_scrub = array(select unnest(to_scrub) except select unnest($2::text::text[])),
              scrubbed = json_build_object(
                'deadLetters', coalesce((scrubbed ->> 'deadLetters')::integer, 0) + $3::integer,
                'results', coalesce((scrubbed ->> 'results')::integer, 0) + $4::integer,
                'errors', coalesce((scrubbed ->> 'errors')::integer, 0) + $5::integer),
              swept_at = case when $6::boolean then clock_timestamp() end
        where id = $1::bigint and swept_at is null`,
    ),

    ...scrubStatements(schema),

    toRewrap: defineStatement(
      "sagabox.privacy.to_rewrap",
      `select key_id, subject, wrapped, kek_id from ${schema}.subject_key
        where wrapped is not null and kek_id <> $1::text and key_id > $2::text
        order by key_id limit $3::integer`,
    ),
    leftToRewrap: defineStatement(
      "sagabox.privacy.left_to_rewrap",
      `select count(*)::integer as left from ${schema}.subject_key where wrapped is not null and kek_id <> $1::text`,
    ),
    // Does not restore a key that was destroyed in the meantime.
    rewrap: defineStatement(
      "sagabox.privacy.rewrap",
      `update ${schema}.subject_key as key set wrapped = given.wrapped, kek_id = $4::text
         from unnest($1::text::text[], $2::text::text[], $3::text::text[]) as given (key_id, old, wrapped)
        where key.key_id = given.key_id and key.wrapped = given.old`,
    ),

    // Inserts missing keys as destroyed, and destroys keys that a restored backup brought back.
    reapply: defineStatement(
      "sagabox.privacy.reapply",
      `with listed as (
         insert into ${schema}.subject_key as key (key_id, subject, created_at, erased_at)
         select id, $1::text, $2::timestamptz, $2::timestamptz from unnest($3::text::text[]) as id
         on conflict (key_id) do update set wrapped = null, kek_id = null, erased_at = excluded.erased_at
          where key.wrapped is not null
         returning key_id),
       older as (
         update ${schema}.subject_key set wrapped = null, kek_id = null, erased_at = $2::timestamptz
          where subject = $1::text and wrapped is not null and created_at <= $2::timestamptz
            and key_id <> all($3::text::text[])
         returning key_id)
       select key_id from listed union all select key_id from older`,
    ),
    // The entry is written as swept: the transactions of that time have ended, and their ids mean nothing on this server.
    relog: defineStatement(
      "sagabox.privacy.relog",
      `insert into ${schema}.gdpr_erasure_log (subject, erased_at, reason, actor, key_ids, to_scrub, scrubbed, proof, swept_at)
       select $1::text, $2::timestamptz, $3::text, $4::text, $5::text::text[], '{}', '{}', $6::text, clock_timestamp()
        where not exists (select from ${schema}.gdpr_erasure_log
                           where subject = $1::text and erased_at = $2::timestamptz)`,
    ),

    keyCounts: defineStatement(
      "sagabox.privacy.key_counts",
      `select kek_id, count(*)::integer as count from ${schema}.subject_key group by kek_id order by kek_id nulls last`,
    ),
    erasureCounts: defineStatement(
      "sagabox.privacy.erasure_counts",
      `select count(*)::integer as erasures, count(*) filter (where swept_at is null)::integer as unswept,
              (select count(*)::integer from ${schema}.legal_hold where released_at is null) as holds
         from ${schema}.gdpr_erasure_log`,
    ),

    messagesOf: defineStatement(
      "sagabox.privacy.messages_of",
      `select id, to_char(written_on, 'YYYY-MM-DD') as written_on from ${schema}.message
        where ${mentions}
        order by written_at, id`,
    ),
    messages: defineStatement(
      "sagabox.privacy.messages",
      `select ${messageColumns("written_at")} from ${schema}.message
        where (id, written_on) in (select * from unnest($1::text::text[], $2::text::date[]))
        order by written_at, id`,
    ),
    scheduledOf: defineStatement(
      "sagabox.privacy.scheduled_of",
      `select ${messageColumns("due_at")} from ${schema}.scheduled
        where id > $2::text and ${mentions}
        order by id limit 100`,
    ),
    deadLettersOf: defineStatement(
      "sagabox.privacy.dead_letters_of",
      `select letter.id::text as dead_letter_id, letter.message_id as id, letter.type, letter.schema_version, letter.topic,
              letter.key, letter.headers, letter.data, ${utcSql("letter.failed_at")} as at
         from ${schema}.dead_letter as letter
        where letter.id > $2::bigint and ${mentions}
        order by letter.id limit 100`,
    ),
    sagasOf: defineStatement(
      "sagabox.privacy.sagas_of",
      `select id, saga_type as type, status, input::text as input, state::text as state, version, ${utcSql("created_at")} as at
         from ${schema}.saga_instance where subject = $1::text and id > $2::text order by id limit 100`,
    ),
  };
}
