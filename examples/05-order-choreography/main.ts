import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { checkFlow, createBus, type Bus, type FlowPath } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { OrderPlaced } from "./events.ts";
import { orderFlow } from "./order-flow.ts";
import { paymentService, shippingService, stockService } from "./services.ts";

const given = process.env["DATABASE_URL"];
const server =
  given === undefined ? await startEmbeddedPostgres({ dataDir: ".sagabox/tutorial" }) : undefined;
const pool = new pg.Pool({ connectionString: server?.url ?? given, max: 60 });
await pool.query(`
  create table if not exists reservation (order_id text not null);
  create table if not exists payment (order_id text not null, cents integer not null);
  truncate reservation, payment`);

const openBus = (service: string): Bus => createBus({ service, database: pool, log: "warn" });
const [orders, stock, payments, shipping] = [
  openBus("orders"),
  openBus("stock"),
  openBus("payments"),
  openBus("shipping"),
];

// #region check
for (const { level, what, remedy } of checkFlow(orderFlow)) console.log(`${level}: ${what} ${remedy}`);
// #endregion check

// #region watch
orders.flows.watch(orderFlow);
// #endregion watch

stockService(stock);
paymentService(payments);
shippingService(shipping);
await orders.migrate();
for (const bus of [orders, stock, payments, shipping]) await bus.run();

// #region path
async function placeAndFollow(orderId: string, customerId: string): Promise<FlowPath> {
  const { id } = await orders.transaction((tx) =>
    tx.publish(OrderPlaced, { orderId, customerId, cents: 1250 }),
  );
  for (;;) {
    const [path] = await orders.flows.paths(id); // the first message of all gives the correlation id
    if (path?.steps[0]?.role === "begin" && path.waitsFor.length === 0) return path;
    await sleep(20);
  }
}
// #endregion path

for (const customerId of ["ann", "declined-bob", "remote-eve"]) {
  const { status, steps } = await placeAndFollow(`order of ${customerId}`, customerId);
  console.log(`The order of ${customerId} is ${status}:`);
  // Two services react to a failed shipment at the same time; the names decide who is printed first.
  const lines = steps.map(({ source, type }) => `  ${source}: ${type}`);
  for (const line of [...lines.slice(0, 4), ...lines.slice(4).toSorted()]) console.log(line);
}

const kept = await pool.query("select order_id from reservation");
const money = await pool.query<{ cents: string }>("select sum(cents) as cents from payment");
console.log(`Reservations kept: ${kept.rowCount}. Money kept: ${money.rows[0]?.cents} cents.`);

for (const bus of [shipping, payments, stock, orders]) await bus.stop();
await pool.end();
await server?.stop();
