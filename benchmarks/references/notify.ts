import type pg from "pg";
import type { BenchDatabase } from "../harness/server.ts";
import { BUSINESS_TABLE, plainTransaction } from "./business.ts";

/** The quickest word from one session to another that costs the transaction nothing: NOTIFY after its COMMIT. */
export class RawNotify {
  readonly #pool: pg.Pool;
  readonly #notifier: pg.PoolClient;
  readonly #listener: pg.PoolClient;

  private constructor(pool: pg.Pool, teller: pg.PoolClient, listener: pg.PoolClient) {
    this.#pool = pool;
    this.#notifier = teller;
    this.#listener = listener;
  }

  static async open(place: BenchDatabase): Promise<RawNotify> {
    await place.admin.query(BUSINESS_TABLE);
    const pool = place.pool(10);
    const teller = await pool.connect();
    const listener = await pool.connect();
    await listener.query("listen raw");
    return new RawNotify(pool, teller, listener);
  }

  onNotified(listener: (id: string, atNs: bigint) => void): void {
    this.#listener.on("notification", ({ payload = "" }) => listener(payload, process.hrtime.bigint()));
  }

  /** Resolves with the moment at which COMMIT had returned. */
  async write(id: string, n: number): Promise<bigint> {
    await plainTransaction(this.#pool, n);
    const committedNs = process.hrtime.bigint();
    await this.#notifier.query({ name: "notify", text: "select pg_notify('raw', $1)", values: [id] });
    return committedNs;
  }

  close(): void {
    for (const client of [this.#notifier, this.#listener]) client.release(true);
  }
}
