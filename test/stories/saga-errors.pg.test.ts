import { expect, test } from "vitest";
import { refuse, saga } from "sagabox";
import { Order, Paid, sagaFixture } from "../support/saga-fixture.ts";

const begin = () => saga("order", { version: 1, input: Order, key: (i) => i.orderId });

test.each([
  ["NUL", () => new Error("a\0b")],
  ["half a character", () => new Error("a\uD800b")],
  ["a refusal with NUL", () => refuse("a\0b")],
  ["a message that is no text", () => Object.assign(new Error("x"), { message: { code: 1 } })],
  ["something that cannot be made a text", () => Object.create(null) as unknown],
  ["two million characters", () => new Error("x".repeat(2_000_000))],
])("F4: for every thrown value the saga ends: %s", async (_, thrown) => {
  const { bus, ends } = await sagaFixture();
  const order = begin()
    .run(
      "charge",
      () => {
        throw thrown();
      },
      { retry: { maxAttempts: 1 } },
    )
    .undo(() => undefined);
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "compensated");
});

test("F6: for every value that a choice throws, its saga ends", async () => {
  const { bus, ends, lines } = await sagaFixture();
  const order = begin()
    .run("note", () => 1)
    .noUndo("a test")
    .when(
      "gift",
      () => {
        throw new Error("a\0b");
      },
      (s) => s.run("wrap", () => 1).noUndo("a test"),
    );
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "compensated");
  expect((await lines(sagaId)).map(({ note }) => note)).toContain("its own function failed: a\uFFFDb");
});

test("F4: a saga that fails to find its key in an event keeps it from no other saga", async () => {
  const { bus, ends } = await sagaFixture();
  const waiting = (name: string, by: (paid: { readonly orderId: string }) => string) =>
    saga(name, { version: 1, input: Order, key: (i) => i.orderId }).waitFor("paid", Paid, {
      by,
      timeout: "1h",
    });
  const broken = waiting("broken", () => {
    throw new Error("no key in here");
  });
  const sound = waiting("sound", ({ orderId }) => orderId);
  bus.register(broken, sound);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, sound, { orderId: "o1" }));
  await bus.transaction((tx) => tx.publish(Paid, { orderId: "o1" }));
  await ends(sagaId, "completed");
});
