import { expect, test } from "vitest";
import { saga } from "sagabox";
import { Approved, sagaOptions, sagaHarness } from "../support/saga-fixture.ts";
import { until } from "../support/relays.ts";

test("a start that was rolled back to a savepoint has not happened: none of its steps is done", async () => {
  const { bus, pool, at } = await sagaHarness();
  const charged: string[] = [];
  const order = saga("order", sagaOptions)
    .run("charge", ({ input }) => void charged.push(input.id))
    .noUndo("a test");
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction(async (tx) => {
    await tx.query("savepoint first");
    await bus.start(tx, order, { id: "rolled back" });
    await tx.query("rollback to savepoint first");
    return bus.start(tx, order, { id: "kept" });
  });
  await at(sagaId, "completed");
  await bus.stop(); // ends when every step that was begun has
  expect((await pool.query("select correlation_id from sagabox.saga_instance")).rows).toEqual([
    { correlation_id: "kept" },
  ]);
  expect(charged).toEqual(["kept"]);
});

test("a saga cancelled before its first step is not begun", async () => {
  const { bus, start, at } = await sagaHarness();
  const called: string[] = [];
  const order = saga("order", sagaOptions)
    .run("charge", () => void called.push("charge"))
    .undo(({ outcome }) => void called.push(`undo, ${outcome}`));
  bus.register(order);
  const { sagaId } = await start(order, { id: "a" });
  await bus.sagas.cancel(sagaId, { actor: "ann", reason: "ticket 7" });
  await bus.run();
  await at(sagaId, "compensated");
  expect(called).toEqual(["undo, unknown"]); // a worker may have begun it and died
});

test.each(["read committed", "repeatable read", "serializable"] as const)(
  "an event that came while a transaction of %s was open reaches the saga that it starts",
  async (isolation) => {
    const { bus, at, pool } = await sagaHarness();
    const order = saga("order", sagaOptions).waitFor("approval", Approved, { timeout: "1h" });
    bus.register(order);
    await bus.run();
    const publish = (): Promise<unknown> =>
      bus.transaction((tx) => tx.publish(Approved, { id: "a", by: "ann" }));
    const isKept = async (): Promise<boolean> =>
      (await pool.query("select id from sagabox.saga_input")).rows.length === 1;
    const { sagaId } = await bus.transaction(
      async (tx) => {
        await tx.query("select 1"); // the stricter ones see nothing new from here on
        await publish();
        await until(isKept);
        return bus.start(tx, order, { id: "a" });
      },
      { isolation },
    );
    await at(sagaId, "completed");
    expect((await pool.query("select id from sagabox.saga_input")).rows).toEqual([]);
  },
);
