import { command, event } from "sagabox";
import { z } from "zod";

const order = z.object({ orderId: z.string() });
const key = (about: { orderId: string }): string => about.orderId;
const aggregate = "order"; // the history of one order can be found by its key

// What the saga asks of the services, and how it is taken back.
export const ReserveStock = command("shop.stock.reserve", {
  schema: order.extend({ sku: z.string(), quantity: z.number().int().positive() }),
  reply: z.object({ reservationId: z.string() }),
});
export const ReleaseStock = command("shop.stock.release", { schema: order });

export const TakePayment = command("shop.payment.take", {
  schema: order.extend({ customerId: z.string(), amountCents: z.number().int() }),
  reply: z.object({ paymentId: z.string() }),
});
export const RefundPayment = command("shop.payment.refund", { schema: order });

export const ShipOrder = command("shop.shipping.ship", {
  schema: order.extend({ reservationId: z.string(), paymentId: z.string() }),
  reply: z.object({ parcelId: z.string() }),
});

// Events about an order, for any service that subscribes.
export const OrderPlaced = event("shop.order.placed", {
  schema: order.extend({
    customerId: z.string(),
    sku: z.string(),
    quantity: z.number().int().positive(),
  }),
  key,
  aggregate,
});
export const OrderBilled = event("shop.order.billed", {
  schema: order.extend({ amountCents: z.number().int() }),
  key,
  aggregate,
});
export const OrderShipped = event("shop.order.shipped", {
  schema: order.extend({ parcelId: z.string() }),
  key,
  aggregate,
});
export const OrderRefunded = event("shop.order.refunded", { schema: order, key, aggregate });
export const OrderReleased = event("shop.order.released", { schema: order, key, aggregate });
