// #region saga
import { saga } from "sagabox";
import { z } from "zod";
import { bank } from "./bank.ts";
import { carrier } from "./carrier.ts";

export const placeOrder = saga("local-order", {
  version: 1,
  input: z.object({ orderId: z.string(), customerId: z.string(), cents: z.number().int() }),
  key: (order) => order.orderId,
})
  .tx("reserve", async ({ input, tx }) => {
    await tx.query("insert into my_reservation (order_id) values ($1)", [input.orderId]);
  })
  .undo(async ({ input, tx }) => {
    await tx.query("delete from my_reservation where order_id = $1", [input.orderId]);
  })
  .run("pay", (c) => bank.charge(c.idempotencyKey, c.input.customerId, c.input.cents, c.signal), {
    timeout: "500ms",
    retry: { maxAttempts: 2, firstDelay: "20ms" },
  })
  .undo((c) => bank.refund(c.idempotencyKey))
  .run("ship", (c) => carrier.send(c.idempotencyKey, c.input.customerId, c.steps.pay.paymentId))
  .pivot();
// #endregion saga
