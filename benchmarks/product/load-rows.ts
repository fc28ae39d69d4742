import type { BenchDatabase } from "../harness/server.ts";
import { wakeUpChannel } from "../../src/lanes/index.ts";
import { laneFor, streamFor, resolveTopic } from "../../src/message/index.ts";
import { order, OrderPlaced } from "./order-placed.ts";

/** Rows as the product writes them, made inside the server because there are so many. */
export type Load = "waiting" | "scheduled" | "held";

const CUSTOMERS = 2_000;
/** The customer whose first message fails, with all the others behind it. */
const UNLUCKY = "customer-unlucky";

export async function loadRows(place: BenchDatabase, load: Load, count: number): Promise<void> {
  const { admin } = place;
  const used = load === "held" ? [UNLUCKY] : CUSTOMER_KEYS;
  await loadKeys(place, used);
  const params = [count, used.length, TOPIC, JSON.stringify(order(1))];
  if (load === "scheduled") await admin.query(SCHEDULED, params);
  else await admin.query(WAITING, params);
  if (load === "held") await admin.query(FAILING_HEAD);
  await admin.query("drop table load_key");
  await admin.query("vacuum analyze");
}

/** What `loadBacklog` draws from. */
export async function loadKeys({ admin }: BenchDatabase, keys = CUSTOMER_KEYS): Promise<void> {
  await admin.query("create table load_key (n integer primary key, key text, lane integer, stream bigint)");
  await admin.query(
    `insert into load_key select n - 1, key, lane, stream
       from unnest($1::text[], $2::integer[], $3::bigint[]) with ordinality as given (key, lane, stream, n)`,
    [keys, keys.map(laneFor), keys.map((key) => streamFor(TOPIC, key))],
  );
}

/**
 * A backlog in one transaction, and the hint that a service sends behind its COMMIT: the relay sees all of it or nothing.
 * Made by the server, as that of every other contender is, it leaves nothing behind in the process that is measured.
 */
export async function loadBacklog({ admin }: BenchDatabase, count: number): Promise<void> {
  const client = await admin.connect();
  try {
    await client.query("begin");
    await client.query(WAITING, [count, CUSTOMER_KEYS.length, TOPIC, JSON.stringify(order(1))]);
    await client.query("select pg_notify($1, '*')", [wakeUpChannel("sagabox")]);
    await client.query("commit");
    client.release();
  } catch (error) {
    client.release(true);
    throw error;
  }
}

const TOPIC = resolveTopic(OrderPlaced, undefined);
const CUSTOMER_KEYS: readonly string[] = Array.from({ length: CUSTOMERS }, (_, n) => `customer-${n}`);

const COLUMNS = `id, lane, stream, kind, type, schema_version, topic, key, correlation_id, traceparent, source, priority,
  max_attempts, headers, data, written_at`;

const VALUES = `uuidv7()::text as id, load_key.lane, load_key.stream, 'event' as kind, 'order.placed' as type,
  1 as schema_version, $3::text as topic, load_key.key, uuidv7()::text as correlation_id,
  '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' as traceparent, 'bench' as source, 5 as priority,
  10 as max_attempts, '{}' as headers, $4::text as data, clock_timestamp() as written_at`;

const FROM = "from generate_series(1, $1::integer) as n join load_key on load_key.n = n.n % $2::integer";

const WAITING = `
  with given as materialized (
    select nextval('sagabox.outbox_seq') as seq, (clock_timestamp() at time zone 'utc')::date as written_on, made.*
      from (select ${VALUES} ${FROM} order by n.n) as made
  ), kept as (
    insert into sagabox.message (seq, written_on, ${COLUMNS}) select seq, written_on, ${COLUMNS} from given
  )
  insert into sagabox.outbox (lane, seq, stream, topic, type, message_id, written_on, due_at)
  select lane, seq, stream, topic, type, id, written_on, written_at from given`;

const SCHEDULED = `
  insert into sagabox.scheduled (due_at, ${COLUMNS})
  select clock_timestamp() + interval '1 day' + n.n * interval '1 ms', ${COLUMNS.replace(/\w+/g, "given.$&")}
    from (select n.n, ${VALUES} ${FROM}) as given, lateral (select given.n) as n`;

const FAILING_HEAD = `
  update sagabox.outbox set attempts = 1, due_at = clock_timestamp() + interval '1 day', last_error = 'no'
   where seq = (select min(seq) from sagabox.outbox)`;
