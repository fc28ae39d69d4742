import { setTimeout as sleep } from "node:timers/promises";
import { refuse, type Bus } from "sagabox";
import { RefundPayment, ReleaseStock, ReserveStock, ShipOrder, TakePayment } from "./contracts.ts";

/** Reserves what is ordered, and gives it back. */
export function stockService(bus: Bus): void {
  bus.on(ReserveStock, { consumer: "stock" }, async ({ data }, { tx }) => {
    await tx.query("insert into reservation (order_id) values ($1)", [data.orderId]);
    return { reservationId: `r-${data.orderId}` };
  });
  bus.on(ReleaseStock, { consumer: "stock" }, async ({ data }, { tx }) => {
    await tx.query("delete from reservation where order_id = $1", [data.orderId]);
  });
}

// #region payments
/** Takes the money, refuses some, is slow for others, and pays it back. */
export function paymentService(bus: Bus): void {
  bus.on(TakePayment, { consumer: "payments" }, async ({ data }, { tx }) => {
    if (data.customerId.startsWith("declined-")) throw refuse("card declined");
    if (data.customerId.startsWith("slow-")) await sleep(4_000);
    await tx.query("insert into payment (order_id, cents) values ($1, $2)", [data.orderId, data.cents]);
    return { paymentId: `p-${data.orderId}` };
  });
  bus.on(RefundPayment, { consumer: "payments" }, async ({ data }, { tx }) => {
    await tx.query(
      "insert into payment (order_id, cents) select order_id, -cents from payment where order_id = $1",
      [data.orderId],
    );
  });
}
// #endregion payments

/** Sends the parcel, except to where no carrier goes. */
export function shippingService(bus: Bus): void {
  bus.on(ShipOrder, { consumer: "shipping" }, ({ data }) => {
    if (data.customerId.startsWith("remote-")) throw refuse("no carrier goes there");
    return { parcelId: `parcel for ${data.paymentId}` };
  });
}
