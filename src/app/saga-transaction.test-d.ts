import { expectTypeOf, test } from "vitest";
import { z } from "zod";
import type { Started } from "../inbox/index.ts";
import { event } from "../message/index.ts";
import { saga } from "../saga/index.ts";
import type { Bus } from "./bus.ts";

declare const bus: Bus;
const Placed = event("order.placed", { schema: z.object({ orderId: z.string() }) });
const placeOrder = saga("place-order", {
  version: 1,
  input: z.object({ orderId: z.string() }),
  key: ({ orderId }) => orderId,
})
  .tx("book", async ({ tx, publish }) => {
    expectTypeOf(tx.start(placeOrderAgain, { orderId: "o" })).resolves.toEqualTypeOf<Started>();
    await publish(Placed, { orderId: "o" });
    // @ts-expect-error the transaction cannot be committed
    void tx.commit;
    return { booked: true };
  })
  .undo(async ({ tx, publish }) => {
    await tx.publish(Placed, { orderId: "o" });
    // @ts-expect-error wrong data
    void publish(Placed, { orderId: 1 });
  });
declare const placeOrderAgain: {
  readonly definition: object;
  readonly "~saga": { readonly input: { orderId: string } };
};

test("a handler and a transaction start sagas", () => {
  bus.on(Placed, { consumer: "starts" }, async ({ data }, { tx }) => {
    expectTypeOf(await bus.start(tx, placeOrder, data)).toEqualTypeOf<Started>();
    expectTypeOf(await tx.start(placeOrder, data)).toEqualTypeOf<Started>();
    // @ts-expect-error wrong input
    void tx.start(placeOrder, { orderId: 1 });
    // @ts-expect-error wrong input
    void bus.start(tx, placeOrder, { id: "o" });
    // @ts-expect-error the handler must not end its transaction
    void tx.destroy;
  });
  bus.onBatch(Placed, { consumer: "starts many" }, async (messages, { tx }) => {
    for (const { data } of messages) await tx.start(placeOrder, data);
  });
  void bus.transaction((tx) => tx.start(placeOrder, { orderId: "o" }));
});

test("a saga has a typed result", async () => {
  const result = await bus.sagas.result(placeOrder, "id", { timeout: "5s" });
  // @ts-expect-error the saga may have failed
  void result.steps;
  if (result.status === "completed") expectTypeOf(result.steps.book.booked).toBeBoolean();
  else expectTypeOf(result.error).toBeString();
  // @ts-expect-error a wait has an end
  void bus.sagas.result(placeOrder, "id", {});
});

test("an event starts a saga with an input of the right type", () => {
  bus.startOn(Placed, placeOrder, ({ data }) => data);
  bus.startOn(Placed, placeOrder, async ({ data }) => (data.orderId === "" ? undefined : data));
  // @ts-expect-error wrong input
  bus.startOn(Placed, placeOrder, () => ({ orderId: 1 }));
  // @ts-expect-error a saga is not a contract
  bus.startOn(placeOrder, placeOrder, () => ({ orderId: "o" }));
  // @ts-expect-error one event starts one saga, so there are no batches
  bus.startOn(Placed, placeOrder, ({ data }) => data, { batch: { size: 2 } });
});
