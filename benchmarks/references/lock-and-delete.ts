import type { BenchDatabase } from "../harness/server.ts";
import { order } from "../product/order-placed.ts";

const BATCH = 500;

/** The raw limit of one connection: lock 500 rows, read them, delete them, commit. No order, retries or history. */
export class LockAndDelete {
  readonly #database: BenchDatabase;

  private constructor(place: BenchDatabase) {
    this.#database = place;
  }

  static async open(place: BenchDatabase): Promise<LockAndDelete> {
    await place.admin.query("create table raw_outbox (id bigserial primary key, payload text not null)");
    return new LockAndDelete(place);
  }

  async drain(count: number): Promise<number> {
    const { admin } = this.#database;
    await admin.query("truncate raw_outbox");
    await admin.query(
      "insert into raw_outbox (payload) select $2::text from generate_series(1, $1::integer)",
      [count, JSON.stringify(order(1))],
    );
    await admin.query("vacuum analyze raw_outbox");
    const client = await admin.connect();
    try {
      const began = performance.now();
      for (let done = 0; done < count;) {
        await client.query("begin");
        const { rows } = await client.query<{ id: string }>({ name: "raw_read", text: READ });
        await client.query({ name: "raw_delete", text: DELETE, values: [rows.map((row) => row.id)] });
        await client.query("commit");
        done += rows.length;
      }
      return (count / (performance.now() - began)) * 1000;
    } finally {
      client.release();
    }
  }
}

const READ = `select id, payload from raw_outbox order by id limit ${BATCH} for update skip locked`;
const DELETE = "delete from raw_outbox where id = any($1::bigint[])";
