import type pg from "pg";
import { createBus, event, type Bus } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase, BLOCKED_BY_FOREIGN, lockRows } from "../../../test/support/database.ts";
import { RecordingObserver } from "../../../test/support/recording-observer.ts";
import { until } from "../../../test/support/relays.ts";

const Happened = event("happened", {
  schema: z.object({ key: z.string(), n: z.number() }),
  key: ({ key }) => key,
});
const KEYS = 20;
const PER_KEY = 5;
const LOCKED = "k0";
const inOrder = Array.from({ length: PER_KEY }, (_, n) => n);

type Kind = "one by one" | "batches" | "statements" | "failing first";

/** Creates a worker that has not started, with deliveries already waiting for it. */
async function setup(kind: Kind) {
  const { pool } = await temporaryDatabase({ max: 40 });
  const observer = new RecordingObserver();
  const newBus = (): Bus => {
    const bus = createBus({ service: "test", database: pool, log: false, observers: [observer] });
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  const [subscriber, publisher, worker] = [newBus(), newBus(), newBus()];
  await publisher.migrate();
  await pool.query("create table effect (n bigserial, key text, number integer)");
  handle(subscriber, kind);
  await subscriber.run();
  await subscriber.stop();
  await publisher.run({ parts: ["relay"] });
  for (const n of inOrder)
    await publisher.transaction(async (tx) => {
      for (let k = 0; k < KEYS; k++) await tx.publish(Happened, { key: `k${k}`, n });
    });
  await until(async () => (await waiting(pool)) === KEYS * PER_KEY);
  handle(worker, kind);
  return { pool, observer, worker };
}

function handle(bus: Bus, kind: Kind): void {
  const insert = "insert into effect (key, number) values ($1, $2)";
  const consumer = "notes";
  const failed = new Set<string>();
  if (kind === "batches")
    bus.onBatch(Happened, { consumer, batch: { size: 20 } }, async (messages, { tx }) => {
      for (const { data } of messages) await tx.query(insert, [data.key, data.n]);
    });
  else if (kind === "statements")
    bus.on(Happened, {
      consumer,
      statement: ({ data }) => ({
        text: "insert into effect (key, number) select $1::text, $2::integer from fresh",
        params: [data.key, data.n],
      }),
    });
  else
    bus.on(Happened, { consumer, retry: { firstDelay: 50 } }, async ({ id, data }, { tx }) => {
      if (kind === "failing first" && !failed.has(id)) {
        failed.add(id);
        throw new Error("failed on purpose");
      }
      await tx.query(insert, [data.key, data.n]);
    });
}

async function waiting(pool: pg.Pool): Promise<number> {
  const { rows } = await pool.query<{ n: number }>("select count(*)::integer as n from sagabox.queue");
  return rows[0]?.n ?? Number.NaN;
}

async function effects(pool: pg.Pool): Promise<Map<string, number[]>> {
  const { rows } = await pool.query<{ key: string; numbers: number[] }>(
    "select key, array_agg(number order by n) as numbers from effect group by key",
  );
  return new Map(rows.map(({ key, numbers }) => [key, numbers]));
}

test.for<Kind>(["one by one", "batches", "statements", "failing first"])(
  "a foreign lock on one delivery holds back its own key and no other (%s)",
  async (kind) => {
    const { pool, observer, worker } = await setup(kind);
    const first = `select 1 from sagabox.queue where seq = (
      select min(queue.seq) from sagabox.queue join sagabox.message on message.id = queue.message_id
       where message.key = $1) for share`;
    const { rowCount, release } = await lockRows(pool, first, [LOCKED]);
    expect(rowCount).toBe(1);
    await worker.run();
    await until(async () => {
      const seen = await effects(pool);
      seen.delete(LOCKED);
      return seen.size === KEYS - 1 && [...seen.values()].every(({ length }) => length === PER_KEY);
    }, 60_000);
    await until(() =>
      observer.of("locks.blocked").some(({ blockedBy }) => BLOCKED_BY_FOREIGN.test(blockedBy)),
    );
    await release();
    await until(async () => (await waiting(pool)) === 0, 60_000);
    const seen = await effects(pool);
    expect(seen.size).toBe(KEYS);
    for (const numbers of seen.values()) expect(numbers).toEqual(inOrder);
    const counted = observer.of("consumer.retried").filter((one) => one.countsAsAttempt).length;
    expect(counted).toBe(kind === "failing first" ? KEYS * PER_KEY : 0);
  },
);
