import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { refuse, type Bus } from "sagabox";
import * as c from "./contracts.ts";
import { PATIENCE_MS } from "./order-saga.ts";

// The services an order needs, and one that only listens. They run in one process here and know nothing of the saga: they
// do what a command says, in one transaction with their answer. Being asked twice, or to take back what was never done, is
// none of their worries.

/** Reserves what is ordered, and gives it back. */
export function stockService(bus: Bus): void {
  bus.on(c.ReserveStock, { consumer: "stock" }, async ({ data }, { tx }) => {
    await tx.query("insert into shop_reservation (order_id, sku, quantity) values ($1, $2, $3)", [
      data.orderId,
      data.sku,
      data.quantity,
    ]);
    return { reservationId: `r-${data.orderId}` };
  });

  bus.on(c.ReleaseStock, { consumer: "stock" }, async ({ data: { orderId } }, { tx, publish }) => {
    await tx.query("insert into shop_release (order_id) values ($1)", [orderId]);
    await publish(c.OrderReleased, { orderId });
  });
}

/** Takes the money and pays it back. Some cards are declined, and some banks take their time. */
export function paymentService(bus: Bus): void {
  bus.on(c.TakePayment, { consumer: "payment" }, async ({ data }, { tx, publish, signal }) => {
    const { orderId, customerId, amountCents } = data;
    if (customerId.startsWith("declined-")) throw refuse("card declined");
    if (customerId.startsWith("slow-")) await sleep(PATIENCE_MS + 1_000, undefined, { signal });
    await tx.query("insert into shop_bill (order_id, amount_cents) values ($1, $2)", [orderId, amountCents]);
    await publish(c.OrderBilled, { orderId, amountCents });
    return { paymentId: `p-${orderId}` };
  });

  bus.on(c.RefundPayment, { consumer: "payment" }, async ({ data: { orderId } }, { tx, publish }) => {
    await tx.query("insert into shop_refund (order_id) values ($1)", [orderId]);
    await publish(c.OrderRefunded, { orderId });
  });
}

/** Hands the parcel over. */
export function shippingService(bus: Bus): void {
  bus.on(c.ShipOrder, { consumer: "shipping" }, async ({ data: { orderId } }, { tx, publish }) => {
    const parcelId = randomUUID();
    await tx.query("insert into shop_shipment (order_id, parcel_id) values ($1, $2)", [orderId, parcelId]);
    await publish(c.OrderShipped, { orderId, parcelId });
    return { parcelId };
  });
}

/** Writes to customers. It only subscribes to events, as any number of other services could. */
export function mailService(bus: Bus): void {
  const letters = [
    [c.OrderPlaced, "We have your order"],
    [c.OrderBilled, "Your bill"],
    [c.OrderShipped, "Your order is on its way"],
    [c.OrderRefunded, "Your money is on its way back"],
    [c.OrderReleased, "We are sorry about your order"],
  ] as const;
  for (const [happened, subject] of letters) {
    bus.on(happened, { consumer: "mail" }, async ({ data: { orderId } }, { tx }) => {
      await tx.query("insert into shop_mail (order_id, subject) values ($1, $2)", [orderId, subject]);
    });
  }
}
