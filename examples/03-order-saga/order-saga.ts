// #region saga
import { saga } from "sagabox";
import { z } from "zod";
import { RefundPayment, ReleaseStock, ReserveStock, ShipOrder, TakePayment } from "./contracts.ts";

export const placeOrder = saga("order", {
  version: 1,
  input: z.object({
    orderId: z.string(),
    customerId: z.string(),
    sku: z.string(),
    cents: z.number().int(),
  }),
  key: (order) => order.orderId,
})
  .send("reserve", ReserveStock, ({ input: { orderId, sku } }) => ({ orderId, sku }))
  .undo(ReleaseStock, ({ input: { orderId } }) => ({ orderId }))
  .send("pay", TakePayment, ({ input: { orderId, customerId, cents } }) => ({ orderId, customerId, cents }), {
    timeout: "3s",
  })
  .undo(RefundPayment, ({ input: { orderId } }) => ({ orderId }))
  .send("ship", ShipOrder, ({ input: { orderId, customerId }, steps }) => ({
    orderId,
    customerId,
    paymentId: steps.pay.paymentId,
  }))
  .pivot();
// #endregion saga
