import { createBus, refuse, type Bus } from "sagabox";
import { crashAtEveryStep, type CrashRun, type CrashTest } from "sagabox/testing";
import type pg from "pg";
import { expect, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { approval, Approved, everyKind, Release, Reserve } from "../../test/support/tested-order.ts";

type Database = Parameters<CrashTest<unknown, unknown, "undoable">["makeBus"]>[0];

async function setup({ declines = false, forgets = false } = {}) {
  const { pool } = await temporaryDatabase({ max: 40, migrated: true });
  await pool.query("create table effect (order_id text, what text, note text)"); // no unique key: twice would be seen
  const calls: { readonly key: string; readonly orderId: string }[] = [];
  const saga = everyKind(async (key, orderId) => {
    calls.push({ key, orderId });
    if (declines) throw refuse("card declined");
    if (forgets && calls.filter((call) => call.key === key).length > 1) throw refuse("paid already");
    return key;
  });
  const makeBus = (database: Database): Bus => {
    const bus = createBus({ service: "shop", database, log: false, shutdownTimeout: "1s" });
    bus.register(saga);
    const consumer = { consumer: "warehouse" };
    bus.on(Reserve, consumer, async ({ data }, { tx }) => {
      await tx.query("insert into effect values ($1, 'reserve', null)", [data.orderId]);
      return { shelf: "A" };
    });
    bus.on(Release, consumer, async ({ data }, { tx }) => {
      await tx.query("insert into effect values ($1, 'release', null)", [data.orderId]);
    });
    return bus;
  };
  return { pool, saga, calls, makeBus };
}

async function effects(pool: pg.Pool, orderId: string): Promise<string[]> {
  const sql = "select what from effect where order_id = $1 order by what";
  return (await pool.query<{ what: string }>(sql, [orderId])).rows.map(({ what }) => what);
}

test("a saga with send, run and tx steps has each effect once after any crash", async () => {
  const { pool, saga, calls, makeBus } = await setup();
  // #region crash
  const { transitions, crashes, status } = await crashAtEveryStep({
    database: pool, // of a database for this test alone
    makeBus,
    saga,
    input: (run) => ({ orderId: `order-${run}` }),
    check: async ({ input: { orderId } }) => {
      expect(await effects(pool, orderId)).toEqual(["book", "reserve"]);
      const keys = calls.filter((call) => call.orderId === orderId).map(({ key }) => key);
      expect(keys.length).toBeGreaterThan(0); // a function may run again after a crash
      expect(new Set(keys).size).toBe(1); // and the bank knows it by its key
    },
  });
  // #endregion crash
  expect(status).toBe("completed");
  expect(transitions).toBeGreaterThanOrEqual(4);
  expect(crashes).toBe(2 * transitions);
  expect(calls.length).toBeGreaterThan(2 * transitions + 1);
}, 120_000);

test("each effect is undone once after any crash during compensation", async () => {
  const { pool, saga, makeBus } = await setup({ declines: true });
  const { transitions, crashes, status } = await crashAtEveryStep({
    database: pool,
    makeBus,
    saga,
    input: (run) => ({ orderId: `order-${run}` }),
    check: async ({ input }) => expect(await effects(pool, input.orderId)).toEqual(["release", "reserve"]),
  });
  expect([status, crashes]).toEqual(["compensated", 2 * transitions]);
}, 120_000);

test("drive is called for the bus that is running", async () => {
  const { pool, makeBus } = await setup();
  const saga = approval();
  // #region drive
  const drive = async ({ bus, input: { orderId } }: CrashRun<{ orderId: string }>): Promise<void> => {
    const id = `approval of ${orderId}`; // the same after a crash, so that it counts once
    await bus.transaction((tx) => tx.publish(Approved, { orderId }, { id }));
  };
  // #endregion drive
  const report = await crashAtEveryStep({
    database: pool,
    makeBus: (database) => {
      const bus = makeBus(database);
      bus.register(saga);
      return bus;
    },
    saga,
    input: (run) => ({ orderId: `order-${run}` }),
    drive,
    check: ({ saga: { steps } }) =>
      expect(steps.map(({ step, status }) => [step, status])).toEqual([["approved", "completed"]]),
  });
  expect(report).toEqual({ transitions: 2, crashes: 4, status: "completed" });
}, 120_000);

test("a step that cannot run twice fails the test, which names the crash point", async () => {
  const { pool, saga, makeBus } = await setup({ forgets: true });
  const run = crashAtEveryStep({
    database: pool,
    makeBus,
    saga,
    input: (n) => ({ orderId: `order-${n}` }),
  });
  await expect(run).rejects.toThrow(
    /^After a crash right before transition 3: Saga .* was expected to be completed/,
  );
}, 120_000);

test("a failed check names the crash point and leaves no connection open", async () => {
  const { pool, saga, calls, makeBus } = await setup();
  const run = crashAtEveryStep({
    database: pool,
    makeBus,
    saga,
    input: (n) => ({ orderId: `order-${n}` }),
    check: ({ input }) => expect(calls.filter(({ orderId }) => orderId === input.orderId)).toHaveLength(1),
  });
  await expect(run).rejects.toThrow("After a crash right before transition 3");
}, 120_000);
