import { expect, test } from "vitest";
import { saga } from "sagabox";
import { forgetSagas } from "../../src/saga/index.ts";
import { pgDatabase } from "../../src/storage/index.ts";
import { Order, Paid, sagaFixture } from "../support/saga-fixture.ts";
import { until } from "../support/relays.ts";

const begin = (name = "order") => saga(name, { version: 1, input: Order, key: (i) => i.orderId });

async function family() {
  const shop = await sagaFixture();
  const undone: string[] = [];
  const child = begin("child")
    .run("pack", () => 1)
    .undo(() => void undone.push("pack"));
  const order = begin()
    .child("packing", child, (c) => c.input)
    .undoChild()
    .waitFor("paid", Paid, { timeout: "1m" });
  shop.bus.register(order);
  await shop.bus.run();
  const { sagaId } = await shop.bus.transaction((tx) => shop.bus.start(tx, order, { orderId: "o1" }));
  const waits = "select 1 from sagabox.saga_instance where id = $1 and current_step = 'paid'";
  await until(async () => (await shop.pool.query(waits, [sagaId])).rows.length === 1);
  return { ...shop, sagaId, undone };
}

const by = { actor: "ann", reason: "the customer called" };

test("S-20: a child is kept as long as its parent, which can still take it back", async () => {
  const { bus, pool, sagaId, undone, ends } = await family();
  expect(await forgetSagas(pgDatabase(pool), "sagabox", { olderThanMs: 0 })).toMatchObject({ instances: 0 });
  await bus.sagas.compensate(sagaId, by);
  await ends(sagaId, "compensated");
  expect(undone).toEqual(["pack"]);
});

test("S-20: a parent whose child is gone calls a person, and does not wait for ever", async () => {
  const { bus, pool, sagaId, ends } = await family();
  await pool.query("delete from sagabox.saga_instance where parent_id = $1", [sagaId]);
  await bus.sagas.compensate(sagaId, by);
  await ends(sagaId, "failed");
  expect(await bus.sagas.incidents()).toMatchObject([{ sagaId, steps: ["packing"] }]);
  await bus.sagas.settle(sagaId, { ...by, step: "packing" });
  await ends(sagaId, "compensated");
});

test("F6: a child whose own key function throws fails its step", async () => {
  const { bus, ends, lines } = await sagaFixture();
  const child = saga("child", {
    version: 1,
    input: Order,
    key: () => {
      throw new Error("no key today");
    },
  })
    .run("pack", () => 1)
    .noUndo("a test");
  const order = begin()
    .run("note", () => 1)
    .noUndo("a test")
    .child("packing", child, (c) => c.input)
    .undoChild();
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "compensated");
  expect(await lines(sagaId)).toContainEqual(
    expect.objectContaining({ event_type: "failed", step: "packing", note: "no key today" }),
  );
});
