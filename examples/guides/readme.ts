import type { Pool } from "pg";
import { createBus, event, type Bus } from "sagabox";
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
