import { command, event } from "sagabox";
import { z } from "zod";

// What the sagas of the guides talk to.

export const ReserveStock = command("guide.saga.stock.reserve", {
  schema: z.object({ orderId: z.string(), sku: z.string() }),
  reply: z.object({ reservationId: z.string() }),
});
export const ReleaseStock = command("guide.saga.stock.release", {
  schema: z.object({ orderId: z.string() }),
});

export const OrderShipped = event("guide.saga.shipped", {
  schema: z.object({ orderId: z.string(), parcelId: z.string() }),
  key: (parcel) => parcel.orderId,
});
export const ParcelScanned = event("guide.saga.scanned", {
  schema: z.object({ label: z.object({ order: z.string() }), place: z.string() }),
});

export interface Bank {
  charge(key: string, cents: number, signal: AbortSignal): Promise<{ paymentId: string }>;
  refund(paymentId: string): Promise<void>;
  /** Pays back the payment under this key, if there is one. */
  cancel(key: string): Promise<void>;
  credit(orderId: string): Promise<{ rating: number }>;
}

export interface Mail {
  send(key: string, text: string): Promise<void>;
}
