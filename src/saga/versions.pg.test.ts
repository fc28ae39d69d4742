import { expect, test } from "vitest";
import { event, saga } from "sagabox";
import { z } from "zod";
import { sagaHarness } from "../../test/support/saga-fixture.ts";
import { until } from "../../test/support/relays.ts";

const Approved = event("approvals.given", { schema: z.object({ id: z.string() }), key: (d) => d.id });
const input = z.object({ id: z.string() });

const orderOf = (version: number, told: string[]) =>
  saga("order", { version, input, key: (i) => i.id })
    .waitFor("approval", Approved, { timeout: "1d" })
    .run("close", (c) => void told.push(`${c.input.id} by version ${version}`))
    .noUndo("it is last");

test("F8: what comes for a version that a worker lacks waits without counted attempts, others flow, and it ends when the version comes", async () => {
  const { bus, another, start, at, pool, observer } = await sagaHarness();
  const told: string[] = [];
  const [first, second] = [orderOf(1, told), orderOf(2, told)];
  bus.register(first);
  const { sagaId: old } = await start(first, { id: "old" });

  const modern = another("modern");
  modern.register(second);
  await modern.run();
  const { sagaId: young } = await modern.transaction((tx) => modern.start(tx, second, { id: "young" }));
  await modern.transaction(async (tx) => {
    await tx.publish(Approved, { id: "old" });
    await tx.publish(Approved, { id: "young" });
  });
  await at(young, "completed");
  const unread = async (): Promise<unknown[]> =>
    (await pool.query("select saga_id from sagabox.saga_input where saga_id = $1", [old])).rows;
  await until(async () => (await unread()).length === 1);
  expect(await observer.until("saga.unknown_version")).toContainEqual({
    type: "order",
    version: 1,
    count: 1,
  });
  expect((await pool.query("select count(*)::int as n from sagabox.dead_letter")).rows).toEqual([{ n: 0 }]);
  expect(await modern.sagas.show(old)).toMatchObject({ status: "running", retryCount: 0, pendingInputs: 1 });
  expect(told).toEqual(["young by version 2"]);

  await bus.run();
  await at(old, "completed");
  expect(told).toEqual(["young by version 2", "old by version 1"]);
  expect(await unread()).toEqual([]);
});

test("F8: a worker reports versions it lacks, for due steps and pending input", async () => {
  const { bus, another, start, pool, observer } = await sagaHarness();
  const told: string[] = [];
  const waits = orderOf(1, told);
  const works = saga("works", { version: 3, input, key: (i) => i.id })
    .run("only", () => 1)
    .noUndo("nothing to undo");
  bus.register(waits, works);
  const { sagaId } = await start(waits, { id: "a" });
  await start(works, { id: "a" });
  await bus.sagas.cancel(sagaId, { actor: "ann", reason: "test" });
  await pool.query("update sagabox.saga_input set arrived_at = arrived_at - interval '1 minute'");
  await pool.query(
    "update sagabox.saga_instance set due_at = due_at - interval '1 minute' where saga_type = 'works'",
  );
  const modern = another("modern");
  modern.register(orderOf(2, told));
  await modern.run();
  expect(await observer.until("saga.unknown_version", 2)).toEqual([
    { type: "order", version: 1, count: 1 },
    { type: "works", version: 3, count: 1 },
  ]);
});

test("F8: an instance finishes on the version it began with, while new ones begin on the new", async () => {
  const { bus, start, at } = await sagaHarness();
  const told: string[] = [];
  const [first, second] = [orderOf(1, told), orderOf(2, told)];
  bus.register(first, second);
  await bus.run();
  const { sagaId: old } = await start(first, { id: "old" });
  const { sagaId: young } = await start(second, { id: "young" });
  expect(await start(second, { id: "old" })).toEqual({ sagaId: old, started: false });
  for (const id of ["old", "young"]) await bus.transaction((tx) => tx.publish(Approved, { id }));
  await at(old, "completed");
  await at(young, "completed");
  expect(told.toSorted()).toEqual(["old by version 1", "young by version 2"]);
});
