import { createBus, event } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../support/database.ts";
import { RecordingObserver } from "../support/recording-observer.ts";

const Placed = event("order.placed", { schema: z.object({ n: z.number() }), key: ({ n }) => `order-${n}` });

async function createHarness(ordersRetries: boolean) {
  const { url, pool } = await temporaryDatabase({ migrated: true });
  const observer = new RecordingObserver();
  const transport = new MemoryTransport({ capabilities: { ordersRetries } });
  const bus = createBus({ service: "shop", database: url, transport, log: false, observers: [observer] });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate(); // makes today's partition, which must not come between a publish and its row
  return { bus, transport, observer, pool };
}

test.each([true, false])(
  "R-03: a bus whose broker is down at the start takes messages, and delivers them once it is up (orders retries: %s)",
  async (ordersRetries) => {
    const { bus, transport, observer } = await createHarness(ordersRetries);
    const seen: number[] = [];
    bus.on(Placed, { consumer: "books", from: "beginning" }, ({ data }) => void seen.push(data.n));
    transport.goDown();
    await bus.run();
    expect(observer.of("transport.unreachable").map(({ doing }) => doing)).toEqual([
      "opening it",
      "subscribing books",
    ]);
    await bus.transaction((tx) => tx.publish(Placed, { n: 1 }));
    expect((await bus.health()).ok).toBe(false);
    transport.comeUp();
    await expect.poll(() => seen, { timeout: 20_000 }).toEqual([1]);
    await expect.poll(async () => (await bus.health()).ok, { timeout: 10_000 }).toBe(true);
  },
);

test("R-03: a bus stopped while its broker is still down leaves nothing behind", async () => {
  const { bus, transport } = await createHarness(false);
  bus.on(Placed, { consumer: "books" }, () => undefined);
  transport.goDown();
  await bus.run();
  expect(await bus.stop()).toEqual({ clean: true });
});

test("E2, rule 18: on a broker, a keyed message that fails is retried from Postgres with its successors behind it", async () => {
  const { bus, transport, pool } = await createHarness(false);
  const seen: string[] = [];
  const Step = event("step.taken", { schema: z.object({ id: z.string() }), key: () => "one key" });
  bus.on(Step, { consumer: "books", retry: { firstDelay: 300 } }, ({ data, ...message }, { attempt }) => {
    seen.push(`${data.id}#${attempt}`);
    if (data.id === "a" && attempt === 1) throw new Error(`not yet ${message.type}`);
  });
  await bus.run();
  await bus.transaction((tx) => tx.publish(Step, { id: "a" }));
  await expect.poll(() => seen[0], { timeout: 20_000 }).toBe("a#1");
  await bus.transaction((tx) => tx.publish(Step, { id: "b" }));
  await expect.poll(() => transport.backlog("books"), { timeout: 20_000 }).toBe(0);
  await expect.poll(() => seen, { timeout: 20_000 }).toEqual(["a#1", "a#2", "b#1"]);
  const left = await pool.query("select message_id from sagabox.queue");
  expect(left.rows).toEqual([]);
});

test("A9: a process that only publishes opens the transport by itself and sends at once", async () => {
  const { bus, transport, observer } = await createHarness(false);
  let opened = 0;
  const open = transport.open.bind(transport);
  transport.open = () => {
    opened += 1;
    return open();
  };
  await bus.transaction((tx) => tx.publish(Placed, { n: 1 }));
  await observer.until("optimistic.succeeded");
  await bus.transaction((tx) => tx.publish(Placed, { n: 2 }));
  await expect.poll(() => observer.of("optimistic.succeeded").length, { timeout: 20_000 }).toBe(2);
  expect(opened).toBe(1);
});

test("rule 18: a batch that fails comes back from Postgres in the order of its key", async () => {
  const { bus } = await createHarness(false);
  const Step = event("step.taken", { schema: z.object({ n: z.number() }), key: () => "one key" });
  const done: number[] = [];
  let failures = 2;
  const batch = { size: 2, wait: 100 };
  bus.on(
    Step,
    { consumer: "books", batch, concurrency: 1, prefetch: 10, retry: { firstDelay: 50 } },
    ({ data }) => {
      if (failures > 0) {
        failures -= 1;
        throw new Error("not yet");
      }
      done.push(data.n);
    },
  );
  await bus.run();
  await bus.transaction(async (tx) => {
    for (let n = 1; n <= 6; n++) await tx.publish(Step, { n });
  });
  await expect.poll(() => done.length, { timeout: 20_000 }).toBeGreaterThanOrEqual(6);
  expect(done).toEqual([1, 2, 3, 4, 5, 6]);
});
