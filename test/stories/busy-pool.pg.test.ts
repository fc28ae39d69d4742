import pg from "pg";
import { createBus, event } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../support/database.ts";
import { RecordingObserver } from "../support/recording-observer.ts";

const Happened = event("happened", { schema: z.object({ n: z.number() }) });

test("D8: leases are kept while the application has taken every connection of the pool", async () => {
  const { pool: outside, url } = await temporaryDatabase();
  const pool = new pg.Pool({ connectionString: url, max: 12 });
  pool.on("error", () => undefined);
  const observer = new RecordingObserver();
  const bus = createBus({
    service: "test",
    database: pool,
    lease: "1s",
    log: false,
    observers: [observer],
  });
  await bus.migrate();
  bus.on(Happened, { consumer: "books" }, () => undefined);
  onTestFinished(async () => {
    await bus.stop();
    await pool.end();
  });
  await bus.run();
  await bus.transaction((tx) => tx.publish(Happened, { n: 1 }));
  await observer.until("consumer.processed");
  const taken: pg.PoolClient[] = [];
  let greedy = true;
  const takeAll = async (): Promise<void> => {
    while (greedy) taken.push(await pool.connect());
    for (const client of taken) client.release();
  };
  const giveBack = takeAll(); // waits when no connection is left, and takes each that comes back
  await expect.poll(() => pool.waitingCount, { timeout: 10_000 }).toBeGreaterThan(0);
  const countRenewals = async (): Promise<number> =>
    (
      await outside.query<{ value: number }>(
        "select extract(epoch from min(lease_until))::double precision as value from sagabox.member where scope >= 0",
      )
    ).rows[0]?.value ?? 0;
  const first = await countRenewals();
  await expect.poll(countRenewals, { timeout: 10_000 }).toBeGreaterThan(first + 2);
  expect(observer.of("lanes.lost")).toEqual([]);
  greedy = false;
  taken.pop()?.release();
  await giveBack;
});
