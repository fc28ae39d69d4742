import { saga, type Bus } from "sagabox";
import { z } from "zod";
import { ChargeCard, RefundCard, ReserveStock, ReleaseStock } from "./readme-contracts.ts";

/** The saga of the README. */
export async function sagaExample(
  bus: Bus,
  post: (orderId: string) => void,
  orderId: string,
): Promise<string> {
  // #region saga
  const placeOrder = saga("place-order", {
    version: 1,
    input: z.object({ orderId: z.string(), cents: z.number() }),
    key: (order) => order.orderId, // one instance per key
  })
    .send("reserve", ReserveStock, ({ input }) => ({ orderId: input.orderId }))
    .undo(ReleaseStock, ({ input }) => ({ orderId: input.orderId }))
    .send("charge", ChargeCard, ({ input }) => input, { timeout: "30s" })
    .undo(RefundCard, ({ input }) => ({ orderId: input.orderId }))
    .tx("book", async ({ input, steps, tx }) => {
      await tx.query("insert into sales values ($1, $2)", [input.orderId, steps.charge.paymentId]);
    })
    .pivot() // from here on nothing is undone
    .run("notify", ({ input }) => post(input.orderId));

  bus.register(placeOrder);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, placeOrder, { orderId, cents: 1250 }));
  // #endregion saga
  return sagaId;
}
