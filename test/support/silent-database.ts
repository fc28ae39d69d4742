import pg from "pg";
import { createBus, event, type Bus, type BusOptions, type Transport } from "sagabox";
import { expect, onTestFinished } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "./database.ts";
import { RecordingObserver } from "./recording-observer.ts";
import { Wire } from "./wire.ts";

export const Noted = event("noted", {
  schema: z.object({ key: z.string(), n: z.number() }),
  key: ({ key }) => key,
});

/** Enough keys that both of two workers always own some of them. */
const KEYS = Array.from({ length: 40 }, (_, n) => `k${n}`);

export interface WorkerUnderTest {
  readonly bus: Bus;
  readonly observer: RecordingObserver;
  /** How many messages this worker handled. */
  countHandled(): number;
}

/**
 * A database and workers that reach it directly or through a wire that can go silent. Every message is written to the
 * table `effect`, so order and duplicates can be checked.
 */
export async function silentDatabase(transport?: () => Transport) {
  const database = await temporaryDatabase({ migrated: true, leakGuard: false });
  const { pool, url } = database;
  await pool.query("create table effect (at bigserial, key text not null, n integer not null, worker text)");
  const wire = await Wire.to(url);
  onTestFinished(() => wire.close());
  const source = createBus({
    service: "source",
    database: pool,
    log: false,
    ...(transport === undefined ? {} : { transport: transport() }),
  });
  onTestFinished(async () => void (await source.stop()));
  let rounds = 0;

  const worker = async (
    name: string,
    at: string,
    options: Partial<BusOptions> = {},
  ): Promise<WorkerUnderTest> => {
    const observer = new RecordingObserver();
    const bus = createBus({
      service: "notes",
      worker: name,
      database: at,
      lease: "2s",
      log: false,
      shutdownTimeout: "10s",
      observers: [observer],
      ...(transport === undefined ? {} : { transport: transport() }),
      ...options,
    });
    bus.on(Noted, { consumer: "notes", concurrency: 10 }, async ({ data }, { tx }) => {
      await tx.query("insert into effect (key, n, worker) values ($1, $2, $3)", [data.key, data.n, name]);
    });
    onTestFinished(async () => void (await bus.stop()));
    await bus.run();
    return { bus, observer, countHandled: () => observer.of("consumer.processed").length };
  };

  return {
    ...database,
    wire,
    worker,
    /** Publishes the next number of every key. */
    publish: async (): Promise<void> => {
      const n = rounds++;
      await source.transaction(async (tx) => {
        for (const key of KEYS) await tx.publish(Noted, { key, n });
      });
    },
    /** Waits until all messages have had their effect: each once, and in the order of its key. */
    allHandled: async (timeout = 60_000): Promise<void> => {
      const count = async (): Promise<number> =>
        (await pool.query<{ count: number }>("select count(*)::integer as count from effect")).rows[0]
          ?.count ?? 0;
      await expect.poll(count, { timeout }).toBeGreaterThanOrEqual(rounds * KEYS.length);
      const { rows } = await pool.query<{ key: string; numbers: number[] }>(
        "select key, array_agg(n order by at) as numbers from effect group by key",
      );
      const expected = Array.from({ length: rounds }, (_, n) => n);
      expect(rows.map(({ numbers }) => numbers)).toEqual(KEYS.map(() => expected));
    },
    /** Runs SQL as the owner of the server, on a connection to another database. */
    asAdmin: async (sql: string): Promise<void> => {
      const admin = new URL(url);
      admin.pathname = "/postgres";
      const client = new pg.Client({ connectionString: admin.href });
      await client.connect();
      try {
        await client.query(sql);
      } finally {
        await client.end();
      }
    },
  };
}

/**
 * One of two workers loses its connections to the database silently. The other takes over all its keys, the
 * first says what is wrong, and takes part again when the wire is healed.
 */
export async function expectTakeOverAndReturn(transport?: () => Transport): Promise<void> {
  const { wire, url, worker, publish, allHandled } = await silentDatabase(transport);
  const cutOff = await worker("cut-off", wire.url, { shutdownTimeout: "5s" });
  const healthy = await worker("healthy", url);
  // With a broker it takes a moment until both have partitions.
  const worksAgain = async (): Promise<number> => {
    const before = cutOff.countHandled();
    await publish();
    await allHandled();
    return cutOff.countHandled() - before;
  };
  await expect.poll(worksAgain, { timeout: 60_000 }).toBeGreaterThan(0);
  await expect
    .poll(() => cutOff.bus.health(), { timeout: 60_000 })
    .toMatchObject({ ok: true, checks: { database: true } });

  wire.swallow();
  await publish();
  await allHandled(); // by the healthy worker, which has taken over every key
  await expect
    .poll(() => cutOff.bus.health(), { timeout: 60_000 })
    .toMatchObject({ ok: false, checks: { database: false, relay: false, "consumer notes": false } });
  const failures = (): string[] => cutOff.observer.of("storage.failed").map(({ error }) => error);
  await expect.poll(failures, { timeout: 60_000 }).toContainEqual(expect.stringMatching(/did not answer/));
  await cutOff.observer.until("consumer.interrupted");

  wire.heal();
  await expect
    .poll(() => cutOff.bus.health(), { timeout: 60_000 })
    .toMatchObject({ ok: true, checks: { database: true, relay: true, "consumer notes": true } });
  await expect.poll(worksAgain, { timeout: 60_000 }).toBeGreaterThan(0);
  await cutOff.observer.until("consumer.resumed");
  expect((await healthy.bus.health()).ok).toBe(true);
}
