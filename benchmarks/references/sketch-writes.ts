import type pg from "pg";
import type { Place } from "../harness/server.ts";
import { order } from "../product/order-placed.ts";
import { BUSINESS_INSERT, businessRow, rateOf } from "./business.ts";

const AT_ONCE = 8;
const BATCH = 50;

export const SKETCH_OUTBOX = `
  create table sketch_outbox (seq bigserial primary key, event_id text not null, topic text not null, key text,
    headers text not null, payload text not null, written_at timestamptz not null default now())`;

/** Begin, the caller's row, one wide outbox row with the COMMIT right behind it. Nothing is validated or kept. */
export async function sketchTransaction(pool: pg.Pool, n: number): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    await client.query(BUSINESS_INSERT, businessRow(n));
    const values = [
      `event-${n}`,
      "events.order.placed",
      `customer-${n % 2_000}`,
      "{}",
      JSON.stringify(order(n)),
    ];
    await Promise.all([
      client.query({ name: "sketch_publish", text: PUBLISH, values }),
      client.query("commit"),
    ]);
  } finally {
    client.release();
  }
}

/** Dedupe row and effect as one statement for each message, and as two for fifty of them. */
export class SketchConsumer {
  readonly #place: Place;
  readonly #pool: pg.Pool;

  constructor(place: Place) {
    this.#place = place;
    this.#pool = place.pool(AT_ONCE);
  }

  async statementRate(count: number): Promise<number> {
    await this.#place.admin.query("truncate raw_inbox, business");
    return rateOf(count, AT_ONCE, async (n) => {
      const values = ["billing", `message-${n}`, "order.placed", ...businessRow(n)];
      await this.#pool.query({ name: "sketch_once", text: ONCE, values });
    });
  }

  /** One connection, batch after batch. */
  async bulkRate(count: number): Promise<number> {
    await this.#place.admin.query("truncate raw_inbox, business");
    return rateOf(count / BATCH, 1, (batch) => this.#bulk(batch * BATCH)).then((rate) => rate * BATCH);
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

const PUBLISH =
  "insert into sketch_outbox (event_id, topic, key, headers, payload) values ($1, $2, $3, $4, $5)";
const ONCE = `
  with fresh as (
    insert into raw_inbox (consumer, event_id, event_type) values ($1, $2, $3) on conflict do nothing returning 1)
  insert into business (customer, total, note) select $4::text, $5::numeric, $6::text from fresh`;
const DEDUPE = `
  insert into raw_inbox (consumer, event_id, event_type) select $1, id, 'order.placed' from unnest($2::text[]) as id
  on conflict do nothing returning event_id`;
const BULK =
  "insert into business (customer, total, note) select * from unnest($1::text[], $2::numeric[], $3::text[])";
