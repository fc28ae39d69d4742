import type pg from "pg";

export const LANE = 7;
export const GROUP = 1;
export const QUEUE_LANE = GROUP * 256 + LANE;

const MESSAGE = `id, lane, stream, kind, type, schema_version, topic, key, correlation_id, traceparent, source, priority,
  max_attempts, data, written_at`;
const message = (lane: number): string =>
  `'m-' || n, ${lane}, n, 'event', 't', 1, 'topic', 'k-' || n, 'c', 'p', 'x', 5, 10, '{}', now()`;
const narrow = (table: string, lane: number): string =>
  `insert into sagabox.${table} (lane, seq, stream, topic, type, message_id, written_on, priority, due_at)
   select ${lane}, n, n, 'topic', 't', 'm-' || n, (now() at time zone 'utc')::date, 5, now() from numbers`;

/** All rows are of one lane, one consumer and one type: a lookup that uses only part of a key reads all of them. */
const FILLS: readonly string[] = [
  narrow("outbox", LANE),
  narrow("queue", QUEUE_LANE),
  `insert into sagabox.message (${MESSAGE}, seq, written_on)
   select ${message(LANE)}, n, (now() at time zone 'utc')::date from numbers`,
  `insert into sagabox.scheduled (${MESSAGE}, due_at) select ${message(LANE)}, now() + interval '1 day' from numbers`,
  "insert into sagabox.published_id select 'm-' || n, (now() at time zone 'utc')::date from numbers",
  `insert into sagabox.consumer_inbox (consumer_name, event_id, source_topic, event_type)
   select 'consumer', 'm-' || n, 'topic', 't' from numbers`,
  `insert into sagabox.dead_letter (origin, consumer, message_id, kind, type, schema_version, topic, correlation_id,
     traceparent, source, priority, max_attempts, headers, data, written_at, reason, attempts, error_type, error_message)
   select 'consumer', 'consumer', 'm-' || n, 'event', 't', 1, 'topic', 'c', 'p', 'x', 5, 10, '{}', '{}', now(), 'rejected',
          1, 'E', 'e' from numbers`,
  `insert into sagabox.saga_instance (id, saga_type, definition_version, correlation_id, status, input, state, trace_id,
     traceparent, message_correlation_id, due_at, claimed_by)
   select 's-' || n, 'type', 1, 'key-' || n, 'running', '{}', '{}', '', '', 'c-' || n, now() + interval '1 day', 'worker'
     from numbers`,
  `insert into sagabox.saga_input (id, saga_type, saga_id, correlation_id, cause, input, expires_at)
   select 'input-' || n, 'type', case when n % 2 = 0 then 's-' || n end, case when n % 2 = 1 then 'key-' || n end, 'c', '{}',
          'infinity' from numbers`,
  `insert into sagabox.saga_incident (saga_id, steps, error, closed_at, resolution)
   select 's-' || n, '{}', 'e', now(), 'r' from numbers`,
  "insert into sagabox.reply (request_id, outcome, body) select 'm-' || n, 'done', '{}' from numbers",
  `insert into sagabox.flow_event (flow, message_id, correlation_id, type, source, happened_at)
   select 'flow', 'm-' || n, 'c-' || n, 't', 'x', now() from numbers`,
  `insert into sagabox.blob (key, store, bytes, sha256) select 'blob-' || n, 's', 1, repeat('0', 64) from numbers`,
  "insert into sagabox.blob_use (key, used_by) select 'blob-' || n, 'm-' || n from numbers",
  `insert into sagabox.subject_key (key_id, subject, wrapped, kek_id)
   select lpad(n::text, 22, '.'), lpad(n::text, 43, '.'), 'w', 'kek' from numbers`,
];

/** Statistics taken now are kept, independently of later writes. */
export async function freezeStatistics(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<{ name: string }>(
    `select oid::regclass::text as name from pg_class
      where relnamespace = 'sagabox'::regnamespace and relkind = 'r'`,
  );
  for (const { name } of rows) await pool.query(`alter table ${name} set (autovacuum_enabled = off)`);
  await pool.query("analyze");
}

/** What the samples of `messagePath` need beside the large tables. */
export async function prepareOwners(pool: pg.Pool): Promise<void> {
  await pool.query(`
    create table effect (value text);
    select setval('sagabox.outbox_seq', 1000000000), setval('sagabox.queue_seq', 1000000000);
    insert into sagabox.consumer_group (name) values ('consumer');
    insert into sagabox.subscription (topic, group_id) values ('topic', ${GROUP});
    insert into sagabox.relay_lane (lane, scope) select ${GROUP} * 256 + n, ${GROUP} from generate_series(0, 255) as n;
    insert into sagabox.running (member, consumer, event_ids) values ('gone', 'consumer', '{m-100,m-200,none}');
    update sagabox.relay_lane set owner = 'worker', fence = 1, token = 'token' where lane in (${LANE}, ${QUEUE_LANE})`);
}

/** Writes rows `first` to `last` of every table. */
export async function fillTables(pool: pg.Pool, first: number, last: number): Promise<void> {
  const numbers = `with numbers as (select n from generate_series(${first}::bigint, ${last}) as n)`;
  for (const sql of FILLS) await pool.query(`${numbers} ${sql}`);
  // VACUUM does this; without it the index knows nothing of the new pages.
  for (const index of ["consumer_inbox_age", "published_id_age"]) {
    await pool.query("select brin_summarize_new_values($1)", [`sagabox.${index}`]);
  }
}
