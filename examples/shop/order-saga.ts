import { saga } from "sagabox";
import { z } from "zod";
import { RefundPayment, ReleaseStock, ReserveStock, ShipOrder, TakePayment } from "./contracts.ts";

const PRICE_CENTS = 1_250;

/** How long payment may take. Slow banks take longer, so that one can watch a timeout being compensated. */
export const PATIENCE_MS = 2_000;

/** What an order goes through: stock, payment, shipping; and back again when one of them cannot. */
export const placeOrder = saga("shop-order", {
  version: 1,
  input: z.object({
    orderId: z.string(),
    customerId: z.string(),
    sku: z.string(),
    quantity: z.number().int().positive(),
  }),
  key: (order) => order.orderId,
})
  .send("reserve", ReserveStock, ({ input: { orderId, sku, quantity } }) => ({ orderId, sku, quantity }))
  .undo(ReleaseStock, ({ input: { orderId } }) => ({ orderId }))
  .send(
    "pay",
    TakePayment,
    ({ input: { orderId, customerId, quantity } }) => ({
      orderId,
      customerId,
      amountCents: quantity * PRICE_CENTS,
    }),
    { timeout: PATIENCE_MS },
  )
  .undo(RefundPayment, ({ input: { orderId } }) => ({ orderId }))
  .send("ship", ShipOrder, ({ input: { orderId }, steps: { reserve, pay } }) => ({
    orderId,
    reservationId: reserve.reservationId,
    paymentId: pay.paymentId,
  }))
  .pivot();
