import { randomUUID } from "node:crypto";
import { createBus, type Bus, type BusOptions } from "sagabox";
import type { Pool } from "pg";
import { OrderBilled, OrderPlaced, OrderShipped } from "./contracts.ts";

export interface NewOrder {
  readonly sku: string;
  readonly quantity: number;
  readonly customerId: string;
}

export interface OrderView {
  readonly orderId: string;
  readonly status: "placed" | "billed" | "shipped" | "completed";
  /** How often this order was really billed and shipped: nothing in the tables would stop a second time. */
  readonly billed: number;
  readonly shipped: number;
  readonly events: readonly { id: string; type: string; at: string; status: string }[];
}

export interface Shop {
  readonly bus: Bus;
  place(order: NewOrder): Promise<string>;
  find(orderId: string): Promise<OrderView | undefined>;
}

// Bills and shipments have no unique constraint on purpose: a repeated effect would show as a second row.
const tables = `
  create table if not exists shop_order (
    id          text        primary key,
    customer_id text        not null,
    sku         text        not null,
    quantity    integer     not null,
    placed_at   timestamptz not null default clock_timestamp()
  );
  create table if not exists shop_bill (order_id text not null, amount_cents integer not null);
  create table if not exists shop_shipment (order_id text not null, parcel_id text not null);
  create index if not exists shop_bill_order on shop_bill (order_id);
  create index if not exists shop_shipment_order on shop_shipment (order_id);`;

const PRICE_CENTS = 1_250;

/** A shop as a service would write it: tables of its own, a bus, and two consumers that react to an order. */
export async function openShop(
  pool: Pool,
  options: Pick<BusOptions, "schema" | "log" | "observers" | "worker" | "transport"> = {},
): Promise<Shop> {
  const bus = createBus({ service: "shop", database: pool, ...options });
  await bus.migrate();
  await bus.transaction(async (tx) => {
    await tx.query("select pg_advisory_xact_lock(hashtext('shop tables'))"); // two shops may start at once
    await tx.query(tables);
  });
  handleOrders(bus);
  return {
    bus,
    place: (order) => place(bus, order),
    find: (orderId) => find(pool, options.schema ?? "sagabox", orderId),
  };
}

// #region place
async function place(bus: Bus, order: NewOrder): Promise<string> {
  const orderId = randomUUID();
  await bus.transaction(async (tx) => {
    await tx.query("insert into shop_order (id, customer_id, sku, quantity) values ($1, $2, $3, $4)", [
      orderId,
      order.customerId,
      order.sku,
      order.quantity,
    ]);
    await tx.publish(OrderPlaced, { orderId, ...order });
  });
  return orderId;
}
// #endregion place

// #region handle
function handleOrders(bus: Bus): void {
  bus.on(OrderPlaced, { consumer: "billing" }, async ({ data }, { tx, publish }) => {
    const amountCents = data.quantity * PRICE_CENTS;
    await tx.query("insert into shop_bill (order_id, amount_cents) values ($1, $2)", [
      data.orderId,
      amountCents,
    ]);
    await publish(OrderBilled, { orderId: data.orderId, amountCents });
  });

  bus.on(OrderPlaced, { consumer: "shipping" }, async ({ data }, { tx, publish }) => {
    const parcelId = randomUUID();
    await tx.query("insert into shop_shipment (order_id, parcel_id) values ($1, $2)", [
      data.orderId,
      parcelId,
    ]);
    await publish(OrderShipped, { orderId: data.orderId, parcelId });
  });
}
// #endregion handle

async function find(pool: Pool, schema: string, orderId: string): Promise<OrderView | undefined> {
  const counts = await pool.query<{ billed: number; shipped: number }>(
    `select (select count(*) from shop_bill where order_id = id)::integer as billed,
            (select count(*) from shop_shipment where order_id = id)::integer as shipped
       from shop_order where id = $1`,
    [orderId],
  );
  const found = counts.rows[0];
  if (found === undefined) return undefined;
  const { rows } = await pool.query<{ id: string; type: string; at: Date; status: string }>(
    `select event_id as id, event_type as type, created_at as at, status
       from "${schema}".outbox_events
      where aggregate_type = 'order' and aggregate_id = $1
      order by created_at, event_id`,
    [orderId],
  );
  const events = rows.map((row) => ({ ...row, at: row.at.toISOString() }));
  return { orderId, status: statusOf(found), billed: found.billed, shipped: found.shipped, events };
}

function statusOf({ billed, shipped }: { billed: number; shipped: number }): OrderView["status"] {
  if (billed > 0 && shipped > 0) return "completed";
  if (billed > 0) return "billed";
  return shipped > 0 ? "shipped" : "placed";
}
