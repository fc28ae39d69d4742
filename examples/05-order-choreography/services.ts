import type { Bus } from "sagabox";
import * as e from "./events.ts";

// #region stock
/** Reserves what is ordered, and gives it back when anything after it fails. */
export function stockService(bus: Bus): void {
  bus.on(e.OrderPlaced, { consumer: "stock" }, async ({ data }, { tx, publish }) => {
    await tx.query("insert into reservation (order_id) values ($1)", [data.orderId]);
    await publish(e.StockReserved, data);
  });
  for (const failure of [e.PaymentFailed, e.ShipmentFailed]) {
    bus.on(failure, { consumer: "stock" }, async ({ data }, { tx, publish }) => {
      await tx.query("delete from reservation where order_id = $1", [data.orderId]);
      await publish(e.StockReleased, data);
    });
  }
}
// #endregion stock

/** Takes the money, and pays it back when the parcel cannot be sent. */
export function paymentService(bus: Bus): void {
  bus.on(e.StockReserved, { consumer: "payments" }, async ({ data }, { tx, publish }) => {
    if (data.customerId.startsWith("declined-")) return void (await publish(e.PaymentFailed, data));
    await tx.query("insert into payment (order_id, cents) values ($1, $2)", [data.orderId, data.cents]);
    await publish(e.PaymentCaptured, data);
  });
  bus.on(e.ShipmentFailed, { consumer: "payments" }, async ({ data }, { tx, publish }) => {
    await tx.query("insert into payment (order_id, cents) values ($1, $2)", [data.orderId, -data.cents]);
    await publish(e.PaymentRefunded, data);
  });
}

/** Sends the parcel, except to where no carrier goes. */
export function shippingService(bus: Bus): void {
  bus.on(e.PaymentCaptured, { consumer: "shipping" }, async ({ data }, { publish }) => {
    await publish(data.customerId.startsWith("remote-") ? e.ShipmentFailed : e.ShipmentScheduled, data);
  });
}
