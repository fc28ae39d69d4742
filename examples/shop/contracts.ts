import { event } from "sagabox";
import { z } from "zod";

// #region contract
export const OrderPlaced = event("shop.order.placed", {
  schema: z.object({
    orderId: z.string(),
    customerId: z.string(),
    sku: z.string(),
    quantity: z.number().int().positive(),
  }),
  key: (order) => order.orderId, // messages with one key keep their order
  aggregate: "order", // the history of one order can be found by its key
});
// #endregion contract

export const OrderBilled = event("shop.order.billed", {
  schema: z.object({ orderId: z.string(), amountCents: z.number().int() }),
  key: (bill) => bill.orderId,
  aggregate: "order",
});

export const OrderShipped = event("shop.order.shipped", {
  schema: z.object({ orderId: z.string(), parcelId: z.string() }),
  key: (parcel) => parcel.orderId,
  aggregate: "order",
});
