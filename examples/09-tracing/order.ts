import { command, saga } from "sagabox";
import { z } from "zod";

const Order = z.object({ orderId: z.string() });

export const Charge = command("tracing.charge", {
  schema: Order,
  reply: z.object({ receipt: z.string() }),
});

export const ordering = saga("ordering", { version: 1, input: Order, key: (order) => order.orderId })
  .send("charge", Charge, ({ input }) => input)
  .noUndo("this shop never refunds")
  .run("thank", ({ input }) => `Thank you for ${input.orderId}`)
  .noUndo("words only");
