import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { createBus, event } from "sagabox";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { RecordingObserver } from "../../../test/support/recording-observer.ts";

const Happened = event("happened", { schema: z.object({ n: z.number() }), key: ({ n }) => `k${n % 7}` });

/** Starts a consumer whose batches write one row for each message. `before` runs before the first batch. */
async function setup(before: (pool: Awaited<ReturnType<typeof temporaryDatabase>>["pool"]) => Promise<void>) {
  const { pool } = await temporaryDatabase({ max: 20 });
  const observer = new RecordingObserver();
  const sent: string[] = [];
  pool.on("connect", (client) => {
    const send = client.query.bind(client) as (...args: unknown[]) => unknown;
    const query = (...args: unknown[]): unknown => {
      sent.push(String((args[0] as { name?: string }).name).replace(/:.*/, ""));
      return send(...args);
    };
    Object.assign(client, { query });
  });
  const bus = createBus({ service: "test", database: pool, log: false, observers: [observer] });
  await bus.migrate();
  await pool.query("create table effect (n integer not null)");
  onTestFinished(async () => void (await bus.stop()));
  let begun = false;
  const options = { consumer: "many", concurrency: 1, batch: { size: 50, wait: "200ms" } } as const;
  bus.onBatch(Happened, options, async (messages, { tx }) => {
    if (!begun && messages.length > 1) {
      begun = true;
      await before(pool);
    }
    const all = messages.map(({ data }) => data.n);
    await tx.query("insert into effect (n) select unnest($1::integer[])", [all]);
  });
  await bus.run();
  const publish = (count: number): Promise<void> =>
    bus.transaction(async (tx) => {
      for (let n = 0; n < count; n++) await tx.publish(Happened, { n });
    });
  const effects = async (): Promise<number[]> => {
    const { rows } = await pool.query<{ n: number }>("select n from effect order by n");
    return rows.map(({ n }) => n);
  };
  const waiting = async (): Promise<number> => {
    const { rows } = await pool.query<{ n: number }>("select count(*)::integer as n from sagabox.queue");
    return rows[0]?.n ?? Number.NaN;
  };
  return { observer, sent, publish, effects, waiting };
}

test("the deliveries of a batch are acknowledged by one statement in the effect's transaction", async () => {
  const { observer, sent, publish, effects, waiting } = await setup(() => Promise.resolve());
  await publish(40);
  await observer.until("consumer.processed", 40);
  expect(await effects()).toEqual(Array.from({ length: 40 }, (_, n) => n));
  expect(await waiting()).toBe(0);
  const together = sent.filter((name) => name === "sagabox.queue.ack_inside_all").length;
  const alone = sent.filter((name) => name === "sagabox.queue.ack_inside").length;
  expect(together).toBeGreaterThan(0);
  expect(together + alone).toBeLessThan(10);
});

test("I-06: a batch has no effect for the one delivery that another member settled", async () => {
  const { observer, publish, effects, waiting } = await setup(async (pool) => {
    await pool.query(
      "delete from sagabox.queue where seq = (select min(seq) from sagabox.queue where stream is not null)",
    );
  });
  await publish(10);
  await observer.until("consumer.processed", 9);
  await expect.poll(waiting).toBe(0);
  const done = await effects();
  expect([done.length, new Set(done).size]).toEqual([9, 9]);
});
