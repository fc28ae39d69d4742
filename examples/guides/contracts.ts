import { command, event } from "sagabox";
import { z } from "zod";

// #region event
export const OrderPlaced = event("guide.order.placed", {
  schema: z.object({ orderId: z.string(), cents: z.number().int() }),
  key: (order) => order.orderId,
});
// #endregion event

// #region strict
export const StockCounted = event("guide.stock.counted", {
  schema: z.object({ sku: z.string(), count: z.number().int() }),
  key: (stock) => stock.sku,
  order: "strict",
});
// #endregion strict

// #region upcast
export const CustomerMoved = event("guide.customer.moved", {
  version: 2,
  schema: z.object({ customerId: z.string(), address: z.object({ city: z.string() }) }),
  key: (customer) => customer.customerId,
  upcast: { 1: (v1) => ({ customerId: v1.customerId, address: { city: v1.city } }) },
});
// #endregion upcast

// #region command
export const ReserveStock = command("guide.stock.reserve", {
  schema: z.object({ orderId: z.string(), sku: z.string() }),
  reply: z.object({ reservationId: z.string() }),
  target: "stock",
});
// #endregion command
