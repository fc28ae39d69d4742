import type pg from "pg";
import type { BenchDatabase } from "../harness/server.ts";
import { order } from "../product/order-placed.ts";

const BATCH = 500;

/** A row as the sketch reads it. */
export interface SketchRow {
  readonly seq: string;
  readonly event_id: string;
  readonly key: string;
  readonly payload: string;
}

/** How the sketch keeps its messages: all in the outbox row, or once in an archive beside a narrow row. */
export type Keeping = "wide" | "narrow";

/**
 * The least that could be called a relay: one lease, read without locks from a remembered position, publish, delete
 * the batch, commit asynchronously. No retries, lanes, order, history or metrics: it shows what a machine leaves room for.
 */
export class SketchRelay {
  readonly #database: BenchDatabase;
  readonly #pool: pg.Pool;
  readonly #keeping: Keeping;
  readonly #publish: (rows: readonly SketchRow[]) => Promise<void>;

  private constructor(
    place: BenchDatabase,
    keeping: Keeping,
    publish: (rows: readonly SketchRow[]) => Promise<void>,
  ) {
    this.#database = place;
    this.#pool = place.pool(2);
    this.#keeping = keeping;
    this.#publish = publish;
  }

  static async open(
    place: BenchDatabase,
    keeping: Keeping,
    publish: (rows: readonly SketchRow[]) => Promise<void> = () => Promise.resolve(),
  ): Promise<SketchRelay> {
    await place.admin.query(TABLES);
    return new SketchRelay(place, keeping, publish);
  }

  /** Events per second; the next batch is read while this one is published and deleted. */
  async drain(count: number): Promise<number> {
    await this.#fill(count);
    const [reader, writer] = [await this.#pool.connect(), await this.#pool.connect()];
    try {
      await writer.query("set synchronous_commit = off");
      const began = performance.now();
      let next = this.#read(reader, "0");
      for (let done = 0; done < count;) {
        const rows = await next;
        const last = rows.at(-1)?.seq ?? "0";
        next = this.#read(reader, last);
        await this.#publish(rows);
        const values = [rows.map(({ seq }) => seq)];
        await writer.query({ name: "sketch_delete", text: DELETE, values });
        done += rows.length;
      }
      await next;
      return (count / (performance.now() - began)) * 1000;
    } finally {
      reader.release();
      writer.release();
    }
  }

  async #read(client: pg.PoolClient, after: string): Promise<SketchRow[]> {
    const read = { name: `sketch_${this.#keeping}`, text: READ[this.#keeping], values: [after] };
    return (await client.query<SketchRow>(read)).rows;
  }

  async #fill(count: number): Promise<void> {
    const { admin } = this.#database;
    await admin.query("truncate sketch_outbox, sketch_message");
    await admin.query(FILL[this.#keeping], [count, JSON.stringify(order(1)), HEADERS]);
    await admin.query("vacuum analyze sketch_outbox, sketch_message");
  }
}

const HEADERS = JSON.stringify({
  correlationId: "018f5e6a-7b1c-7cc0-8d3e-2f6a9b4c1d2e",
  traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
});

const MESSAGE = "event_id text, topic text, key text, headers text, payload text";

const TABLES = `
  create table sketch_outbox (seq bigint primary key, ${MESSAGE});
  create table sketch_message (seq bigint primary key, ${MESSAGE});
  create table sketch_lease (owner text primary key, fence bigint not null);
  insert into sketch_lease values ('sketch', 1)`;

const VALUES = `n, gen_random_uuid()::text, 'events.order.placed', 'customer-' || n % 2000, $3::text, $2::text
  from generate_series(1, $1::integer) as n`;

const FILL = {
  wide: `insert into sketch_outbox select ${VALUES}`,
  narrow: `
    with kept as (insert into sketch_message select ${VALUES} returning seq)
    insert into sketch_outbox (seq) select seq from kept`,
} as const;

const READ = {
  wide: `select seq, event_id, topic, key, headers, payload from sketch_outbox
          where seq > $1 order by seq limit ${BATCH}`,
  narrow: `
    select seq, message.event_id, message.topic, message.key, message.headers, message.payload
      from (select seq from sketch_outbox where seq > $1 order by seq limit ${BATCH}) as outbox
      join sketch_message as message using (seq)
     order by seq`,
} as const;

const DELETE = `
  delete from sketch_outbox
   where seq = any($1::bigint[]) and exists (select from sketch_lease where owner = 'sketch' and fence = 1)`;
