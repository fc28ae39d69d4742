import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { rolesHarness } from "../../test/support/roles-harness.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { event } from "../message/index.ts";
import { createBus } from "./create-bus.ts";

const Noted = event("noted", { schema: z.object({}) });
const foreign = { id: "a", consumer: "billing", topic: "orders", type: "order.placed", data: {} };

async function setup(migrated: boolean) {
  const { pool } = await temporaryDatabase({ migrated });
  const bus = createBus({ service: "shop", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  return { pool, bus };
}

test("without the tables the inbox says that they are to be made", async () => {
  const { bus } = await setup(false);
  const missing = { code: "STORAGE_NOT_MIGRATED", message: expect.stringContaining("sagabox migrate up") };
  await expect(bus.inbox.process(foreign, () => undefined)).rejects.toMatchObject(missing);
  await expect(bus.inbox.process({ ...foreign, id: "" }, () => undefined)).rejects.toMatchObject(missing);
  await expect(bus.inbox.stats()).rejects.toMatchObject(missing);
});

test("F10: a role without the rights for the inbox is told which role has them", async () => {
  const house = await rolesHarness();
  const writer = await house.bus(["writer"]);
  const denied = { code: "STORAGE_PERMISSION_DENIED", message: expect.stringContaining("sagabox_consumer") };
  await expect(writer.inbox.process(foreign, () => undefined)).rejects.toMatchObject(denied);
  await expect(writer.inbox.stats()).rejects.toMatchObject(denied);
}, 60_000);

test("F10: a table of the user's own that is forbidden is told in the server's words", async () => {
  const house = await rolesHarness();
  await house.pool.query("create table public.secret (n int)");
  const own = { code: "42501", message: "permission denied for table secret" };
  const writer = await house.bus(["writer"]);
  await expect(writer.transaction((tx) => tx.query("select n from secret"))).rejects.toMatchObject(own);
  const consumer = await house.bus(["consumer"]);
  const handled = consumer.inbox.process(foreign, async (_, { tx }) => void (await tx.query("table secret")));
  await expect(handled).rejects.toMatchObject(own);
}, 60_000);

test("what is thrown in a transaction and is no error is thrown on as it is, and all is rolled back", async () => {
  const { bus, pool } = await setup(true);
  const redirect = Object.freeze({ status: 303, location: "/orders" });
  for (const thrown of [redirect, "stop", undefined]) {
    const failing = bus.transaction(async (tx) => {
      await tx.publish(Noted, {});
      throw thrown;
    });
    expect(
      await failing.then(
        () => "committed",
        (error: unknown) => error,
      ),
    ).toBe(thrown);
  }
  expect((await pool.query("select 1 from sagabox.message")).rows).toEqual([]);
});

test("any other time that a Date can hold is one that the database can hold", async () => {
  const { bus, pool } = await setup(true);
  const times = [new Date("-004713-11-24T00:00:00Z"), new Date(0), new Date(8.64e15)];
  await bus.transaction(async (tx) => {
    for (const at of times) await tx.publish(Noted, {}, { at });
  });
  const { rows } = await pool.query("select count(*)::int as waiting from sagabox.scheduled");
  expect(rows).toEqual([{ waiting: 3 }]);
});
