import type pg from "pg";
import { event } from "sagabox";
import { z } from "zod";

const schema = z.object({
  orderId: z.string(),
  currency: z.string(),
  customer: z.object({ name: z.string(), vat: z.string().optional() }),
});

export type Order = z.infer<typeof schema>;

export const OrderPlaced = event("order.placed", { schema, key: ({ orderId }) => orderId });

/** Sixty: every third customer is a private one, and four are not real. */
export const orders: readonly Order[] = Array.from({ length: 60 }, (_, n) => ({
  orderId: `order-${n + 1}`,
  currency: n % 15 === 7 ? "ZZZ" : "EUR",
  customer: n % 3 === 0 ? { name: `person ${n}` } : { name: `firm ${n}`, vat: `de${n}` },
}));

interface Runs {
  query(sql: string, params?: unknown[]): Promise<unknown>;
}

/** Nothing in it forbids a second invoice for an order. */
export class InvoiceTable {
  readonly #pool: pg.Pool;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  async create(): Promise<void> {
    await this.#pool.query("create table invoice (order_id text not null, line text not null)");
  }

  async insert(tx: Runs, orderId: string, line: string): Promise<void> {
    await tx.query("insert into invoice values ($1, $2)", [orderId, line]);
  }

  async count(): Promise<number> {
    const { rowCount } = await this.#pool.query("select from invoice");
    return rowCount ?? 0;
  }

  async doubles(): Promise<number> {
    const { rowCount } = await this.#pool.query("select from invoice group by order_id having count(*) > 1");
    return rowCount ?? 0;
  }
}
