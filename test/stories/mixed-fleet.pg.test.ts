import { createBus, event, saga, type Bus } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { Order, Paid, sagaFixture } from "../support/saga-fixture.ts";
import { until } from "../support/relays.ts";

const Shipped = event("ship.shipped", { schema: z.object({ orderId: z.string() }), key: (d) => d.orderId });

test("D1: what only the newer members of a consumer can handle waits for them, and is not lost", async () => {
  const { url, bus: old } = await sagaFixture();
  const handled: string[] = [];
  const openBus = (): Bus => {
    const bus = createBus({ service: "shop", database: url, log: false, lease: 1_000 });
    onTestFinished(() => bus.stop().then(() => undefined));
    return bus;
  };
  const newer = openBus();
  old.on(Paid, { consumer: "mail" }, async () => undefined);
  newer.on(Paid, { consumer: "mail" }, async () => undefined);
  newer.on(Shipped, { consumer: "mail" }, async ({ data }) => void handled.push(data.orderId));
  await old.run();
  await newer.run();
  const orders = Array.from({ length: 20 }, (_, n) => `o${n}`);
  await newer.transaction(async (tx) => {
    for (const orderId of orders) await tx.publish(Shipped, { orderId });
  });
  await until(() => handled.length > 0, 20_000);
  await old.stop();
  await until(() => handled.length === orders.length, 25_000);
  expect(handled.toSorted()).toEqual(orders.toSorted());
});

test("F8: in a fleet of two versions that wait for different events, each saga gets its own", async () => {
  const { url, bus: one, ends } = await sagaFixture();
  const first = saga("order", { version: 1, input: Order, key: (i) => i.orderId }).waitFor("paid", Paid, {
    timeout: "1m",
  });
  const second = saga("order", { version: 2, input: Order, key: (i) => i.orderId }).waitFor(
    "shipped",
    Shipped,
    {
      timeout: "1m",
    },
  );
  const two = createBus({
    service: "shop",
    database: url,
    log: false,
    lease: 2_000,
    sagas: { pollInterval: 50 },
  });
  onTestFinished(() => two.stop().then(() => undefined));
  one.register(first);
  two.register(second);
  await one.run();
  await two.run();
  const started = await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      n % 2 === 0
        ? one.transaction((tx) => one.start(tx, first, { orderId: `o${n}` }))
        : two.transaction((tx) => two.start(tx, second, { orderId: `o${n}` })),
    ),
  );
  await one.transaction(async (tx) => {
    for (let n = 0; n < 20; n++) await tx.publish(n % 2 === 0 ? Paid : Shipped, { orderId: `o${n}` });
  });
  for (const { sagaId } of started) await ends(sagaId, "completed");
  expect(started.every((each) => each.started)).toBe(true);
});
