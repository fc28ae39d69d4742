import { createBus } from "../../src/index.ts";
import { size, type Bench } from "../harness/bench.ts";
import { compare, type Contender } from "../harness/compare.ts";
import { result, type Result } from "../harness/result.ts";
import type { BenchDatabase } from "../harness/server.ts";
import { median, computeRatio } from "../harness/statistics.ts";
import { countStatements, measureWal } from "../harness/usage.ts";
import { noopTransport } from "../product/noop-transport.ts";
import { order, OrderPlaced } from "../product/order-placed.ts";
import { RunningBus } from "../product/running-bus.ts";
import {
  BUSINESS_INSERT,
  BUSINESS_TABLE,
  businessRow,
  emptyBusinessTable,
  plainTransaction,
  measureRate,
} from "../references/business.ts";
import {
  archivingSketchTransaction,
  sameRowsTransaction,
  SKETCH_ARCHIVE,
  SKETCH_OUTBOX,
  sketchTransaction,
} from "../references/sketch-writes.ts";

/** A business transaction that publishes one event, against the same transaction without. No relay is running. */
export async function transaction(bench: Bench): Promise<Result[]> {
  const plain = await bench.server.database("plain");
  await plain.admin.query(BUSINESS_TABLE);
  const sketch = await bench.server.database("sketch");
  await sketch.admin.query(`${BUSINESS_TABLE}; ${SKETCH_OUTBOX}`);
  const archive = await bench.server.database("archive");
  await archive.admin.query(`${BUSINESS_TABLE}; ${SKETCH_ARCHIVE}`);
  const rows = await bench.server.database("rows");
  await rows.admin.query(BUSINESS_TABLE);
  await createBus({ service: "bench", database: rows.pool(2), log: "error" }).migrate();
  const relayed = await open(bench, false);
  const optimistic = await open(bench, true);
  const results: Result[] = [];
  for (const connections of [1, 8, 32] as const) {
    const count = size(bench, connections === 1 ? 2_000 : 6_000, 1_000);
    const pool = plain.pool(connections);
    const sketchPool = sketch.pool(connections);
    const archivePool = archive.pool(connections);
    const rowsPool = rows.pool(connections);
    const run = (place: BenchDatabase, work: (n: number) => Promise<void>): Contender => {
      return async () => {
        await emptyBusinessTable(place);
        return measureRate(count, connections, work);
      };
    };
    const samples = await compare(bench, `P4.${connections}, transactions/s`, {
      plain: run(plain, (n) => plainTransaction(pool, n)),
      sagabox: run(relayed.place, relayed.publish),
      optimistic: run(optimistic.place, optimistic.publish),
      sketch: run(sketch, (n) => sketchTransaction(sketchPool, n)),
      archive: run(archive, (n) => archivingSketchTransaction(archivePool, n)),
      rows: run(rows, (n) => sameRowsTransaction(rowsPool, n)),
    });
    const detail = {
      "transactions/s": median(samples.sagabox),
      "without outbox": median(samples.plain),
      "ratio while the writer also sends and settles": computeRatio(samples.optimistic, samples.plain).ratio,
      "sketch with one wide row": computeRatio(samples.sketch, samples.plain).ratio,
      "with message and narrow row": computeRatio(samples.archive, samples.plain).ratio,
      ...(await measureCost(relayed, connections === 1)),
    };
    for (const used of [pool, sketchPool, archivePool, rowsPool]) await used.end();
    const room = computeRatio(samples.rows, samples.plain);
    results.push(result(`P4.${connections}`, computeRatio(samples.sagabox, samples.plain), detail, room));
  }
  for (const one of [relayed, optimistic]) await one.close();
  for (const place of [plain, sketch, archive, rows]) await place.drop();
  return results;
}

async function open(bench: Bench, sendsAtOnce: boolean) {
  const place = await bench.server.database("publish");
  await place.admin.query(BUSINESS_TABLE);
  const pool = place.pool(40);
  const statements = countStatements(pool);
  const running = new RunningBus({
    database: pool,
    transport: noopTransport(),
    outbox: { optimistic: sendsAtOnce },
  });
  await running.bus.migrate();
  return {
    place,
    statements,
    publish: (n: number): Promise<void> =>
      running.bus.transaction(async (tx) => {
        await tx.query(BUSINESS_INSERT, businessRow(n));
        await tx.publish(OrderPlaced, order(n));
      }),
    async close(): Promise<void> {
      await running.stop();
      await place.drop();
    },
  };
}

/** Measured once: it is the same for any number of connections. */
async function measureCost(
  { place, statements, publish }: Awaited<ReturnType<typeof open>>,
  wanted: boolean,
): Promise<Record<string, number>> {
  if (!wanted) return {};
  const count = 500;
  const before = statements.count();
  const wal = await measureWal(place, () => measureRate(count, 1, publish));
  return {
    "statements per transaction": (statements.count() - before) / count,
    "WAL bytes per transaction": wal / count,
  };
}
