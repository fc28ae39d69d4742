import { command } from "sagabox";
import { z } from "zod";

// The commands behind the saga of the README.
const order = z.object({ orderId: z.string() });

export const ReserveStock = command("readme.stock.reserve", { schema: order });
export const ReleaseStock = command("readme.stock.release", { schema: order });
export const ChargeCard = command("readme.card.charge", {
  schema: order.extend({ cents: z.number() }),
  reply: z.object({ paymentId: z.string() }),
});
export const RefundCard = command("readme.card.refund", { schema: order });
