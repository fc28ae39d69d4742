import { event } from "sagabox";
import { z } from "zod";

// #region events
const schema = z.object({ orderId: z.string(), customerId: z.string(), cents: z.number().int() });
const orderEvent = (name: string) => event(name, { schema, key: ({ orderId }) => orderId });

export const OrderPlaced = orderEvent("orders.order.placed");
export const StockReserved = orderEvent("stock.reserved");
export const StockReleased = orderEvent("stock.released");
export const PaymentCaptured = orderEvent("payments.captured");
export const PaymentFailed = orderEvent("payments.failed");
export const PaymentRefunded = orderEvent("payments.refunded");
export const ShipmentScheduled = orderEvent("shipping.scheduled");
export const ShipmentFailed = orderEvent("shipping.failed");
// #endregion events
