import type pg from "pg";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../test/support/database.ts";
import { event } from "../message/index.ts";
import type { PublishOptions } from "../message/index.ts";
import type { Bus } from "./bus.ts";
import { createBus } from "./create-bus.ts";
import { message } from "./bus-transaction.ts";

const Noted = event("noted", { schema: z.object({ key: z.string() }), key: ({ key }) => key });
const SMALL = 1_000;
const LARGE = 6_000;

async function setup() {
  const { pool } = await temporaryDatabase({ migrated: true });
  const bus = createBus({ service: "shop", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  // Statistics stay as they were taken: from empty tables.
  await pool.query("alter table sagabox.outbox set (autovacuum_enabled = off)");
  await pool.query("analyze");
  return { pool, bus };
}

interface Reads {
  readonly inserted: number;
  readonly blocks: number;
}

/** What all sessions together have read of the outbox and its indexes, and how many rows they have inserted. */
async function readsOf(pool: pg.Pool): Promise<Reads> {
  const { rows } = await pool.query<Reads>(
    `select stat.n_tup_ins::integer as inserted,
            (io.heap_blks_hit + io.heap_blks_read + io.idx_blks_hit + io.idx_blks_read)::integer as blocks
       from pg_stat_user_tables as stat
       join pg_statio_user_tables as io on io.relid = stat.relid
      where stat.relid = 'sagabox.outbox'::regclass`,
  );
  return rows[0] ?? { inserted: 0, blocks: 0 };
}

/** A session reports its counters at its end, or up to ten seconds after its last transaction. */
async function endIdleSessions(pool: pg.Pool): Promise<void> {
  const clients = await Promise.all(Array.from({ length: pool.idleCount }, () => pool.connect()));
  for (const client of clients) client.release(true);
}

/** Blocks read for each message of a transaction. */
async function blocksPerMessage(pool: pg.Pool, count: number, publish: () => Promise<void>): Promise<number> {
  const before = await readsOf(pool);
  await publish();
  await endIdleSessions(pool);
  await vi.waitUntil(async () => (await readsOf(pool)).inserted - before.inserted === count, {
    timeout: 20_000,
    interval: 100,
  });
  return ((await readsOf(pool)).blocks - before.blocks) / count;
}

interface Way {
  readonly way: string;
  readonly keyOf?: (n: number) => string;
  readonly options?: (n: number) => PublishOptions;
  readonly publish: (bus: Bus, pool: pg.Pool, data: readonly Given[]) => Promise<void>;
}

type Given = readonly [data: { key: string }, options: PublishOptions | undefined];

const oneByOne: Way["publish"] = (bus, _, all) =>
  bus.transaction(async (tx) => {
    for (const [data, options] of all) await tx.publish(Noted, data, options);
  });
const together: Way["publish"] = (bus, _, all) =>
  bus.transaction(async (tx) => {
    await bus.publishAll(
      tx,
      all.map(([data, options]) => message(Noted, data, options)),
    );
  });
const inCallers: Way["publish"] = async (bus, pool, all) => {
  const client = await pool.connect();
  try {
    await client.query("begin");
    await bus.publishAll(
      client,
      all.map(([data, options]) => message(Noted, data, options)),
    );
    await client.query("commit");
  } finally {
    client.release();
  }
};

const ownId = (n: number): PublishOptions => ({ id: `own-${n}` });
const oneKey = (): string => "the same";

test.for<Way>([
  { way: "one by one, of many keys", publish: oneByOne },
  { way: "one by one, all of one key", publish: oneByOne, keyOf: oneKey },
  { way: "together", publish: together },
  { way: "together, with ids of the caller's own", publish: together, options: ownId },
  { way: "in the caller's transaction", publish: inCallers },
  {
    way: "in the caller's transaction, to be flushed",
    publish: inCallers,
    options: () => ({ flush: true }),
  },
])("the work for a message does not grow with its transaction: $way", async ({ publish, keyOf, options }) => {
  const { pool, bus } = await setup();
  let next = 0;
  const given = (count: number): Given[] =>
    Array.from({ length: count }, () => {
      const n = next++;
      return [{ key: keyOf?.(n) ?? `k${n}` }, options?.(n)] as const;
    });
  // The large one first: its statements are planned while the table is empty.
  const large = await blocksPerMessage(pool, LARGE, () => publish(bus, pool, given(LARGE)));
  const small = await blocksPerMessage(pool, SMALL, () => publish(bus, pool, given(SMALL)));
  expect(large).toBeLessThan(2 * small + 10);
});
