import { command, event, saga } from "sagabox";
import { z } from "zod";

// A small order, for tests of what users test their own sagas with.

const Order = z.object({ orderId: z.string() });

export const Reserve = command("tested.reserve", { schema: Order, reply: z.object({ shelf: z.string() }) });
export const Release = command("tested.release", { schema: Order });
export const Approved = event("tested.approved", { schema: Order, key: (order) => order.orderId });

const namedOptions = (name: string) => ({
  name,
  options: { version: 1, input: Order, key: (order: { orderId: string }) => order.orderId },
});

/** Asks a warehouse that has half a minute to answer. */
export function reservingSaga() {
  const { name, options } = namedOptions("tested-reserving");
  return saga(name, options)
    .send("reserve", Reserve, (c) => c.input, { timeout: "30s", retry: { maxAttempts: 1 } })
    .undo(Release, (c) => c.input);
}

/** Waits two weeks for a person. */
export function approval() {
  const { name, options } = namedOptions("tested-approval");
  return saga(name, options).waitFor("approved", Approved, { timeout: "14d" });
}

/** An order with a data subject, so that all its state is encrypted. */
export function confidentialApproval() {
  const { name, options } = namedOptions("tested-confidential");
  const personal = { subject: (order: { orderId: string }) => `customer of ${order.orderId}` };
  return saga(name, { ...options, personal })
    .run("ask", (c) => ({ asked: c.input.orderId }))
    .undo(() => undefined)
    .waitFor("approved", Approved, { timeout: "14d" });
}

/** Its work takes as long as the test wants, and all of it no more than a quarter of an hour. */
export function limitedSaga(work: (signal: AbortSignal) => Promise<string>) {
  const { name, options } = namedOptions("tested-limited");
  return saga(name, { ...options, deadline: "15m" })
    .run("work", (c) => work(c.signal))
    .noUndo("it leaves nothing behind")
    .delay("rest", "1h");
}

/** A send, a run and a tx step, each with an effect that can be counted. */
export function everyKind(charge: (key: string, orderId: string) => Promise<string>) {
  const { name, options } = namedOptions("tested-every-kind");
  return saga(name, options)
    .send("reserve", Reserve, (c) => c.input)
    .undo(Release, (c) => c.input)
    .run("pay", (c) => charge(c.idempotencyKey, c.input.orderId))
    .undo(() => undefined)
    .tx("book", async ({ tx, input, steps }) => {
      await tx.query("insert into effect values ($1, 'book', $2)", [input.orderId, steps.pay]);
      return { booked: true };
    })
    .undo(async ({ tx, input }) => {
      await tx.query("insert into effect values ($1, 'unbook', null)", [input.orderId]);
    });
}
