import { expect, test } from "vitest";
import { event, permanent, saga } from "sagabox";
import { z } from "zod";
import { Approved, approvedOrder, sagaOptions, sagaHarness } from "../../../test/support/saga-fixture.ts";

const by = { actor: "ann", reason: "ticket 7" };

test("F5, G10: every transition is in the history, with what or who caused it", async () => {
  const { bus, start, at } = await sagaHarness();
  const order = approvedOrder({ broken: false });
  bus.register(order);
  await bus.run();
  const { sagaId } = await start(order, { id: "a" });
  await at(sagaId, "running", "approval");
  expect(await bus.sagas.cancel(sagaId, by)).toEqual({ sagaId, accepted: true });
  await at(sagaId, "compensated");
  const lines = await bus.sagas.history(sagaId);
  expect(lines.map(({ event: kind, step, from, to }) => [kind, step, from, to].join(" "))).toEqual([
    "step_executed reserve pending in_progress",
    "state_changed  started running",
    "step_executed reserve in_progress completed",
    "step_executed approval pending in_progress",
    "noted   ",
    "failed approval in_progress failed",
    "compensated reserve completed compensating",
    "state_changed  running compensating",
    "compensated reserve compensating compensated",
    "state_changed  compensating compensated",
  ]);
  const said = lines.filter(({ actor }) => actor === "ann");
  expect(said.map(({ version, cause }) => `${version} ${cause}`)).toEqual(
    Array.from({ length: 4 }, () => "3 operator:ann"),
  );
  expect(said.map(({ reason }) => reason)).toEqual(["ticket 7", null, null, null]);
  expect(said[0]).toMatchObject({ note: "cancel by ann: ticket 7", input: { kind: "cancel", by } });
  expect(await bus.sagas.history(sagaId, { limit: 2, after: lines[1]?.id ?? "" })).toEqual(lines.slice(2, 4));
  await expect(bus.sagas.history("nobody")).rejects.toMatchObject({ code: "SAGA_NOT_FOUND" });
});

test("F10: what failed for good is an incident, is found as stuck, and goes on when a person has it tried again", async () => {
  const { bus, start, at } = await sagaHarness();
  const world = { broken: true };
  const order = approvedOrder(world);
  bus.register(order);
  await bus.run();
  const { sagaId } = await start(order, { id: "a" });
  await at(sagaId, "running", "approval");
  await bus.sagas.cancel(sagaId, by);
  await at(sagaId, "failed");
  expect(await bus.sagas.incidents()).toMatchObject([
    { sagaId, type: "order", steps: ["reserve"], error: "stock is down", closedAt: null },
  ]);
  expect(await bus.sagas.stuck()).toMatchObject([
    { id: sagaId, reason: "incident", why: "The undo of reserve failed for good: stock is down" },
  ]);
  expect((await bus.sagas.show(sagaId)).incident?.steps).toEqual(["reserve"]);
  world.broken = false;
  expect(await bus.sagas.retry(sagaId, { ...by, step: "reserve" })).toEqual({ sagaId, accepted: true });
  await at(sagaId, "compensated");
  expect(await bus.sagas.incidents()).toEqual([]);
  expect(await bus.sagas.incidents({ open: false })).toMatchObject([{ sagaId, resolution: "compensating" }]);
  expect(await bus.sagas.stuck({ olderThan: 0 })).toEqual([]);
});

test.each(["skip", "settle"] as const)("F10: a failed undo can be left out by %s", async (action) => {
  const { bus, start, at } = await sagaHarness();
  const order = approvedOrder({ broken: true });
  bus.register(order);
  await bus.run();
  const { sagaId } = await start(order, { id: "a" });
  await at(sagaId, "running", "approval");
  await bus.sagas.compensate(sagaId, by);
  await at(sagaId, "failed");
  await bus.sagas[action](sagaId, { ...by, step: "reserve" });
  await at(sagaId, "compensated");
  expect((await bus.sagas.show(sagaId)).steps[0]).toMatchObject(
    action === "skip"
      ? { status: "skipped", undo: { status: "settled", error: "stock is down" } }
      : { status: "compensated", undo: { status: "done" } },
  );
  // Asked again, it is so already.
  expect(await bus.sagas[action](sagaId, { ...by, step: "reserve" })).toEqual({ sagaId, accepted: false });
});

test("F10: past the pivot a step is settled by hand with the result it would have had", async () => {
  const { bus, start, at } = await sagaHarness();
  const seen: unknown[] = [];
  const order = saga("order", sagaOptions)
    .tx("book", () => 1)
    .pivot()
    .run(
      "ship",
      (): string => {
        throw permanent("the carrier is gone");
      },
      { retry: { maxAttempts: 1 } },
    )
    .run("tell", (c) => void seen.push(c.steps.ship));
  bus.register(order);
  await bus.run();
  const { sagaId } = await start(order, { id: "a" });
  await at(sagaId, "failed");
  await expect(bus.sagas.compensate(sagaId, by)).rejects.toMatchObject({
    code: "SAGA_ACTION_REFUSED",
    message: `Saga ${sagaId} cannot do "compensate": it is past its pivot and can only go forward.`,
  });
  await bus.sagas.settle(sagaId, { ...by, step: "ship", result: "by bicycle" });
  await at(sagaId, "completed");
  expect(seen).toEqual(["by bicycle"]);
});

test("F10: what obviously cannot be done is refused with the reason, and the attempt is written down", async () => {
  const { bus, start, at } = await sagaHarness();
  const other = saga("other", sagaOptions)
    .run("only", () => 1)
    .noUndo("nothing to undo");
  bus.register(other);
  await bus.run();
  const { sagaId } = await start(other, { id: "a" });
  await at(sagaId, "completed");
  const refusals = [
    [() => bus.sagas.cancel(sagaId, by), "it has completed"],
    [() => bus.sagas.retry(sagaId, by), "it has ended"],
    [() => bus.sagas.skip(sagaId, { ...by, step: "only" }), 'step "only" has not failed: it is completed'],
    [
      () => bus.sagas.retry(sagaId, { ...by, step: "onyl" }),
      'no step "onyl" of it has begun. Did you mean "only"?',
    ],
  ] as const;
  for (const [refused, why] of refusals) {
    await expect(refused()).rejects.toMatchObject({
      code: "SAGA_ACTION_REFUSED",
      message: expect.stringContaining(why),
    });
  }
  const ignored = (await bus.sagas.history(sagaId)).filter(({ event: kind }) => kind === "ignored");
  expect(ignored.map(({ actor, note }) => [actor, note])).toEqual(refusals.map(([, why]) => ["ann", why]));
  await expect(bus.sagas.cancel("nobody", by)).rejects.toMatchObject({ code: "SAGA_NOT_FOUND" });
});

test.each([
  [{ actor: "", reason: "r" }],
  [{ actor: "  ", reason: "r" }],
  [{ actor: "a", reason: "\t" }],
  [{ actor: "a" } as typeof by],
])("nobody acts without a name and a reason: %j", async (given) => {
  const { bus } = await sagaHarness();
  await expect(async () => bus.sagas.cancel("x", given)).rejects.toMatchObject({ code: "OPTIONS_INVALID" });
});

test("F10: the same wish twice is one letter, and a saga that is being undone is not cancelled again", async () => {
  const { bus, start, pool } = await sagaHarness();
  const order = approvedOrder({ broken: false });
  bus.register(order);
  const { sagaId } = await start(order, { id: "a" });
  const both = await Promise.all([bus.sagas.cancel(sagaId, by), bus.sagas.cancel(sagaId, by)]);
  expect(both.filter(({ accepted }) => accepted)).toHaveLength(1);
  expect((await pool.query("select id from sagabox.saga_input")).rows).toHaveLength(1);
  expect((await bus.sagas.show(sagaId)).pendingInputs).toBe(1);
});

test("F10: a signal brings the event that is waited for, once, checked by its schema", async () => {
  const { bus, start, at } = await sagaHarness();
  const order = approvedOrder({ broken: false });
  bus.register(order);
  await bus.run();
  const { sagaId } = await start(order, { id: "a" });
  await at(sagaId, "running", "approval");
  const target = { type: "order", key: "a" };
  await expect(
    bus.sagas.signal(target, Approved, { id: "a" } as { id: string; by: string }, by),
  ).rejects.toMatchObject({ code: "PAYLOAD_INVALID" });
  const Other = event("other.event", { schema: z.object({ id: z.string() }), key: (d) => d.id });
  await expect(bus.sagas.signal(sagaId, Other, { id: "a" }, by)).rejects.toMatchObject({
    code: "SAGA_ACTION_REFUSED",
    message: expect.stringContaining("no step of it waits for that"),
  });
  await expect(bus.sagas.signal(sagaId, Approved, { id: "b", by: "bo" }, by)).rejects.toMatchObject({
    code: "SAGA_ACTION_REFUSED",
    message: `Saga ${sagaId} cannot do "event": "approvals.given" has the key "b" in these data, and its key is "a".`,
  });
  const given = { ...by, id: "signal-1" };
  expect(await bus.sagas.signal(target, Approved, { id: "a", by: "bo" }, given)).toEqual({
    sagaId,
    accepted: true,
  });
  await at(sagaId, "completed");
  expect((await bus.sagas.show(sagaId)).steps[1]).toMatchObject({ result: { id: "a", by: "bo" } });
  expect(await bus.sagas.signal(sagaId, Approved, { id: "a", by: "bo" }, given)).toMatchObject({
    accepted: false,
  });
  const heard = (await bus.sagas.history(sagaId)).find(({ cause }) => cause === "signal:signal-1");
  expect(heard).toMatchObject({ actor: "ann", reason: "ticket 7", step: "approval", to: "completed" });
  await expect(
    bus.sagas.signal({ type: "order", key: "nobody" }, Approved, { id: "a", by: "b" }, by),
  ).rejects.toMatchObject({ code: "SAGA_NOT_FOUND" });
});
