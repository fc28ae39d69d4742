import { randomUUID } from "node:crypto";
import pg from "pg";
import { createBus, type Bus } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { readHistory } from "../follow-saga.ts";
import { placeOrder } from "./order-saga.ts";
import { paymentService, shippingService, stockService } from "./services.ts";

const given = process.env["DATABASE_URL"];
const server =
  given === undefined ? await startEmbeddedPostgres({ dataDir: ".sagabox/tutorial" }) : undefined;
const pool = new pg.Pool({ connectionString: server?.url ?? given, max: 60 });
await pool.query(`
  create table if not exists reservation (order_id text not null);
  create table if not exists payment (order_id text not null, cents integer not null);
  truncate reservation, payment`);

const openBus = (service: string): Bus => createBus({ service, database: pool, log: "error" });
const [orders, stock, payments, shipping] = [
  openBus("orders"),
  openBus("stock"),
  openBus("payments"),
  openBus("shipping"),
];
stockService(stock);
paymentService(payments);
shippingService(shipping);
// #region register
orders.register(placeOrder);
// #endregion register
await orders.migrate();
for (const bus of [orders, stock, payments, shipping]) await bus.run();

for (const customerId of ["ann", "declined-bob", "slow-carl", "remote-eve"]) {
  // #region start
  const order = { orderId: randomUUID(), customerId, sku: "tea", cents: 1250 };
  const { sagaId } = await orders.transaction((tx) => orders.start(tx, placeOrder, order));
  // #endregion start
  const { status } = await orders.sagas.result(placeOrder, sagaId, { timeout: "1m" });
  console.log(`The order of ${customerId} is ${status}:`);
  for (const line of await readHistory(orders, sagaId)) console.log(`  ${line}`);
}

const kept = await pool.query("select order_id from reservation");
const money = await pool.query<{ cents: string }>("select sum(cents) as cents from payment");
console.log(`Reservations kept: ${kept.rowCount}. Money kept: ${money.rows[0]?.cents} cents.`);

for (const bus of [orders, shipping, payments, stock]) await bus.stop();
await pool.end();
await server?.stop();
