import { event, saga, type Bus } from "sagabox";
import { z } from "zod";
import { ReleaseStock, ReserveStock } from "./saga-fixture.ts";

// #region contracts
export const OrderPlaced = event("guide.together.placed", {
  schema: z.object({ orderId: z.string(), sku: z.string(), paid: z.boolean() }),
  key: (order) => order.orderId,
});

export const fulfilOrder = saga("fulfil-order", {
  version: 1,
  input: z.object({ orderId: z.string(), sku: z.string() }),
  key: (order) => order.orderId,
})
  .send("reserve", ReserveStock, ({ input: { orderId, sku } }) => ({ orderId, sku }))
  .undo(ReleaseStock, ({ input: { orderId } }) => ({ orderId }));
// #endregion contracts

// #region publish
const OrderConfirmed = event("guide.together.confirmed", {
  schema: z.object({ orderId: z.string(), reservationId: z.string() }),
  key: (order) => order.orderId,
});
const OrderWithdrawn = event("guide.together.withdrawn", {
  schema: z.object({ orderId: z.string() }),
  key: (order) => order.orderId,
});

export const confirmOrder = saga("confirm-order", {
  version: 1,
  input: z.object({ orderId: z.string(), sku: z.string() }),
  key: (order) => order.orderId,
})
  .send("reserve", ReserveStock, ({ input: { orderId, sku } }) => ({ orderId, sku }))
  .undo(ReleaseStock, ({ input: { orderId } }) => ({ orderId }))
  .publish("announce", OrderConfirmed, ({ input: { orderId }, steps: { reserve } }) => ({
    orderId,
    reservationId: reserve.reservationId,
  }))
  .undo(OrderWithdrawn, ({ input: { orderId } }) => ({ orderId }))
  .tx("book", async ({ input: { orderId }, tx }) => {
    await tx.query("insert into guide_order (id) values ($1)", [orderId]);
  })
  .pivot();
// #endregion publish

export function startInHandler(bus: Bus): void {
  // #region handler
  bus.register(fulfilOrder);
  bus.on(OrderPlaced, { consumer: "orders" }, async ({ data: { orderId, sku } }, { tx }) => {
    await tx.query("insert into guide_order (id) values ($1)", [orderId]);
    await tx.start(fulfilOrder, { orderId, sku });
  });
  // #endregion handler
}

export function startOnEvent(bus: Bus): void {
  // #region start-on
  bus.startOn(OrderPlaced, fulfilOrder, ({ data: { orderId, sku, paid } }) =>
    paid ? { orderId, sku } : undefined,
  );
  // #endregion start-on
}

// #region result
/** For the handler of an HTTP request: starts the saga and answers with its result. */
export async function placeOrder(bus: Bus, orderId: string, sku: string): Promise<string> {
  const { sagaId } = await bus.transaction((tx) => tx.start(fulfilOrder, { orderId, sku }));
  const result = await bus.sagas.result(fulfilOrder, sagaId, { timeout: "10s" });
  if (result.status === "completed") return `reserved as ${result.steps.reserve.reservationId}`;
  return `not possible: ${result.error}`;
}
// #endregion result

// #region result-by-key
/** Publishes the event that starts the saga, and waits for the saga by its key. */
export async function requestOrder(bus: Bus, orderId: string, sku: string): Promise<string> {
  await bus.transaction((tx) => tx.publish(OrderPlaced, { orderId, sku, paid: true }));
  const { status } = await bus.sagas.result(fulfilOrder, { key: orderId }, { timeout: "10s" });
  return status;
}
// #endregion result-by-key
