import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../test/support/database.ts";
import { until } from "../../test/support/relays.ts";
import { command, event } from "../message/index.ts";
import { sleep } from "../runtime/index.ts";
import { MemoryTransport } from "../testing/memory-transport.ts";
import { createBus } from "./create-bus.ts";
import type { WorkerPart } from "../options/index.ts";

const Placed = event("order.placed", { schema: z.object({ n: z.number() }) });

async function setup() {
  const { pool } = await temporaryDatabase({ max: 40 });
  const seen: number[] = [];
  const make = () => {
    const bus = createBus({ service: "shop", database: pool, log: false, outbox: { optimistic: false } });
    bus.on(Placed, { consumer: "books", from: "beginning" }, ({ data }) => void seen.push(data.n));
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  const count = async (table: string) =>
    Number((await pool.query<{ n: string }>(`select count(*) as n from sagabox.${table}`)).rows[0]?.n);
  return { make, seen, count };
}

test("G10: relay and consumers run in processes of their own, and each does nothing of the other's", async () => {
  const { make, seen, count } = await setup();
  const [relay, consumers] = [make(), make()];
  await relay.migrate();
  await consumers.run({ parts: ["consumers"] });
  await relay.transaction((tx) => tx.publish(Placed, { n: 1 }));
  await until(async () => (await consumers.health()).ok);
  expect((await consumers.health()).checks).toEqual({ database: true, "consumer books": true });
  expect(await count("outbox")).toBe(1);
  await relay.run({ parts: ["relay"] });
  await until(() => seen.length === 1);
  await until(async () => (await count("outbox")) === 0);
  expect((await relay.health()).checks).toEqual({ database: true, relay: true });
});

test("G10: upkeep alone makes the partitions and takes no messages", async () => {
  const { make, seen, count } = await setup();
  const bus = make();
  await bus.migrate();
  await bus.run({ parts: ["upkeep"] });
  await bus.transaction((tx) => tx.publish(Placed, { n: 1 }));
  await until(async () => (await count("message")) === 1);
  expect([await count("outbox"), await count("member"), seen]).toEqual([1, 0, []]);
});

test.each([
  [[], "at least one"],
  ["relay", "at least one"],
  [["relais"], 'Did you mean "relay"?'],
])("parts that make no sense are refused: %j", async (parts, says) => {
  const { make } = await setup();
  const bus = make();
  await expect(bus.run({ parts: parts as WorkerPart[] })).rejects.toMatchObject({
    code: "OPTIONS_INVALID",
    message: expect.stringContaining(says),
  });
});

test("a request in a process without consumers says which part it needs", async () => {
  const { make } = await setup();
  const bus = make();
  await bus.migrate();
  await bus.run({ parts: ["relay"] });
  const Ask = command("ask", { schema: z.object({}), reply: z.object({}) });
  await expect(bus.request(Ask, {}, { timeout: "1s" })).rejects.toMatchObject({
    code: "BUS_NOT_RUNNING",
    message: expect.stringContaining('"consumers"'),
  });
});

test("consumers subscribe before the relay sends: the queue of a command exists when the command is sent", async () => {
  const { pool } = await temporaryDatabase({ max: 40 });
  const Pack = command("pack", { schema: z.object({ n: z.number() }), key: ({ n }) => `${n}` });
  const transport = new MemoryTransport();
  const steps: string[] = [];
  const [subscribe, publish] = [transport.subscribe.bind(transport), transport.publish.bind(transport)];
  transport.publish = (...args) => {
    steps.push("publish");
    return publish(...args);
  };
  transport.subscribe = async (...args) => {
    // A relay that was already running would send within this time.
    for (let waits = 0; waits < 50 && steps.length === 0; waits++) await sleep(20);
    steps.push("subscribed");
    return subscribe(...args);
  };
  const make = () =>
    createBus({ service: "shop", database: pool, transport, log: false, outbox: { optimistic: false } });
  const before = make();
  onTestFinished(async () => void (await before.stop()));
  await before.migrate();
  await before.transaction((tx) => tx.publish(Pack, { n: 1 }));
  const bus = make();
  onTestFinished(async () => void (await bus.stop()));
  const packed: number[] = [];
  bus.on(Pack, { consumer: "packing" }, ({ data }) => void packed.push(data.n));
  await bus.run();
  await until(() => packed.length === 1);
  expect(steps.slice(0, 2)).toEqual(["subscribed", "publish"]);
});

test("a consumer that cannot subscribe fails the start of the worker", async () => {
  const { pool } = await temporaryDatabase({ max: 40 });
  const transport = new MemoryTransport();
  transport.subscribe = () => Promise.reject(new Error("no such exchange"));
  const bus = createBus({ service: "shop", database: pool, transport, log: false });
  onTestFinished(async () => void (await bus.stop()));
  bus.on(Placed, { consumer: "books" }, () => undefined);
  await bus.migrate();
  await expect(bus.run()).rejects.toThrow("no such exchange");
});
