// #region imports
import { EventEmitter, once } from "node:events";
import pg from "pg";
import { createBus, event } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { z } from "zod";
// #endregion imports

// #region database
const given = process.env["DATABASE_URL"];
const server =
  given === undefined ? await startEmbeddedPostgres({ dataDir: ".sagabox/tutorial" }) : undefined;
const pool = new pg.Pool({ connectionString: server?.url ?? given, max: 20 });
await pool.query("create table if not exists my_order (id text not null, sku text not null)");
// #endregion database

// #region contract
const OrderPlaced = event("tutorial.order.placed", {
  schema: z.object({ orderId: z.string(), sku: z.string(), quantity: z.number().int().positive() }),
  key: (order) => order.orderId,
});
// #endregion contract

// #region bus
const bus = createBus({ service: "tutorial", database: pool, log: "warn" });
await bus.migrate();
// #endregion bus

// #region handle
const signals = new EventEmitter();
bus.on(OrderPlaced, { consumer: "confirmation" }, ({ data }) => {
  console.log(`Dear customer, we received order ${data.orderId}: ${data.quantity} × ${data.sku}.`);
  signals.emit("confirmation");
});
await bus.run();
// #endregion handle

// #region publish
const confirmed = once(signals, "confirmation");
await bus.transaction(async (tx) => {
  await tx.query("insert into my_order (id, sku) values ($1, $2)", ["A-1", "tea"]);
  await tx.publish(OrderPlaced, { orderId: "A-1", sku: "tea", quantity: 2 });
});
console.log("Order A-1 is committed, and so is its message.");
await confirmed;
// #endregion publish

// #region stop
await bus.stop();
await pool.end();
await server?.stop();
// #endregion stop
