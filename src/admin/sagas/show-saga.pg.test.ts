import { expect, onTestFinished, test } from "vitest";
import { command, createBus, saga } from "sagabox";
import { z } from "zod";
import { Approved, approvedOrder, sagaOptions, sagaHarness } from "../../../test/support/saga-fixture.ts";
import { temporaryDatabase } from "../../../test/support/database.ts";

const Reserve = command("stock.reserve", {
  schema: z.object({ id: z.string() }),
  reply: z.object({ r: z.string() }),
});
const by = { actor: "ann", reason: "ticket 7" };

test("F3, F10: sagas are found by type, status, step, key, correlation id and age, page by page", async () => {
  const { bus, start, at } = await sagaHarness();
  const order = approvedOrder({ broken: false });
  const other = saga("other", sagaOptions)
    .run("only", () => 1)
    .noUndo("nothing to undo");
  bus.register(order, other);
  await bus.run();
  const ids = [];
  for (const id of ["a", "b", "c"]) ids.push((await start(order, { id })).sagaId);
  const { sagaId: done } = await start(other, { id: "a" });
  await at(done, "completed");
  for (const id of ids) await at(id, "running", "approval");
  const found = async (filter: Parameters<typeof bus.sagas.list>[0]) =>
    (await bus.sagas.list(filter)).map(({ id }) => id);
  expect(await found({})).toEqual([done, ...ids.toReversed()]);
  expect(await found({ type: "order", limit: 2 })).toEqual([ids[2], ids[1]]);
  expect(await found({ type: "order", limit: 2, after: ids[1] ?? "" })).toEqual([ids[0]]);
  expect(await found({ status: "completed" })).toEqual([done]);
  expect(await found({ step: "approval" })).toEqual(ids.toReversed());
  expect(await found({ key: "a" })).toEqual([done, ids[0]]);
  const [first] = await bus.sagas.list({ key: "b" });
  expect(await found({ correlationId: first?.correlationId ?? "" })).toEqual([ids[1]]);
  expect(await found({ olderThan: "1h" })).toEqual([]);
  expect(await found({ olderThan: 0, type: "other" })).toEqual([done]);
  expect(first).toMatchObject({
    type: "order",
    definitionVersion: 1,
    status: "running",
    currentStep: "approval",
    waitsFor: "wait: approval",
    lastError: null,
    retryCount: 0,
    parent: null,
    completedAt: null,
  });
});

test("F5: an instance is shown with its steps, their times and results, what it waits for and since when", async () => {
  const { bus, start, at } = await sagaHarness();
  const order = approvedOrder({ broken: false });
  bus.register(order);
  await bus.run();
  const { sagaId } = await start(order, { id: "a" });
  await at(sagaId, "running", "approval");
  const shown = await bus.sagas.show(sagaId);
  expect(shown).toMatchObject({
    id: sagaId,
    input: { id: "a" },
    direction: "forward",
    pivoted: false,
    waitsFor: "wait: approval",
    incident: null,
    children: [],
  });
  expect(shown.steps.map(({ step, status, result }) => [step, status, result])).toEqual([
    ["reserve", "completed", "r1"],
    ["approval", "in_progress", null],
    ["ship", "pending", null],
  ]);
  expect(shown.steps[0]).toMatchObject({ attempts: 1, outcome: "done", durationMs: expect.any(Number) });
  expect(shown.waitingSince).toBe(shown.steps[1]?.startedAt);
  await expect(bus.sagas.show("nobody")).rejects.toMatchObject({ code: "SAGA_NOT_FOUND" });
});

test("F10: an instance nobody takes is stuck, with the version that is missing; a wait is not", async () => {
  const { bus, start, at, pool, another } = await sagaHarness();
  const order = approvedOrder({ broken: false });
  bus.register(order);
  const { sagaId } = await start(order, { id: "a" });
  const stranger = another("stranger");
  await pool.query(
    "update sagabox.saga_instance set due_at = due_at - interval '1 hour', updated_at = updated_at - interval '1 hour'",
  );
  expect(await stranger.sagas.stuck()).toMatchObject([
    { id: sagaId, reason: "unclaimed", whatToDo: expect.stringContaining("registers order version 1") },
  ]);
  expect((await stranger.sagas.stuck())[0]?.why).toMatch(/Perhaps none knows order version 1/);
  expect((await bus.sagas.stuck())[0]?.why).not.toMatch(/Perhaps/);
  await pool.query(
    "update sagabox.saga_instance set claimed_by = 'w9', claimed_until = now() + interval '1 minute'",
  );
  expect(await bus.sagas.stuck()).toMatchObject([{ reason: "held", why: expect.stringContaining("w9") }]);
  await pool.query("update sagabox.saga_instance set claimed_by = null, claimed_until = null");
  await bus.run();
  await at(sagaId, "running", "approval");
  await pool.query("update sagabox.saga_instance set updated_at = updated_at - interval '1 hour'");
  expect(await bus.sagas.stuck()).toEqual([]);
});

test("F10: pending input that no worker takes is due since it came, not when the step it stands at gives up", async () => {
  const { start, pool, bus } = await sagaHarness();
  const waits = saga("waits", sagaOptions).waitFor("approval", Approved, { timeout: "1d" });
  bus.register(waits);
  const { sagaId } = await start(waits, { id: "a" });
  await bus.sagas.cancel(sagaId, by);
  const sql = "update sagabox.saga_input set arrived_at = '2020-02-03T04:05:06Z'";
  await pool.query(sql);
  const since = "2020-02-03T04:05:06.000Z";
  expect(await bus.sagas.stuck()).toMatchObject([
    { id: sagaId, reason: "unclaimed", why: expect.stringContaining(`due since ${since}, and`) },
  ]);
  await pool.query(
    "update sagabox.saga_instance set claimed_by = 'w9', claimed_until = now() + interval '1 minute'",
  );
  expect(await bus.sagas.stuck()).toMatchObject([
    { reason: "held", why: expect.stringContaining(`since before ${since} without`) },
  ]);
});

test("F10: a command nobody answers is stuck, with whom it waits for", async () => {
  const { bus, start, pool } = await sagaHarness();
  const asking = saga("asking", sagaOptions)
    .send("reserve", Reserve, (c) => c.input, { timeout: "1d" })
    .noUndo("it expires");
  bus.register(asking);
  const { sagaId } = await start(asking, { id: "a" });
  expect(await bus.sagas.stuck()).toEqual([]);
  await pool.query("update sagabox.saga_instance set updated_at = updated_at - interval '1 hour'");
  expect(await bus.sagas.stuck({ olderThan: "30m", type: "asking" })).toMatchObject([
    { id: sagaId, reason: "slow", why: expect.stringContaining("it waits for send: reserve") },
  ]);
  expect(await bus.sagas.stuck({ olderThan: "2h" })).toEqual([]);
});

test("F10: a parent shows its children, and a child its parent", async () => {
  const { bus, start, at } = await sagaHarness();
  const child = saga("label", sagaOptions).waitFor("approval", Approved, { timeout: "1d" });
  const parent = saga("order", sagaOptions)
    .child("label", child, (c) => c.input)
    .undoChild();
  bus.register(parent);
  await bus.run();
  const { sagaId } = await start(parent, { id: "a" });
  await at(sagaId, "running", "label");
  const { children } = await bus.sagas.show(sagaId);
  expect(children).toMatchObject([
    { type: "label", status: "running", parent: { id: sagaId, step: "label" } },
  ]);
  const childId = children[0]?.id ?? "";
  expect((await bus.sagas.show(childId)).parent).toEqual({ id: sagaId, step: "label" });
  await bus.sagas.cancel(sagaId, by);
  await at(sagaId, "compensated");
  expect((await bus.sagas.show(childId)).status).toBe("compensated");
});

test("a database without the tables is told as such, with what to do", async () => {
  const { url } = await temporaryDatabase();
  const bus = createBus({ service: "shop", database: url, log: false });
  onTestFinished(() => bus.stop().then(() => undefined));
  const asked = [
    bus.sagas.list(),
    bus.sagas.show("a"),
    bus.sagas.stuck(),
    bus.sagas.check(),
    bus.sagas.cancel("a", by),
  ];
  for (const answer of await Promise.allSettled(asked)) {
    expect(answer).toMatchObject({
      status: "rejected",
      reason: { code: "STORAGE_NOT_MIGRATED", message: expect.stringContaining("sagabox migrate up") },
    });
  }
});
