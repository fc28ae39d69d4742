import type pg from "pg";
import type { BenchDatabase } from "../harness/server.ts";
import { writeStatements } from "../../src/outbox/statements.ts";
import { order } from "../product/order-placed.ts";
import { BUSINESS_INSERT, businessRow, measureRate } from "./business.ts";

const AT_ONCE = 8;
const BATCH = 50;

export const SKETCH_OUTBOX = `
  create table sketch_outbox (seq bigserial primary key, event_id text not null, topic text not null, key text,
    headers text not null, payload text not null, written_at timestamptz not null default now())`;

/** The caller's row and one wide outbox row. Nothing is validated or kept. */
export function sketchTransaction(pool: pg.Pool, n: number): Promise<void> {
  return inTwoTrips(pool, n, { name: "sketch_publish", text: PUBLISH, values: createEvent(n) });
}

/**
 * The least of what shall be kept: the message once, for 30 days, so by the day; and a narrow row for as long as it is to
 * be sent. The partitions around today exist in every time zone of the server.
 */
export const SKETCH_ARCHIVE = `
  create table sketch_message (id text not null, written_on date not null, topic text not null, key text,
    headers text not null, payload text not null, written_at timestamptz not null default now(),
    primary key (id, written_on)) partition by range (written_on);
  do $$ begin
    for day in -1 .. 2 loop
      execute format('create table sketch_message_%s partition of sketch_message for values from (%L) to (%L)',
                     day + 1, current_date + day, current_date + day + 1);
    end loop;
  end $$;
  create table sketch_line (seq bigserial primary key, message_id text not null, written_on date not null,
    topic text not null, key text)`;

/** The caller's row, the message and its narrow row. Nothing is validated, and no constraint but the keys is checked. */
export function archivingSketchTransaction(pool: pg.Pool, n: number): Promise<void> {
  return inTwoTrips(pool, n, { name: "sketch_archive", text: ARCHIVE, values: createEvent(n) });
}

/**
 * The caller's row and, in the tables of the product, the very rows that it writes: all that a message says of itself, kept
 * valid, and found again by key, saga and time. Nothing is validated, made or traced in this process.
 */
export function sameRowsTransaction(pool: pg.Pool, n: number): Promise<void> {
  return inTwoTrips(pool, n, { name: "sketch_same_rows", text: SAME_ROWS.text, values: createMessage(n) });
}

let made = 0;

function createMessage(n: number): string[] {
  const [id = "", topic = "", key = "", , payload = ""] = createEvent(n);
  const stream = String(1_000_003 * (n % 2_000));
  return [
    id,
    String(n % 256),
    stream,
    "event",
    "order.placed",
    "1",
    topic,
    key,
    id,
    TRACE,
    "bench",
    "5",
    "10",
    payload,
  ];
}

/** Ids in order, as ours are: an index grows best at its end. */
function createEvent(n: number): string[] {
  const id = `event-${String(made++).padStart(12, "0")}`;
  return [id, "events.order.placed", `customer-${n % 2_000}`, "{}", JSON.stringify(order(n))];
}

/** BEGIN leaves with the caller's row and COMMIT with the last statement, each pair in one packet. */
async function inTwoTrips(pool: pg.Pool, n: number, last: pg.QueryConfig): Promise<void> {
  const client = await pool.connect();
  try {
    await together(client, () => [client.query("begin"), client.query(BUSINESS_INSERT, businessRow(n))]);
    await together(client, () => [client.query(last), client.query("commit")]);
  } finally {
    client.release();
  }
}

async function together(client: pg.PoolClient, send: () => Promise<unknown>[]): Promise<void> {
  const { connection } = Object.assign(client, { pipeline: true }) as unknown as Wire;
  connection.stream.cork();
  const sent = send();
  connection.stream.uncork();
  await Promise.all(sent);
}

/** What the types of the driver leave out. */
interface Wire {
  readonly connection: { readonly stream: { cork(): void; uncork(): void } };
}

/** Dedupe row and effect as one statement for each message, and as two for fifty of them. */
export class SketchConsumer {
  readonly #database: BenchDatabase;
  readonly #pool: pg.Pool;

  constructor(place: BenchDatabase) {
    this.#database = place;
    this.#pool = place.pool(AT_ONCE);
  }

  async statementRate(count: number): Promise<number> {
    await this.#database.admin.query("truncate raw_inbox, business");
    return measureRate(count, AT_ONCE, async (n) => {
      const values = ["billing", `message-${n}`, "order.placed", ...businessRow(n)];
      await this.#pool.query({ name: "sketch_once", text: ONCE, values });
    });
  }

  /** One connection, batch after batch. */
  async bulkRate(count: number): Promise<number> {
    await this.#database.admin.query("truncate raw_inbox, business");
    return measureRate(count / BATCH, 1, (batch) => this.#bulk(batch * BATCH)).then((rate) => rate * BATCH);
  }

  async #bulk(from: number): Promise<void> {
    const client = await this.#pool.connect();
    try {
      const ids = Array.from({ length: BATCH }, (_, n) => `message-${from + n}`);
      await client.query("begin");
      const dedupe = { name: "sketch_dedupe", text: DEDUPE, values: ["billing", ids] };
      const { rows } = await client.query<{ event_id: string }>(dedupe);
      const effects = rows.map(({ event_id: id }) => businessRow(Number(id.slice("message-".length))));
      const values = [0, 1, 2].map((column) => effects.map((row) => row[column]));
      await client.query({ name: "sketch_bulk", text: BULK, values });
      await client.query("commit");
    } finally {
      client.release();
    }
  }
}

const TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const SAME_ROWS = writeStatements('"sagabox"').publishUsual;
const PUBLISH =
  "insert into sketch_outbox (event_id, topic, key, headers, payload) values ($1, $2, $3, $4, $5)";
// Faster than a function with two inserts, in PL/pgSQL or in SQL.
const ARCHIVE = `
  with kept as (
    insert into sketch_message (id, written_on, topic, key, headers, payload) values ($1, current_date, $2, $3, $4, $5))
  insert into sketch_line (message_id, written_on, topic, key) values ($1, current_date, $2, $3)`;
const ONCE = `
  with fresh as (
    insert into raw_inbox (consumer, event_id, event_type) values ($1, $2, $3) on conflict do nothing returning 1)
  insert into business (customer, total, note) select $4::text, $5::numeric, $6::text from fresh`;
const DEDUPE = `
  insert into raw_inbox (consumer, event_id, event_type) select $1, id, 'order.placed' from unnest($2::text[]) as id
  on conflict do nothing returning event_id`;
const BULK =
  "insert into business (customer, total, note) select * from unnest($1::text[], $2::numeric[], $3::text[])";
