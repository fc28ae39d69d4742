import { createBus, refuse, type Bus } from "sagabox";
import { crashAtEveryStep, type CrashTest } from "sagabox/testing";
import type pg from "pg";
import { expect, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { everyKind, Release, Reserve } from "../../test/support/tested-order.ts";

type Database = Parameters<CrashTest<unknown, unknown, "undoable">["makeBus"]>[0];

async function setup(declines = false) {
  const { pool } = await temporaryDatabase({ max: 40, migrated: true });
  await pool.query("create table effect (order_id text, what text, note text)"); // no unique key: twice would be seen
  const calls: { readonly key: string; readonly orderId: string }[] = [];
  const saga = everyKind(async (key, orderId) => {
    calls.push({ key, orderId });
    if (declines) throw refuse("card declined");
    return key;
  });
  const makeBus = (database: Database): Bus => {
    const bus = createBus({ service: "shop", database, log: false });
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

test("a saga with send, run and tx steps keeps each effect once, wherever a process dies", async () => {
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
