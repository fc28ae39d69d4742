import { randomUUID } from "node:crypto";
import { Pool } from "pg";
import { createBus, event, type Bus, type Transport } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
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

// #region test-server
/** For `globalSetup` of vitest: one server for all test files. Returns the function that stops it. */
export async function startTestServer(dataDir = ".sagabox/test"): Promise<() => Promise<void>> {
  const server = await startEmbeddedPostgres({ dataDir, settings: { fsync: "off" } });
  process.env["DATABASE_URL"] = server.url;
  return () => server.stop();
}
// #endregion test-server

// #region test-bus
/** A bus on an empty database, for one test file. */
export async function openTestBus(
  serverUrl: string,
): Promise<{ bus: Bus; pool: Pool; close: () => Promise<void> }> {
  const name = `test_${randomUUID().replaceAll("-", "")}`;
  const server = new Pool({ connectionString: serverUrl, max: 1 });
  await server.query(`create database ${name}`);
  const url = new URL(serverUrl);
  url.pathname = name;
  const pool = new Pool({ connectionString: url.href, max: 20 });
  const bus = createBus({ service: "test", database: pool, log: "error" });
  await bus.migrate();
  const close = async (): Promise<void> => {
    await bus.stop();
    await pool.end();
    await server.query(`drop database ${name}`);
    await server.end();
  };
  return { bus, pool, close };
}
// #endregion test-bus

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
