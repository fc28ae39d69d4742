import type pg from "pg";
import type { BenchDatabase } from "../harness/server.ts";
import { BUSINESS_INSERT, businessRow, measureRate } from "./business.ts";

const AT_ONCE = 8;

/** The textbook consumer: a transaction for each message holds its dedupe row and its effect; eight at a time. */
export class TransactionPerMessage {
  readonly #pool: pg.Pool;
  readonly #admin: pg.Pool;

  private constructor(pool: pg.Pool, admin: pg.Pool) {
    this.#pool = pool;
    this.#admin = admin;
  }

  static async open(place: BenchDatabase): Promise<TransactionPerMessage> {
    await place.admin.query(TABLE);
    return new TransactionPerMessage(place.pool(AT_ONCE), place.admin);
  }

  async rate(count: number): Promise<number> {
    await this.#admin.query("truncate raw_inbox, business");
    return measureRate(count, AT_ONCE, (n) => this.#handle(n));
  }

  async #handle(n: number): Promise<void> {
    const client = await this.#pool.connect();
    try {
      await client.query("begin");
      const values = ["billing", `message-${n}`, "order.placed"];
      const { rowCount } = await client.query({ name: "raw_dedupe", text: DEDUPE, values });
      if (rowCount === 1) {
        await client.query({ name: "raw_effect", text: BUSINESS_INSERT, values: businessRow(n) });
      }
      await client.query("commit");
    } finally {
      client.release();
    }
  }
}

const TABLE = `
  create table raw_inbox (
    consumer text not null, event_id text not null, event_type text not null,
    consumed_at timestamptz not null default now(), primary key (consumer, event_id)
  );
  create table business (id bigserial primary key, customer text not null, total numeric not null, note text)`;
const DEDUPE =
  "insert into raw_inbox (consumer, event_id, event_type) values ($1, $2, $3) on conflict do nothing";
