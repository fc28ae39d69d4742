import { EventEmitter, once } from "node:events";
import pg from "pg";
import { createBus, event, type Observer } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { z } from "zod";

const given = process.env["DATABASE_URL"];
const server =
  given === undefined ? await startEmbeddedPostgres({ dataDir: ".sagabox/tutorial" }) : undefined;
const pool = new pg.Pool({ connectionString: server?.url ?? given, max: 20 });

// #region tables
await pool.query(`
  create table if not exists my_order (id text not null, sku text not null);
  create table if not exists my_bill (order_id text not null, cents integer not null);
  truncate my_bill`);
// #endregion tables

const OrderPlaced = event("tutorial.order.placed", {
  schema: z.object({ orderId: z.string(), sku: z.string(), quantity: z.number().int().positive() }),
  key: (order) => order.orderId,
});

// #region observe
const signals = new EventEmitter();
const observer: Observer = {
  emit(name) {
    if (name === "consumer.processed" || name === "consumer.duplicate") signals.emit(name);
  },
};
const bus = createBus({ service: "tutorial", database: pool, log: false, observers: [observer] });
await bus.migrate();
// #endregion observe

// #region handle
bus.on(
  OrderPlaced,
  { consumer: "billing", retry: { firstDelay: "10ms" } },
  async ({ data }, { tx, attempt }) => {
    await tx.query("insert into my_bill (order_id, cents) values ($1, $2)", [data.orderId, 1250]);
    if (attempt === 1) {
      console.log("Attempt 1 wrote the bill, then failed. The bill is rolled back.");
      throw new Error("the printer is out of paper");
    }
    console.log(`Attempt ${attempt} wrote the bill and went through.`);
  },
);
await bus.run();
// #endregion handle

// #region rollback
const began = Date.now();
await bus
  .transaction(async (tx) => {
    await tx.query("insert into my_order (id, sku) values ($1, $2)", ["B-0", "tea"]);
    await tx.publish(OrderPlaced, { orderId: "B-0", sku: "tea", quantity: 1 });
    throw new Error("the card was declined");
  })
  .catch((error: Error) => console.log(`B-0 was rolled back (${error.message}); its message never existed.`));
// #endregion rollback

// #region publish
const billed = once(signals, "consumer.processed");
await bus.transaction(async (tx) => {
  await tx.query("insert into my_order (id, sku) values ($1, $2)", ["B-1", "tea"]);
  await tx.publish(OrderPlaced, { orderId: "B-1", sku: "tea", quantity: 1 });
});
await billed;
// #endregion publish

// #region again
const recognised = once(signals, "consumer.duplicate");
const { count } = await bus.republish({ from: new Date(began - 1_000), to: new Date(Date.now() + 1_000) });
await recognised;
console.log(`${count} message was sent again and recognised as a duplicate.`);
// #endregion again

// #region count
const bills = await pool.query("select order_id from my_bill");
console.log(`Bills written: ${bills.rowCount}.`);
// #endregion count

await bus.stop();
await pool.end();
await server?.stop();
