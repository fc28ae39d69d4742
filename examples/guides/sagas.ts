import { refuse, saga, type Bus } from "sagabox";
import { z } from "zod";
import { OrderShipped, ReleaseStock, ReserveStock, type Bank, type Mail } from "./saga-fixture.ts";

const order = {
  version: 1,
  input: z.object({ orderId: z.string(), sku: z.string(), cents: z.number().int() }),
  key: (given: { orderId: string }) => given.orderId,
};

export function byCommand() {
  // #region command
  return saga("by-command", order)
    .send("reserve", ReserveStock, ({ input: { orderId, sku } }) => ({ orderId, sku }))
    .undo(ReleaseStock, ({ input: { orderId } }) => ({ orderId }));
  // #endregion command
}

// #region participant
export function stockService(bus: Bus): void {
  bus.on(ReserveStock, { consumer: "stock" }, async ({ data }, { tx }) => {
    if (data.sku === "unicorn") throw refuse("unicorns are not in stock");
    const reservationId = `r-${data.orderId}`;
    await tx.query("insert into guide_reservation (id, sku) values ($1, $2)", [reservationId, data.sku]);
    return { reservationId };
  });
  bus.on(ReleaseStock, { consumer: "stock" }, async ({ data }, { tx }) => {
    await tx.query("delete from guide_reservation where id = $1", [`r-${data.orderId}`]);
  });
}
// #endregion participant

export function byFunction(bank: Bank) {
  // #region unknown
  return saga("by-function", order)
    .run("pay", (c) => bank.charge(c.idempotencyKey, c.input.cents, c.signal))
    .undo(async (c) => {
      if (c.outcome === "done") await bank.refund(c.result.paymentId);
      else await bank.cancel(c.idempotencyKey); // the outcome of the payment is unknown
    });
  // #endregion unknown
}

export function insideTheTransaction() {
  // #region inside
  return saga("inside", order)
    .tx("book", async ({ input, tx }) => {
      await tx.query("insert into guide_order (id) values ($1)", [input.orderId]);
    })
    .undo(async ({ input, tx }) => {
      await tx.query("delete from guide_order where id = $1", [input.orderId]);
    });
  // #endregion inside
}

export function withPivot(bank: Bank, mail: Mail) {
  // #region pivot
  return saga("with-pivot", order)
    .run("look", (c) => bank.credit(c.input.orderId))
    .noUndo("it only reads")
    .run("pay", (c) => bank.charge(c.idempotencyKey, c.input.cents, c.signal))
    .undo((c) => bank.cancel(c.idempotencyKey))
    .tx("sign", async ({ input, tx }) => {
      await tx.query("insert into guide_order (id) values ($1)", [input.orderId]);
    })
    .pivot()
    .run("confirm", (c) => mail.send(c.idempotencyKey, `We have your order ${c.input.orderId}.`));
  // #endregion pivot
}

export function sideBySide(bank: Bank) {
  // #region group
  return saga("side-by-side", order).all(
    "prepare",
    (g) =>
      g
        .send("reserve", ReserveStock, ({ input: { orderId, sku } }) => ({ orderId, sku }), {
          undo: [ReleaseStock, ({ input: { orderId } }) => ({ orderId })],
        })
        .run("pay", (c) => bank.charge(c.idempotencyKey, c.input.cents, c.signal), {
          undo: (c) => bank.cancel(c.idempotencyKey),
        })
        .run("look", (c) => bank.credit(c.input.orderId), { undo: { none: "it only reads" } }),
    { whenOneFails: "abandon" },
  );
  // #endregion group
}

export function persistentSaga(bank: Bank) {
  // #region undo-retry
  return saga("stubborn", order)
    .run("pay", (c) => bank.charge(c.idempotencyKey, c.input.cents, c.signal))
    .undo((c) => bank.cancel(c.idempotencyKey), {
      retry: { maxAttempts: 20, firstDelay: "1s", maxDelay: "10m" },
    })
    .waitFor("shipped", OrderShipped, { timeout: "14d" });
  // #endregion undo-retry
}

// #region incidents
export async function openIncidents(bus: Bus): Promise<string[]> {
  const incidents = await bus.sagas.incidents();
  return incidents.map(
    ({ type, sagaId, steps, error }) => `${type} ${sagaId}, ${steps.join(", ")}: ${error}`,
  );
}
// #endregion incidents

// #region dead-letters
/** The cause is repaired: gives the failed commands of a saga to their consumers again. */
export async function replayFailedCommands(bus: Bus, sagaId: string): Promise<void> {
  const [incident] = await bus.sagas.incidents({ sagaId });
  for (const deadLetter of incident?.deadLetters ?? []) {
    await bus.deadLetters.replay(deadLetter, { actor: "ada", reason: "the handler is repaired" });
  }
}
// #endregion dead-letters

// #region decide
const by = { actor: "ada", reason: "the bank paid it back by hand" };

/** The cause is repaired: try it again, from its first attempt. */
export const tryAgain = (bus: Bus, sagaId: string) => bus.sagas.retry(sagaId, by);
/** A person did it: it counts as done, or undone. */
export const wasDone = (bus: Bus, sagaId: string, step: string) => bus.sagas.settle(sagaId, { step, ...by });
/** The step will never be done: continue without it. */
export const letItBe = (bus: Bus, sagaId: string, step: string) => bus.sagas.skip(sagaId, { step, ...by });
// #endregion decide

// #region watch
/** Says which order turned back or waits for a person, at which step, and why. Returns what ends it. */
export function reportTrouble(bus: Bus, say: (text: string) => void): () => void {
  return bus.sagas.watch((news) => {
    if (news.kind !== "changed" || (news.to !== "compensating" && news.to !== "failed")) return;
    say(`${news.type} ${news.key} is ${news.to} at ${news.step}: ${news.cause}`);
  });
}
// #endregion watch
