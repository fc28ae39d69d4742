// #region imports
import { randomUUID } from "node:crypto";
import pg from "pg";
import { createBus } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { readHistory } from "../follow-saga.ts";
import { bank } from "./bank.ts";
import { placeOrder } from "./order-saga.ts";
// #endregion imports

// #region database
const given = process.env["DATABASE_URL"];
const server =
  given === undefined ? await startEmbeddedPostgres({ dataDir: ".sagabox/tutorial" }) : undefined;
const pool = new pg.Pool({ connectionString: server?.url ?? given, max: 20 });
await pool.query(`
  create table if not exists my_reservation (order_id text not null);
  truncate my_reservation`);
// #endregion database

// #region bus
const bus = createBus({ service: "local-orders", database: pool, log: "error" });
await bus.migrate();
bus.register(placeOrder);
await bus.run();
// #endregion bus

// #region start
async function order(customerId: string): Promise<void> {
  const orderId = randomUUID();
  const { sagaId } = await bus.transaction((tx) =>
    bus.start(tx, placeOrder, { orderId, customerId, cents: 1250 }),
  );
  const { status } = await bus.sagas.result(placeOrder, sagaId, { timeout: "1m" });
  console.log(`The order of ${customerId} is ${status}:`);
  for (const line of await readHistory(bus, sagaId)) console.log(`  ${line}`);
}

await order("ann");
// #endregion start

// #region trouble
await order("declined-bob"); // the bank says no
await order("slow-carl"); // the outcome at the bank is unknown
await order("remote-eve"); // it was paid, but it cannot be sent
// #endregion trouble

// #region count
const kept = await pool.query("select order_id from my_reservation");
console.log(`Reservations kept: ${kept.rowCount}. Money kept: ${bank.balance()} cents.`);
// #endregion count

// #region stop
await bus.stop();
await pool.end();
await server?.stop();
// #endregion stop
