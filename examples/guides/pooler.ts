// #region bus
import type { Pool } from "pg";
import { createBus } from "sagabox";
import { OrderPlaced } from "./contracts.ts";

/** `pool` connects to PgBouncer. `directUrl` leads to PostgreSQL itself; SAGABOX_DIRECT_URL is read without the option. */
export function createBilling(pool: Pool, directUrl: string) {
  const bus = createBus({ service: "billing", database: pool, directUrl });
  bus.on(OrderPlaced, { consumer: "billing" }, async ({ data }, { tx }) => {
    await tx.query("insert into guide_bill (order_id, cents) values ($1, $2)", [data.orderId, data.cents]);
  });
  return bus;
}
// #endregion bus
