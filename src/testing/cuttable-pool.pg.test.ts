import { createBus, type Bus } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase, asleep, endSleepers } from "../../test/support/database.ts";
import { approval } from "../../test/support/tested-order.ts";
import { CuttablePool, type CrashPoint } from "./cuttable-pool.ts";

async function setup(cutAt?: CrashPoint) {
  const { pool } = await temporaryDatabase({ migrated: true });
  const database = new CuttablePool(pool, cutAt);
  const bus = createBus({ service: "shop", database, log: false, shutdownTimeout: "1s" });
  onTestFinished(async () => void (await bus.stop()));
  const saga = approval();
  bus.register(saga);
  const start = (with_: Bus = bus) => with_.transaction((tx) => with_.start(tx, saga, { orderId: "o1" }));
  const instances = async () => (await pool.query("select 1 from sagabox.saga_instance")).rowCount;
  return { pool, database, bus, start, instances };
}

test("a pool that is cut before a transition never commits it", async () => {
  const { database, start, instances } = await setup({ transition: 1, when: "before" });
  await expect(start()).rejects.toThrow("The connection ended before the server answered COMMIT");
  await database.hasBeenCut;
  expect(await instances()).toBe(0);
});

test("a pool that is cut after a transition has committed it without an answer", async () => {
  const { database, start, instances } = await setup({ transition: 1, when: "after" });
  await expect(start()).rejects.toThrow("The connection ended before the server answered COMMIT");
  expect([database.transitions, await instances()]).toEqual([1, 1]);
});

test("a pool that was cut rejects new and running statements", async () => {
  const { pool, database, bus, instances } = await setup();
  await bus.transaction((tx) => tx.query("select 1"));
  const sleeping = bus.transaction((tx) => tx.query("select pg_sleep(60)"));
  const client = await database.connect();
  await asleep(pool);
  database.cut();
  database.cut();
  await expect(sleeping).rejects.toThrow();
  await expect(client.query("select 1")).rejects.toThrow("Connection terminated");
  client.release();
  await expect(database.connect()).rejects.toThrow("Connection terminated");
  await expect(bus.sagas.list()).rejects.toThrow();
  expect([database.pids.length, database.transitions, await instances()]).toEqual([2, 0, 0]);
  await endSleepers(pool);
});

test("a pool without a crash point only counts committed transitions", async () => {
  const { database, bus, start } = await setup();
  expect((await start()).started).toBe(true);
  expect((await start()).started).toBe(false); // its key is taken
  await bus.transaction((tx) => tx.query("select 1"));
  expect([database.transitions, database.isCut]).toEqual([1, false]);
});
