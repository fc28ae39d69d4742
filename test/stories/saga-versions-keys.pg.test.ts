import { expect, test } from "vitest";
import { event, saga } from "sagabox";
import { z } from "zod";
import { Order, sagaShop } from "../support/saga-shop.ts";

const Moved = event("goods.moved", { schema: z.object({ from: z.string(), to: z.string() }) });
const begin = (version: number) => saga("order", { version, input: Order, key: (i) => i.orderId });

test("F8: each version of a saga knows an event by its own key", async () => {
  const { bus, ends, status } = await sagaShop();
  const first = begin(1).waitFor("moved", Moved, { by: (d) => d.from, timeout: "1m" });
  const second = begin(2).waitFor("moved", Moved, { by: (d) => d.to, timeout: "1m" });
  bus.register(first, second);
  await bus.run();
  const [a, b, c] = await bus.transaction(async (tx) => [
    await bus.start(tx, first, { orderId: "here" }),
    await bus.start(tx, second, { orderId: "there" }),
    await bus.start(tx, first, { orderId: "elsewhere" }),
  ]);
  await bus.transaction((tx) => tx.publish(Moved, { from: "here", to: "elsewhere" }));
  await ends(a?.sagaId ?? "", "completed");
  await bus.transaction((tx) => tx.publish(Moved, { from: "nowhere", to: "there" }));
  await ends(b?.sagaId ?? "", "completed");
  expect(await status(c?.sagaId ?? "")).toBe("running");
});
