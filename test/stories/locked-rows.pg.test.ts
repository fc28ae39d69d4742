import type pg from "pg";
import { createBus, event, type Bus } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase, BLOCKED_BY_FOREIGN, lockRows } from "../support/database.ts";
import { RecordingObserver } from "../support/recording-observer.ts";
import { until } from "../support/relays.ts";

const Happened = event("happened", {
  schema: z.object({ key: z.string(), n: z.number() }),
  key: ({ key }) => key,
});
const KEYS = 100;
const PER_KEY = 10;
const LOCKED = "k0";

type TransportKind = "postgres" | "broker";

/** A bus whose handler notes each message, and a foreign session that can lock rows. */
async function setup(way: TransportKind, optimistic: boolean, lease: "2s" | "30s") {
  const { pool } = await temporaryDatabase({ max: 40 });
  const observer = new RecordingObserver();
  const transport = new MemoryTransport();
  const bus = (sends: boolean): Bus => {
    const made = createBus({
      service: "test",
      database: pool,
      lease,
      log: false,
      observers: [observer],
      outbox: { optimistic: sends },
      ...(way === "broker" && { transport }),
    });
    onTestFinished(async () => void (await made.stop()));
    return made;
  };
  const writer = bus(false);
  await writer.migrate();
  await pool.query("create table effect (n bigserial, key text, number integer)");
  const worker = bus(optimistic);
  worker.on(Happened, { consumer: "notes" }, async ({ data }, { tx }) => {
    await tx.query("insert into effect (key, number) values ($1, $2)", [data.key, data.n]);
  });
  const publish = (by: Bus, key: string, n: number): Promise<unknown> =>
    by.transaction((tx) => tx.publish(Happened, { key, n }));
  return { pool, observer, writer, worker, publish };
}

async function progress(pool: pg.Pool): Promise<{ locked: number[]; others: Map<string, number[]> }> {
  const { rows } = await pool.query<{ key: string; numbers: number[] }>(
    "select key, array_agg(number order by n) as numbers from effect group by key",
  );
  const others = new Map(rows.map(({ key, numbers }) => [key, numbers]));
  const locked = others.get(LOCKED) ?? [];
  others.delete(LOCKED);
  return { locked, others };
}

const inOrder = Array.from({ length: PER_KEY }, (_, n) => n);

test.for<[TransportKind, "relay" | "optimistic", "2s" | "30s"]>([
  ["postgres", "relay", "30s"],
  ["postgres", "relay", "2s"],
  ["postgres", "optimistic", "30s"],
  ["broker", "relay", "30s"],
  ["broker", "relay", "2s"],
  ["broker", "optimistic", "30s"],
])(
  "a foreign lock on one outbox row holds back its own key and no other (%s, %s, lease %s)",
  async (given) => {
    const [way, sends, lease] = given;
    const { pool, observer, writer, worker, publish } = await setup(way, sends === "optimistic", lease);
    await publish(writer, LOCKED, 0);
    const { release } = await lockRows(pool, "select 1 from sagabox.outbox for share");
    await worker.run();
    for (let n = 0; n < PER_KEY; n++)
      await Promise.all(
        Array.from({ length: KEYS }, (_, k) => `k${k}`)
          .filter((key) => key !== LOCKED || n > 0)
          .map((key) => publish(worker, key, n)),
      );
    await until(async () => {
      const { others } = await progress(pool);
      return others.size === KEYS - 1 && [...others.values()].every(({ length }) => length === PER_KEY);
    }, 60_000);
    const during = await progress(pool);
    for (const numbers of during.others.values()) expect(numbers).toEqual(inOrder);
    // A broker got the first messages of the key before a receipt was written; the Postgres transport got none.
    expect(during.locked).toEqual(inOrder.slice(0, way === "broker" ? during.locked.length : 0));
    await until(() =>
      observer.of("locks.blocked").some(({ blockedBy }) => BLOCKED_BY_FOREIGN.test(blockedBy)),
    );
    await release();
    await until(async () => (await progress(pool)).locked.length >= PER_KEY, 60_000);
    expect((await progress(pool)).locked).toEqual(inOrder);
    await until(async () => (await pool.query("select 1 from sagabox.outbox")).rows.length === 0);
  },
);
