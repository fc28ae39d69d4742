import type { Pool } from "pg";
import type { Sql } from "postgres";
import { createBus, isSagaboxError, message, type Bus, type Transport } from "sagabox";
import { OrderPlaced, StockCounted } from "./contracts.ts";

// #region pg
export async function orderWithPg(pool: Pool, bus: Bus, orderId: string): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    await client.query("insert into guide_order (id) values ($1)", [orderId]);
    await bus.publish(client, OrderPlaced, { orderId, cents: 1250 });
    await client.query("commit");
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
}
// #endregion pg

// #region postgres-js
export async function orderWithPostgresJs(sql: Sql, bus: Bus, orderId: string): Promise<void> {
  await sql.begin(async (tx) => {
    await tx`insert into guide_order (id) values (${orderId})`;
    await bus.publish(tx, OrderPlaced, { orderId, cents: 1250 });
  });
}
// #endregion postgres-js

/** A driver that sends a list of statements to run in one transaction, such as `neon()` over HTTP. */
export interface ListDriver<Query> {
  query(text: string, values: unknown[]): Query;
  transaction(queries: Query[]): Promise<unknown>;
}

// #region statements
export async function orderOverHttp<Q>(sql: ListDriver<Q>, bus: Bus, orderId: string): Promise<void> {
  const statements = await bus.statements(OrderPlaced, { orderId, cents: 1250 });
  await sql.transaction([
    sql.query("insert into guide_order (id) values ($1)", [orderId]),
    ...statements.map(({ text, values }) => sql.query(text, values)),
  ]);
}
// #endregion statements

// #region transaction
export async function orderInOurs(bus: Bus, orderId: string): Promise<void> {
  await bus.transaction(async (tx) => {
    await tx.query("insert into guide_order (id) values ($1)", [orderId]);
    await tx.publish(OrderPlaced, { orderId, cents: 1250 });
  });
}
// #endregion transaction

// #region flush
export async function orderAndFlush(pool: Pool, bus: Bus, orderId: string): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    await bus.publish(client, OrderPlaced, { orderId, cents: 1250 }, { flush: true });
    await client.query("commit");
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
  await bus.flush();
}
// #endregion flush

// #region batch
export async function orderMany(bus: Bus, orderIds: readonly string[]): Promise<void> {
  const messages = orderIds.map((orderId) => message(OrderPlaced, { orderId, cents: 1250 }));
  await bus.transaction(async (tx) => {
    await bus.publishAll(tx, ...messages, message(StockCounted, { sku: "tea", count: 7 }));
  });
}
// #endregion batch

// #region later
export async function orderLater(bus: Bus, orderId: string): Promise<void> {
  await bus.transaction(async (tx) => {
    await tx.publish(OrderPlaced, { orderId, cents: 1250 }, { delay: "1s" });
    await tx.publish(OrderPlaced, { orderId, cents: 99 }, { at: new Date("2100-01-01T00:00:00Z") });
  });
}
// #endregion later

// #region wishes
export async function orderUrgently(bus: Bus, orderId: string): Promise<void> {
  await bus.transaction(async (tx) => {
    await tx.publish(
      OrderPlaced,
      { orderId, cents: 1250 },
      { priority: 9, ttl: "5m", headers: { "x-channel": "phone" } },
    );
  });
}
// #endregion wishes

// #region own-id
export async function orderOnce(bus: Bus, requestId: string, orderId: string): Promise<boolean> {
  return bus.transaction(async (tx) => {
    const { written } = await tx.publish(OrderPlaced, { orderId, cents: 1250 }, { id: `order:${requestId}` });
    return written; // false when this id was published before
  });
}
// #endregion own-id

// #region overflow
export function boundedBus(database: Pool, maxPending: number): Bus {
  return createBus({
    service: "guide",
    database,
    log: false,
    outbox: { overflow: { maxPending, policy: "refuse" } },
  });
}

export async function orderUnlessFull(bus: Bus, orderId: string): Promise<"accepted" | "busy"> {
  try {
    await orderInOurs(bus, orderId);
    return "accepted";
  } catch (error) {
    if (isSagaboxError(error, "OUTBOX_FULL")) return "busy"; // such as an HTTP 503
    throw error;
  }
}
// #endregion overflow

// #region depth
export function busBeforeABroker(database: Pool, transport: Transport): Bus {
  return createBus({
    service: "guide",
    database,
    transport,
    log: false,
    outbox: {
      brokerDepth: { limit: 100_000, resumeAt: 50_000 }, // at the broker
      overflow: { maxPending: 1_000_000 }, // in Postgres
    },
  });
}
// #endregion depth

// #region admit
export async function orderWhenThereIsRoom(bus: Bus, orderId: string): Promise<void> {
  await bus.transaction((tx) => tx.publish(OrderPlaced, { orderId, cents: 1250 }), { topics: [OrderPlaced] });
}
// #endregion admit
