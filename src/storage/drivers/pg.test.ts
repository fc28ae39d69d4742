import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { pgDatabase } from "./pg.ts";
import type { PgClient } from "./pg-shape.ts";

type HandOver = (error?: Error, client?: PgClient) => void;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function setup() {
  const asked: HandOver[] = [];
  const connect = (handOver: HandOver): void => void asked.push(handOver);
  const pool = { connect, end: () => undefined, on: () => undefined, totalCount: 1, options: { max: 1 } };
  const released: unknown[] = [];
  const client = {
    on: () => client,
    getTransactionStatus: () => "I",
    removeListener: () => client,
    release: (destroy?: boolean) => released.push(destroy),
  } as unknown as PgClient;
  return { database: pgDatabase(pool), asked, client, released };
}

test("a connection that comes after the deadline goes back to the pool unused", async () => {
  const { database, asked, client, released } = setup();
  const begun = expect(database.begin()).rejects.toMatchObject({ code: "STORAGE_UNAVAILABLE" });
  await vi.advanceTimersByTimeAsync(10_000);
  await begun;
  asked[0]?.(undefined, client);
  expect(released).toEqual([undefined]);
});

test("a pool that hands a connection over twice has handed it over once", async () => {
  const { database, asked, client, released } = setup();
  const beginning = database.begin();
  asked[0]?.(undefined, client);
  asked[0]?.(new Error("again"));
  const tx = await beginning;
  expect([tx.open, released, vi.getTimerCount()]).toEqual([true, [], 0]);
});

test("a pool of a pg that cannot tell whether a transaction is open is refused, and has its client back", async () => {
  const { database, asked, client, released } = setup();
  const beginning = database.begin();
  Reflect.deleteProperty(client, "getTransactionStatus");
  asked[0]?.(undefined, client);
  await expect(beginning).rejects.toMatchObject({ code: "STORAGE_CLIENT_TOO_OLD" });
  expect(released).toEqual([undefined]);
});
