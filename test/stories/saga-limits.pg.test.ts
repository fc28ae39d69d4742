import { expect, test } from "vitest";
import { saga, type Json } from "sagabox";
import { Order, sagaFixture } from "../support/saga-fixture.ts";

const begin = (name = "order") => saga(name, { version: 1, input: Order, key: (i) => i.orderId });
const small = { sagas: { pollInterval: 50, maxStateBytes: 2_000 } };

test("S-15: a child whose results are too large for its parent is taken back", async () => {
  const { bus, ends, pool } = await sagaFixture(small);
  const undone: string[] = [];
  const child = begin("child")
    .run("large", () => "x".repeat(1_500))
    .undo(() => void undone.push("large"));
  const order = begin()
    .run("note", () => "y".repeat(800))
    .undo(() => void undone.push("note"))
    .child("packing", child, (c) => c.input)
    .undoChild();
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "compensated");
  expect(undone).toEqual(["large", "note"]);
  expect((await pool.query("select distinct status from sagabox.saga_instance")).rows).toEqual([
    { status: "compensated" },
  ]);
});

test("S-15: a saga that grows beyond its limit round by round is undone, every round once", async () => {
  const { bus, ends } = await sagaFixture(small);
  const did: string[] = [];
  const undone: string[] = [];
  const order = begin().repeat(
    "again",
    (s) =>
      s.run("one", (c) => void did.push(c.idempotencyKey)).undo((c) => void undone.push(c.idempotencyKey)),
    () => false,
    { max: 100 },
  );
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "compensated");
  expect(did.length).toBeGreaterThan(3);
  expect(undone).toEqual(did.toReversed());
});

test("S-15: what a tx step wrote is rolled back when its result is too large", async () => {
  const { bus, ends, pool } = await sagaFixture(small);
  await pool.query("create table booked (id text)");
  const order = begin()
    .tx("book", async (c) => {
      await c.tx.query("insert into booked values ('a')", []);
      return "x".repeat(3_000);
    })
    .noUndo("a test");
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "compensated");
  expect((await pool.query("select * from booked")).rows).toEqual([]);
});

const nestArray = (depth: number): Json => (depth === 0 ? 1 : [nestArray(depth - 1)]);

test("S-15: results that are as deep and as large as they may be can be read again", async () => {
  const { bus, ends } = await sagaFixture({ sagas: { pollInterval: 50, maxStateBytes: 5_000_000 } });
  const order = begin()
    .run("deep", () => nestArray(64))
    .noUndo("a test")
    .run("wide", () => "€".repeat(300_000))
    .noUndo("a test")
    .run("wider", () => "€".repeat(300_000))
    .noUndo("a test")
    .delay("rest", 200)
    .run("last", (c) => c.steps.wider.length)
    .noUndo("a test");
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "completed");
  expect((await bus.sagas.show(sagaId)).status).toBe("completed");
  expect((await bus.sagas.history(sagaId)).length).toBeGreaterThan(5);
});
