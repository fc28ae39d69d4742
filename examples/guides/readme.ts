// The example of the README. It runs as it stands, where DATABASE_URL names a database that has both tables.
// #region example
import { createBus, event } from "sagabox";
import { z } from "zod";

const OrderPlaced = event("order.placed", {
  schema: z.object({ orderId: z.string() }),
  key: (order) => order.orderId, // messages with one key keep their order
});
const bus = createBus({ service: "shop" }); // on the database of DATABASE_URL
await bus.migrate(); // makes the tables of sagabox

bus.on(OrderPlaced, { consumer: "billing" }, async ({ data }, { tx }) => {
  await tx.query("insert into bills (order_id) values ($1)", [data.orderId]); // exactly once, also after a crash
});
await bus.run();
process.once("SIGINT", () => void bus.stop()); // releases its lanes, so that other workers need not wait

const orderId = "order-1";
await bus.transaction(async (tx) => {
  await tx.query("insert into orders (id) values ($1)", [orderId]);
  await tx.publish(OrderPlaced, { orderId }); // exists if and only if this transaction commits
});
// #endregion example

export { bus };
