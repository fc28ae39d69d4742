import { ignore, permanent, refuse, retryAfter, type Bus, type Processed } from "sagabox";
import { OrderPlaced, ReserveStock } from "./contracts.ts";

// #region handler
export function billOrders(bus: Bus): void {
  bus.on(OrderPlaced, { consumer: "billing" }, async ({ data }, { tx }) => {
    await tx.query("insert into guide_bill (order_id, cents) values ($1, $2)", [data.orderId, data.cents]);
  });
}
// #endregion handler

// #region command
export function reserveStock(bus: Bus): void {
  bus.on(ReserveStock, { consumer: "stock" }, async ({ data }, { tx }) => {
    const reservationId = `r-${data.orderId}`;
    await tx.query("insert into guide_reservation (id, sku) values ($1, $2)", [reservationId, data.sku]);
    return { reservationId };
  });
}
// #endregion command

// #region retries
export function billPatiently(bus: Bus, charge: (orderId: string) => Promise<void>): void {
  bus.on(
    OrderPlaced,
    {
      consumer: "patient-billing",
      deadline: "10s",
      retry: { maxAttempts: 8, firstDelay: "20ms", factor: 2, maxDelay: "5m" },
      classify: (error) =>
        error instanceof Error && error.name === "CardDeclined" ? "permanent" : undefined,
    },
    ({ data }) => charge(data.orderId),
  );
}
// #endregion retries

// #region verdicts
export function billByVerdict(bus: Bus, status: (orderId: string) => string): void {
  bus.on(OrderPlaced, { consumer: "verdicts" }, async ({ data }, { tx }) => {
    switch (status(data.orderId)) {
      case "closed":
        throw permanent("the account is closed"); // dead letter at once
      case "limited":
        throw retryAfter("100ms", "the bank asks us to wait"); // not now; this does not count as an attempt
      case "test":
        throw ignore("a test order"); // done, without effect
      case "stolen":
        throw refuse("the card is stolen"); // settled without effect; a caller that waits for a reply gets the reason
      default:
        await tx.query("insert into guide_bill (order_id, cents) values ($1, $2)", [
          data.orderId,
          data.cents,
        ]);
    }
  });
}
// #endregion verdicts

// #region batch
export function billInBatches(bus: Bus): void {
  bus.onBatch(
    OrderPlaced,
    { consumer: "bulk-billing", batch: { size: 100, wait: "50ms" } },
    async (orders, { tx }) => {
      await tx.query("insert into guide_bill (order_id, cents) select * from unnest($1::text[], $2::int[])", [
        orders.map((order) => order.data.orderId),
        orders.map((order) => order.data.cents),
      ]);
    },
  );
}
// #endregion batch

// #region statement
export function billByStatement(bus: Bus): void {
  bus.on(OrderPlaced, {
    consumer: "fast-billing",
    statement: ({ data }) => ({
      text: "insert into guide_bill (order_id, cents) select $1::text, $2::integer from fresh",
      params: [data.orderId, data.cents],
    }),
  });
}
// #endregion statement

// #region outside
export function chargeCards(bus: Bus, bankUrl: string): void {
  bus.on(OrderPlaced, { consumer: "cards" }, async ({ data }, { idempotencyKey, signal }) => {
    const response = await fetch(bankUrl, {
      method: "POST",
      headers: { "idempotency-key": idempotencyKey },
      body: JSON.stringify({ cents: data.cents }),
      signal,
    });
    if (!response.ok) throw new Error(`the bank answered ${response.status}`);
  });
}
// #endregion outside

// #region inbox
/** In your own consumer loop: acknowledge to your broker when this has resolved, never before. */
export function handleForeign(
  bus: Bus,
  record: { readonly eventId: string; readonly value: { readonly orderId: string } },
): Promise<Processed<string>> {
  return bus.inbox.process(
    {
      id: record.eventId,
      consumer: "legacy-billing",
      topic: "legacy.orders",
      type: "order",
      data: record.value,
    },
    async ({ data }, { tx }) => {
      await tx.query("insert into guide_bill (order_id, cents) values ($1, 0)", [data.orderId]);
      return `billed ${data.orderId}`;
    },
  );
}
// #endregion inbox
