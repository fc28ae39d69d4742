import { event } from "sagabox";
import { z } from "zod";
import { flow } from "../../src/flow/index.ts";

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
