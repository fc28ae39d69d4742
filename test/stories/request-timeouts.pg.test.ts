import { command, createBus, type Bus, type Transport } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase, type TemporaryDatabase } from "../support/database.ts";

const Reserve = command("ask.reserve", { schema: z.object({ sku: z.string() }) });
const Note = command("ask.note", { schema: z.object({ text: z.string() }) });

const database = (): Promise<TemporaryDatabase> => temporaryDatabase({ max: 40, migrated: true });

async function startBus(pool: TemporaryDatabase["pool"], transport: Transport): Promise<Bus> {
  const bus = createBus({ service: "shop", database: pool, transport, log: false });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate();
  await bus.run();
  return bus;
}

test("B8: the timeout bounds the call also while the broker that brings replies does not let us in", async () => {
  const { pool } = await database();
  const transport = new MemoryTransport();
  const subscribe = transport.subscribe.bind(transport);
  let letIn: () => void = () => undefined;
  const open = new Promise<void>((resolve) => (letIn = resolve));
  transport.subscribe = async (...given) => {
    await open;
    return subscribe(...given);
  };
  const bus = await startBus(pool, transport);
  const began = performance.now();
  await expect(bus.request(Reserve, { sku: "a" }, { timeout: 200 })).rejects.toMatchObject({
    code: "REQUEST_TIMEOUT",
    message: expect.stringContaining("could not be sent"),
  });
  expect(performance.now() - began).toBeLessThan(2_000);
  letIn();
  const late = bus.request(Note, { text: "x" }, { timeout: 1_000 }); // long enough to be sent on a slow machine
  await expect(late).rejects.toMatchObject({ message: expect.stringContaining("may still be carried out") });
  const written = await pool.query("select type from sagabox.message");
  expect(written.rows).toEqual([{ type: "ask.note" }]);
});

test("B8: the timeout bounds the call also while there is no connection to send with, and nothing is sent later", async () => {
  const { pool } = await database();
  const bus = await startBus(pool, new MemoryTransport());
  await bus.request(Note, { text: "first" }, { timeout: 100 }).catch(() => undefined);
  const connect = pool.connect.bind(pool);
  let free: () => void = () => undefined;
  const freed = new Promise<void>((resolve) => (free = resolve));
  pool.connect = (async () => {
    await freed;
    return connect();
  }) as typeof pool.connect;
  const began = performance.now();
  await expect(bus.request(Reserve, { sku: "a" }, { timeout: 200 })).rejects.toMatchObject({
    code: "REQUEST_TIMEOUT",
    message: expect.stringContaining("could not be sent"),
  });
  expect(performance.now() - began).toBeLessThan(2_000);
  pool.connect = connect;
  free();
  await bus.request(Note, { text: "last" }, { timeout: 1_000 }).catch(() => undefined);
  const written = await pool.query("select distinct type from sagabox.message");
  expect(written.rows).toEqual([{ type: "ask.note" }]);
});
