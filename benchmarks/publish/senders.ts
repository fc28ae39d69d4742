import type pg from "pg";
import type { Bench } from "../harness/bench.ts";
import { noopTransport } from "../product/noop-transport.ts";
import { order, OrderPlaced } from "../product/order-placed.ts";
import { RunningBus } from "../product/running-bus.ts";
import { Workers } from "../product/worker-process.ts";
import { BUSINESS_INSERT, BUSINESS_TABLE, businessRow } from "../references/business.ts";
import { committedAt, watchCommits } from "./commit-watch.ts";
import { Stopwatch } from "./stopwatch.ts";

/** The usual deployment: services write, a worker process of its own relays. */
export async function relayElsewhere(bench: Bench) {
  const place = await bench.server.database("elsewhere");
  await place.admin.query(BUSINESS_TABLE);
  const watch = new Stopwatch();
  const pool = place.pool(10);
  watchCommits(pool);
  const { bus } = new RunningBus({ database: pool, outbox: { optimistic: false } });
  await bus.migrate();
  const workers = new Workers(1, { url: place.url, latencyMs: 0, reportIds: true }, (ids, atNs) =>
    watch.notePublished(ids, atNs),
  );
  await workers.waitForShare();
  return {
    watch,
    inTransaction: (n: number) => inTransaction(bus, n),
    inCallersTransaction: (n: number) => inCallersTransaction(bus, pool, n),
    async close() {
      await workers.stop();
      await bus.stop();
      await place.drop();
    },
  };
}

export function relayInside(bench: Bench) {
  return inOneProcess(bench, false);
}

/** The process that writes a message also sends it. */
export function optimisticSender(bench: Bench) {
  return inOneProcess(bench, true);
}

async function inOneProcess(bench: Bench, optimistic: boolean) {
  const place = await bench.server.database("inside");
  await place.admin.query(BUSINESS_TABLE);
  const watch = new Stopwatch();
  const pool = place.pool(20);
  watchCommits(pool);
  const running = new RunningBus({
    database: pool,
    outbox: { optimistic },
    transport: noopTransport({
      onPublish: (batch) =>
        watch.notePublished(
          batch.map(({ id }) => id),
          process.hrtime.bigint(),
        ),
    }),
  });
  await running.start();
  return {
    watch,
    inTransaction: (n: number) => inTransaction(running.bus, n),
    async close() {
      await running.stop();
      await place.drop();
    },
  };
}

async function inTransaction(bus: RunningBus["bus"], n: number) {
  const { result, committedNs } = await committedAt(() =>
    bus.transaction(async (tx) => {
      await tx.query(BUSINESS_INSERT, businessRow(n));
      return tx.publish(OrderPlaced, order(n));
    }),
  );
  return { id: result.id, committedNs };
}

async function inCallersTransaction(bus: RunningBus["bus"], pool: pg.Pool, n: number) {
  const client = await pool.connect();
  try {
    await client.query("begin");
    await client.query(BUSINESS_INSERT, businessRow(n));
    const { id } = await bus.publish(client, OrderPlaced, order(n));
    await client.query("commit");
    return { id, committedNs: process.hrtime.bigint() };
  } finally {
    client.release();
  }
}
