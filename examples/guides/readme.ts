import type { Pool } from "pg";
import { createBus, event, saga, type Bus } from "sagabox";
import { ChargeCard, RefundCard, ReserveStock, ReleaseStock } from "./readme-contracts.ts";
import { z } from "zod";

/** The example of the README, in a function so that a test can run it. */
export async function example(pool: Pool, orderId: string): Promise<Bus> {
  // #region example
  const OrderPlaced = event("order.placed", {
    schema: z.object({ orderId: z.string() }),
    key: (order) => order.orderId, // messages with one key keep their order
  });
  const bus = createBus({ service: "shop", database: pool });

  bus.on(OrderPlaced, { consumer: "billing" }, async ({ data }, { tx }) => {
    await tx.query("insert into bills (order_id) values ($1)", [data.orderId]); // once, whatever happens
  });
  await bus.run();

  await bus.transaction(async (tx) => {
    await tx.query("insert into orders (id) values ($1)", [orderId]);
    await tx.publish(OrderPlaced, { orderId }); // exists if and only if this transaction commits
  });
  // #endregion example
  return bus;
}

/** The saga of the README. */
export async function sagaExample(
  bus: Bus,
  post: (orderId: string) => void,
  orderId: string,
): Promise<string> {
  // #region saga
  const placeOrder = saga("place-order", {
    version: 1,
    input: z.object({ orderId: z.string(), cents: z.number() }),
    key: (order) => order.orderId, // one instance for each
  })
    .send("reserve", ReserveStock, ({ input }) => ({ orderId: input.orderId }))
    .undo(ReleaseStock, ({ input }) => ({ orderId: input.orderId }))
    .send("charge", ChargeCard, ({ input }) => input, { timeout: "30s" })
    .undo(RefundCard, ({ input }) => ({ orderId: input.orderId }))
    .tx("book", async ({ input, steps, tx }) => {
      await tx.query("insert into sales values ($1, $2)", [input.orderId, steps.charge.paymentId]);
    })
    .pivot() // from here on it only goes forward
    .run("tell", ({ input }) => post(input.orderId));

  bus.register(placeOrder);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, placeOrder, { orderId, cents: 1250 }));
  // #endregion saga
  return sagaId;
}
