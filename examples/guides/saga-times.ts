import { saga, type Bus } from "sagabox";
import { z } from "zod";
import {
  OrderShipped,
  ParcelScanned,
  ReleaseStock,
  ReserveStock,
  type Bank,
  type Mail,
} from "./saga-fixture.ts";

const order = {
  version: 1,
  input: z.object({ orderId: z.string(), sku: z.string(), cents: z.number().int(), patience: z.number() }),
  key: (given: { orderId: string }) => given.orderId,
};

export function steps(bank: Bank) {
  // #region steps
  return saga("times-of-steps", order)
    .send("reserve", ReserveStock, ({ input: { orderId, sku } }) => ({ orderId, sku }), { timeout: "5s" })
    .undo(ReleaseStock, ({ input: { orderId } }) => ({ orderId }))
    .run("pay", (c) => bank.charge(c.idempotencyKey, c.input.cents, c.signal), {
      timeout: "10s", // of each attempt
      retry: { maxAttempts: 4, firstDelay: "500ms", maxDelay: "30s" },
    })
    .undo((c) => bank.cancel(c.idempotencyKey));
  // #endregion steps
}

export function withDeadline(bank: Bank) {
  // #region deadline
  return saga("time-of-all", { ...order, deadline: "15m" })
    .run("pay", (c) => bank.charge(c.idempotencyKey, c.input.cents, c.signal))
    .undo((c) => bank.cancel(c.idempotencyKey))
    .waitFor("shipped", OrderShipped, { timeout: "1h" });
  // #endregion deadline
}

export function waits() {
  // #region wait
  return saga("waits", order)
    .waitFor("shipped", OrderShipped, { timeout: "14d" })
    .waitFor("scanned", ParcelScanned, {
      by: (scan) => scan.label.order, // the event has no key of its own
      timeout: "2d",
      onTimeout: "continue",
    })
    .run("report", ({ steps: { shipped, scanned } }) => ({
      parcelId: shipped.parcelId,
      place: scanned === null ? "somewhere" : scanned.place,
    }))
    .noUndo("it only reports");
  // #endregion wait
}

export function pauses(mail: Mail) {
  // #region delay
  return saga("pauses", order)
    .delay("cool-off", "15m")
    .delay("as-agreed", ({ input }) => input.patience)
    .run("remind", (c) => mail.send(c.idempotencyKey, `Order ${c.input.orderId} waits for you.`))
    .noUndo("a reminder cannot be taken back");
  // #endregion delay
}

// #region look
export async function whatItWaitsFor(bus: Bus, sagaId: string): Promise<string> {
  const { status, waitsFor, waitingSince, dueAt } = await bus.sagas.show(sagaId);
  return `${status}: ${waitsFor} since ${waitingSince}, until ${dueAt}`;
}
// #endregion look

// #region signal
export async function settleShipment(bus: Bus, sagaId: string, orderId: string): Promise<void> {
  const data = { orderId, parcelId: "on foot" };
  await bus.sagas.signal(sagaId, OrderShipped, data, { actor: "ada", reason: "the scanner is broken" });
}
// #endregion signal
