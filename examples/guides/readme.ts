// The example of the README. It needs a DATABASE_URL and both tables.
// #region example
import { createBus, event } from "sagabox";
import { z } from "zod";

const OrderPlaced = event("order.placed", {
  schema: z.object({ orderId: z.string() }),
  key: (order) => order.orderId, // messages with the same key keep their order
});
const bus = createBus({ service: "shop" }); // connects to DATABASE_URL
await bus.migrate(); // creates sagabox's own tables
bus.on(OrderPlaced, { consumer: "billing" }, async ({ data }, { tx }) => {
  await tx.query("insert into bills (order_id) values ($1)", [data.orderId]); // once, even after a crash
});
await bus.run();

await bus.transaction(async (tx) => {
  await tx.query("insert into orders (id) values ('order-1')");
  await tx.publish(OrderPlaced, { orderId: "order-1" }); // exists if and only if this transaction commits
});
// #endregion example

export { bus };
