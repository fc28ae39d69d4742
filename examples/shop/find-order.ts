import type { Bus, SagaStatus } from "sagabox";
import type { Pool } from "pg";
import { placeOrder } from "./order-saga.ts";

export interface OrderView {
  readonly orderId: string;
  /** Where its saga stands: `completed` and `compensated` are the ends, `failed` waits for a person. */
  readonly status: SagaStatus;
  /** How often each of these really happened to this order: nothing in the tables would stop a second time. */
  readonly billed: number;
  readonly shipped: number;
  readonly refunded: number;
  readonly released: number;
  /** Why it could not be had, if it could not. */
  readonly problem: string | null;
  readonly events: readonly { id: string; type: string; at: string; status: string }[];
}

type Counts = Pick<OrderView, "billed" | "shipped" | "refunded" | "released">;

export async function findOrder(
  { bus, pool, schema }: { readonly bus: Bus; readonly pool: Pool; readonly schema: string },
  orderId: string,
): Promise<OrderView | undefined> {
  const { rows } = await pool.query<Counts>(
    `select (select count(*) from shop_bill where order_id = placed.id)::integer as billed,
            (select count(*) from shop_shipment where order_id = placed.id)::integer as shipped,
            (select count(*) from shop_refund where order_id = placed.id)::integer as refunded,
            (select count(*) from shop_release where order_id = placed.id)::integer as released
       from shop_order as placed where placed.id = $1`,
    [orderId],
  );
  const counts = rows[0];
  if (counts === undefined) return undefined;
  const [saga] = await bus.sagas.list({ type: placeOrder.definition.name, key: orderId });
  const { status = deriveStatus(counts), lastError: problem = null } = saga ?? {};
  return { orderId, status, problem, ...counts, events: await readEvents(pool, schema, orderId) };
}

// Sagas are forgotten a month after they ended; what happened to the order is not.
function deriveStatus({ shipped, released }: Counts): SagaStatus {
  if (shipped > 0) return "completed";
  return released > 0 ? "compensated" : "started";
}

async function readEvents(pool: Pool, schema: string, orderId: string): Promise<OrderView["events"]> {
  const { rows } = await pool.query<{ id: string; type: string; at: Date; status: string }>(
    `select event_id as id, event_type as type, created_at as at, status
       from "${schema}".outbox_events
      where aggregate_type = 'order' and aggregate_id = $1
      order by created_at, event_id`,
    [orderId],
  );
  return rows.map((row) => ({ ...row, at: row.at.toISOString() }));
}

/** The number of running orders, and of orders that wait for an operator. */
export interface OpenOrders {
  readonly running: number;
  readonly failed: number;
}

export async function openOrders(pool: Pool, schema: string): Promise<OpenOrders> {
  const { rows } = await pool.query<OpenOrders>(
    `select count(*) filter (where status <> 'failed')::integer as running,
            count(*) filter (where status = 'failed')::integer as failed
       from "${schema}".saga_instance where completed_at is null and saga_type = $1`,
    [placeOrder.definition.name],
  );
  return rows[0] ?? { running: 0, failed: 0 };
}
