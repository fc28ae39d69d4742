import { randomUUID } from "node:crypto";
import { createBus, type Bus, type BusOptions } from "sagabox";
import type { Pool } from "pg";
import { OrderPlaced } from "./contracts.ts";
import { findOrder, openOrders, type OpenOrders, type OrderView } from "./find-order.ts";
import { placeOrder } from "./order-saga.ts";
import { mailService, paymentService, shippingService, stockService } from "./services.ts";
import { tables } from "./tables.ts";

export type { OrderView } from "./find-order.ts";

export interface NewOrder {
  readonly sku: string;
  readonly quantity: number;
  readonly customerId: string;
}

export interface Shop {
  readonly bus: Bus;
  place(order: NewOrder): Promise<string>;
  find(orderId: string): Promise<OrderView | undefined>;
  open(): Promise<OpenOrders>;
}

/** A shop as a service would write it: tables of its own, a bus, a saga, and the services it leads. */
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
  bus.register(placeOrder);
  for (const service of [stockService, paymentService, shippingService, mailService]) service(bus);
  const schema = options.schema ?? "sagabox";
  return {
    bus,
    place: (order) => place(bus, order),
    find: (orderId) => findOrder({ bus, pool, schema }, orderId),
    open: () => openOrders(pool, schema),
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
    await bus.start(tx, placeOrder, { orderId, ...order });
  });
  return orderId;
}
// #endregion place
