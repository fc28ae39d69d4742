// The choreography of the design documents: three services that know nothing of each other but their events.
import { checkFlow, createBus, flowPathDiagram, type Bus, type FlowPath } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase, type TemporaryDatabase } from "../support/database.ts";
import * as shop from "../support/flows.ts";
import { until } from "../support/relays.ts";

type Trouble = "none" | "payment" | "shipment";

async function setup(trouble: (orderId: string) => Trouble) {
  const { pool } = await temporaryDatabase({ max: 60, migrated: true });
  await pool.query(
    "create table ledger (service text not null, entry text not null, order_id text not null)",
  );
  const [orders, stock, payments, shipping] = ["orders", "stock", "payments", "shipping"].map((service) =>
    openBus(service, pool),
  ) as [Bus, Bus, Bus, Bus];
  const book = "insert into ledger (service, entry, order_id) values ($1, $2, $3)";

  stock.on(shop.OrderPlaced, { consumer: "stock" }, async ({ data }, { tx, publish }) => {
    await tx.query(book, ["stock", "reserved", data.orderId]);
    await publish(shop.StockReserved, data);
  });
  payments.on(shop.StockReserved, { consumer: "payments" }, async ({ data }, { tx, publish }) => {
    if (trouble(data.orderId) === "payment") return void (await publish(shop.PaymentFailed, data));
    await tx.query(book, ["payments", "captured", data.orderId]);
    await publish(shop.PaymentCaptured, data);
  });
  shipping.on(shop.PaymentCaptured, { consumer: "shipping" }, async ({ data }, { tx, publish }) => {
    if (trouble(data.orderId) === "shipment") return void (await publish(shop.ShipmentFailed, data));
    await tx.query(book, ["shipping", "scheduled", data.orderId]);
    await publish(shop.ShipmentScheduled, data);
  });
  for (const Failure of [shop.PaymentFailed, shop.ShipmentFailed]) {
    stock.on(Failure, { consumer: "stock" }, async ({ data }, { tx, publish }) => {
      await tx.query(book, ["stock", "released", data.orderId]);
      await publish(shop.StockReleased, data);
    });
  }
  payments.on(shop.ShipmentFailed, { consumer: "payments" }, async ({ data }, { tx, publish }) => {
    await tx.query(book, ["payments", "refunded", data.orderId]);
    await publish(shop.PaymentRefunded, data);
  });

  orders.flows.watch(shop.orderFlow);
  for (const bus of [orders, stock, payments, shipping]) {
    await bus.migrate();
    await bus.run();
  }
  return { pool, orders, stock, payments, shipping };
}

function openBus(service: string, pool: TemporaryDatabase["pool"]): Bus {
  const bus = createBus({ service, database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  return bus;
}

function placeOrder(bus: Bus, orderId: string) {
  return bus.transaction((tx) => tx.publish(shop.OrderPlaced, { orderId }, { correlationId: orderId }));
}

async function waitForEnd(bus: Bus, orderId: string): Promise<FlowPath> {
  let path: FlowPath | undefined;
  await until(async () => {
    [path] = await bus.flows.paths(orderId);
    // Topics have no order among each other, so the beginning may be recorded after what came of it.
    return path?.steps[0]?.role === "begin" && path.waitsFor.length === 0;
  });
  return path as FlowPath;
}

async function ledger(pool: TemporaryDatabase["pool"], orderId: string): Promise<string[]> {
  const { rows } = await pool.query<{ entry: string }>(
    "select service || ' ' || entry as entry from ledger where order_id = $1 order by 1",
    [orderId],
  );
  return rows.map(({ entry }) => entry);
}

const describeSteps = ({ steps }: FlowPath): string[] => {
  const types = new Map(steps.map(({ messageId, type }) => [messageId, type]));
  return steps.map(
    ({ source, type, parent }) => `${source}: ${type}${parent === null ? "" : ` after ${types.get(parent)}`}`,
  );
};

test("F9: an order that goes well is seen from its placing to its shipment", async () => {
  expect(checkFlow(shop.orderFlow)).toEqual([]);
  const { pool, orders } = await setup(() => "none");
  await placeOrder(orders, "good");
  const path = await waitForEnd(orders, "good");
  expect(describeSteps(path)).toEqual([
    "orders: order.placed",
    "stock: stock.reserved after order.placed",
    "payments: payment.captured after stock.reserved",
    "shipping: shipment.scheduled after payment.captured",
  ]);
  expect([path.status, path.surprises, path.notUndone]).toEqual(["completed", [], []]);
  expect(path.steps.slice(1).every(({ sinceParentMs }) => sinceParentMs !== null)).toBe(true);
  expect(await ledger(pool, "good")).toEqual(["payments captured", "shipping scheduled", "stock reserved"]);
  expect(flowPathDiagram(path)).toMatch(/s3->>s4: payment\.captured \+[\d.]+ m?s/);
});

test("F9: a payment that fails releases the stock", async () => {
  const { pool, orders } = await setup(() => "payment");
  await placeOrder(orders, "poor");
  const path = await waitForEnd(orders, "poor");
  expect(describeSteps(path)).toEqual([
    "orders: order.placed",
    "stock: stock.reserved after order.placed",
    "payments: payment.failed after stock.reserved",
    "stock: stock.released after payment.failed",
  ]);
  expect([path.status, path.surprises]).toEqual(["compensated", []]);
  expect(await ledger(pool, "poor")).toEqual(["stock released", "stock reserved"]);
});

test("F9: a shipment that fails refunds the payment and releases the stock, each by its own service", async () => {
  const { pool, orders } = await setup(() => "shipment");
  await placeOrder(orders, "far");
  const path = await waitForEnd(orders, "far");
  expect(describeSteps(path).slice(0, 4)).toEqual([
    "orders: order.placed",
    "stock: stock.reserved after order.placed",
    "payments: payment.captured after stock.reserved",
    "shipping: shipment.failed after payment.captured",
  ]);
  expect(describeSteps(path).slice(4).toSorted()).toEqual([
    "payments: payment.refunded after shipment.failed",
    "stock: stock.released after shipment.failed",
  ]);
  expect([path.status, path.surprises, path.notUndone]).toEqual(["compensated", [], []]);
  expect(await ledger(pool, "far")).toEqual([
    "payments captured",
    "payments refunded",
    "stock released",
    "stock reserved",
  ]);
});

test("F9: a service that is down shows as what the path waits for, and the path continues when it is back", async () => {
  const { pool, orders, shipping } = await setup(() => "none");
  await shipping.stop();
  await placeOrder(orders, "late");
  const stuck = async () =>
    (await orders.flows.unfinished({ idleFor: 0 })).map(({ waitsFor }) => waitsFor[0]?.by);
  await until(async () => (await stuck())[0] === "shipping");
  const again = openBus("shipping", pool);
  again.on(shop.PaymentCaptured, { consumer: "shipping" }, async ({ data }, { publish }) => {
    await publish(shop.ShipmentScheduled, data);
  });
  await again.run();
  expect((await waitForEnd(orders, "late")).status).toBe("completed");
  expect(await stuck()).toEqual([]);
});

test("F9: events sent again are recorded once, and many orders do not mix", async () => {
  const kinds: readonly Trouble[] = ["none", "payment", "shipment"];
  const { pool, orders } = await setup((orderId) => kinds[Number(orderId) % 3] ?? "none");
  const all = Array.from({ length: 30 }, (_, n) => `${n}`);
  for (const orderId of all) await placeOrder(orders, orderId);
  const paths = await Promise.all(all.map((orderId) => waitForEnd(orders, orderId)));
  const steps = [4, 4, 6];
  expect(paths.map((path) => path.steps.length)).toEqual(all.map((orderId) => steps[Number(orderId) % 3]));
  await orders.republish({ from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 60_000) });
  const left = "select 1 from sagabox.outbox union all select 1 from sagabox.queue";
  await until(async () => (await pool.query(left)).rowCount === 0);
  const { rows } = await pool.query("select count(*)::int as n from sagabox.flow_event");
  expect(rows).toEqual([{ n: 10 * (4 + 4 + 6) }]);
});
