import type pg from "pg";
import type { BenchDatabase } from "../harness/server.ts";

/** The caller's own work: one row in one table of theirs. */
export const BUSINESS_TABLE =
  "create table business (id bigserial primary key, customer text not null, total numeric not null, note text)";
export const BUSINESS_INSERT = "insert into business (customer, total, note) values ($1, $2, $3)";

export function businessRow(n: number): [customer: string, total: number, note: string] {
  return [`customer-${n % 2_000}`, 129.9, `order ${n}`];
}

/** The same work without any outbox: begin, insert, commit. */
export async function plainTransaction(pool: pg.Pool, n: number): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    await client.query(BUSINESS_INSERT, businessRow(n));
    await client.query("commit");
  } finally {
    client.release();
  }
}

/** Transactions per second with this many connections at once. */
export async function measureRate(
  count: number,
  atOnce: number,
  work: (n: number) => Promise<void>,
): Promise<number> {
  let next = 0;
  const began = performance.now();
  const worker = async (): Promise<void> => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return (count / (performance.now() - began)) * 1000;
}

export async function emptyBusinessTable({ admin }: BenchDatabase): Promise<void> {
  await admin.query("truncate business");
}
