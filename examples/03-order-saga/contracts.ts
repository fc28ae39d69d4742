import { command } from "sagabox";
import { z } from "zod";

// #region commands
const order = z.object({ orderId: z.string() });

export const ReserveStock = command("stock.reserve", {
  schema: order.extend({ sku: z.string() }),
  reply: z.object({ reservationId: z.string() }),
});
export const ReleaseStock = command("stock.release", { schema: order });

export const TakePayment = command("payments.take", {
  schema: order.extend({ customerId: z.string(), cents: z.number().int() }),
  reply: z.object({ paymentId: z.string() }),
});
export const RefundPayment = command("payments.refund", { schema: order });

export const ShipOrder = command("shipping.ship", {
  schema: order.extend({ customerId: z.string(), paymentId: z.string() }),
  reply: z.object({ parcelId: z.string() }),
});
// #endregion commands
