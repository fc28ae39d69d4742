import type { Pool } from "pg";
import { createBus, event, type Bus, type Transport } from "sagabox";
import { eventually } from "sagabox/testing";
import { z } from "zod";
import { OrderPlaced } from "./contracts.ts";

// #region handler
export const OrderBilled = event("guide.order.billed", {
  schema: z.object({ orderId: z.string() }),
  key: ({ orderId }) => orderId,
});

export function registerBilling(bus: Bus): void {
  bus.on(OrderPlaced, { consumer: "billing" }, async ({ data }, { tx }) => {
    await tx.query("insert into guide_bill (order_id, cents) values ($1, $2)", [data.orderId, data.cents]);
    await tx.publish(OrderBilled, { orderId: data.orderId });
  });
}
// #endregion handler

// #region observe
export async function billAndObserve(bus: Bus, orderId: string): Promise<readonly string[]> {
  const billed: string[] = [];
  registerBilling(bus);
  bus.on(OrderBilled, { consumer: "test" }, ({ data }) => void billed.push(data.orderId));
  await bus.run();
  await bus.transaction((tx) => tx.publish(OrderPlaced, { orderId, cents: 1250 }));
  await eventually(() => billed.length > 0);
  return billed;
}
// #endregion observe

// #region tenant
export function busOfTenant(database: Pool, tenant: string): Bus {
  return createBus({ service: "shop", database, schema: `tenant_${tenant}`, log: false });
}
// #endregion tenant

// #region recurring
export const ReportDue = event("guide.report.due", {
  schema: z.object({ day: z.string() }),
  key: ({ day }) => day,
});

/** Called by cron on as many machines as you like: one message is written per day. */
export async function requestDailyReport(bus: Bus, day: string): Promise<boolean> {
  return bus.transaction(async (tx) => {
    const { written } = await tx.publish(ReportDue, { day }, { id: `daily-report:${day}` });
    return written;
  });
}
// #endregion recurring

// #region publisher
export function publisher(database: Pool): Bus {
  return createBus({ service: "shop", database, log: false, outbox: { optimistic: false } });
}
// #endregion publisher

// #region relay
export async function runRelay(database: Pool, transport: Transport): Promise<Bus> {
  const bus = createBus({ service: "shop", database, transport, log: false });
  await bus.run({ parts: ["relay", "upkeep"] });
  return bus;
}
// #endregion relay
