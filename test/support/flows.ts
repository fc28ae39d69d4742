import type pg from "pg";
import { event } from "sagabox";
import { z } from "zod";
import { flow, type RecordedEvent } from "../../src/flow/index.ts";

const schema = z.object({ orderId: z.string() });
const of = (name: string) => event(name, { schema, key: ({ orderId }) => orderId });

export const OrderPlaced = of("order.placed");
export const StockReserved = of("stock.reserved");
export const StockReleased = of("stock.released");
export const PaymentCaptured = of("payment.captured");
export const PaymentFailed = of("payment.failed");
export const PaymentRefunded = of("payment.refunded");
export const ShipmentScheduled = of("shipment.scheduled");
export const ShipmentFailed = of("shipment.failed");

/** The choreography of the design documents, over three services. */
export const orderFlow = flow("order")
  .begins(OrderPlaced)
  .on(OrderPlaced, { by: "stock", leadsTo: StockReserved })
  .on(StockReserved, { by: "payments", leadsTo: PaymentCaptured, orFailsWith: PaymentFailed })
  .on(PaymentCaptured, { by: "shipping", leadsTo: ShipmentScheduled, orFailsWith: ShipmentFailed })
  .on(PaymentFailed, { by: "stock", leadsTo: StockReleased, undoes: StockReserved })
  .on(ShipmentFailed, { by: "payments", leadsTo: PaymentRefunded, undoes: PaymentCaptured })
  .on(ShipmentFailed, { by: "stock", leadsTo: StockReleased, undoes: StockReserved })
  .ends(ShipmentScheduled, StockReleased, PaymentRefunded);

export interface Seen {
  readonly id: string;
  readonly type: string;
  readonly source: string;
  readonly after?: string | null;
  readonly key?: string | null;
  /** Milliseconds after the beginning. */
  readonly at: number;
}

/** Events as a watching consumer would have recorded them, the first at noon. */
export function recordedPath(...seen: readonly Seen[]): RecordedEvent[] {
  const noon = Date.UTC(2026, 0, 1, 12);
  return seen.map(({ id, type, source, after = null, key = "A-1", at }) => {
    const happenedAt = new Date(noon + at).toISOString();
    return {
      flow: "order",
      messageId: id,
      correlationId: "A-1",
      type,
      causationId: after,
      source,
      key,
      happenedAt,
      recordedAt: happenedAt,
    };
  });
}

/** Inserts events as the watching consumer of `orderFlow` records them, dated `agoMs` milliseconds back. */
export async function recordEvents(
  pool: pg.Pool,
  correlationId: string,
  agoMs: number,
  ...seen: readonly Seen[]
): Promise<void> {
  for (const event of recordedPath(...seen)) {
    const caused = event.causationId === null ? null : `${correlationId}-${event.causationId}`;
    await pool.query(
      `insert into sagabox.flow_event (flow, message_id, correlation_id, type, causation_id, source, key, happened_at, recorded_at)
       values ('order', $1, $2, $3, $4, $5, $2, $6, clock_timestamp() - $7 * interval '1 ms')`,
      [
        `${correlationId}-${event.messageId}`,
        correlationId,
        event.type,
        caused,
        event.source,
        event.happenedAt,
        agoMs,
      ],
    );
  }
}
