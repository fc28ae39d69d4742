import { expect, test } from "vitest";
import { event, saga } from "sagabox";
import { z } from "zod";
import { until } from "../support/relays.ts";
import { Order, sagaFixture } from "../support/saga-fixture.ts";

const Moved = event("goods.moved", { schema: z.object({ from: z.string(), to: z.string() }) });
const begin = (version: number) => saga("order", { version, input: Order, key: (i) => i.orderId });

test("F8: each version of a saga knows an event by its own key", async () => {
  const { bus, ends, status } = await sagaFixture();
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

test("F8, S-11: an event that comes first is kept for the instance of each version, by its own key", async () => {
  const { bus, pool, ends, lines, status } = await sagaFixture();
  const first = begin(1).waitFor("moved", Moved, { by: (d) => d.from, timeout: "1m" });
  const second = begin(2).waitFor("moved", Moved, { by: (d) => d.to, timeout: "1m" });
  bus.register(first, second);
  await bus.run();
  await bus.transaction((tx) => tx.publish(Moved, { from: "here", to: "there" }));
  await bus.transaction((tx) => tx.publish(Moved, { from: "elsewhere", to: "nowhere" }));
  const kept = "select distinct correlation_id from sagabox.saga_input where saga_id is null";
  await until(async () => (await pool.query(kept)).rows.length === 4);
  const [a, b, c] = await bus.transaction(async (tx) => [
    await bus.start(tx, first, { orderId: "here" }),
    await bus.start(tx, second, { orderId: "there" }),
    await bus.start(tx, first, { orderId: "nowhere" }),
  ]);
  await ends(a?.sagaId ?? "", "completed");
  await ends(b?.sagaId ?? "", "completed");
  // Kept under its key for the other version, and of no use to this one.
  const notes = async () => (await lines(c?.sagaId ?? "")).map(({ note }) => note);
  await until(async () => (await notes()).includes("no step of it waits for that"));
  expect(await status(c?.sagaId ?? "")).toBe("running");
});

test("F1: of two steps that wait for one event, each continues only with the one that has its own key", async () => {
  const { bus, ends, lines, status } = await sagaFixture();
  const order = begin(1)
    .waitFor("left", Moved, { by: (d) => d.from, timeout: "1m" })
    .waitFor("came", Moved, { by: (d) => d.to, timeout: "1m" });
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "here" }));
  const publishMoved = (from: string, to: string) => bus.transaction((tx) => tx.publish(Moved, { from, to }));
  await publishMoved("here", "a");
  await publishMoved("here", "b");
  const early = '"goods.moved" came before it was waited for';
  await until(async () => (await lines(sagaId)).some(({ note }) => note === early));
  expect(await status(sagaId)).toBe("running");
  await publishMoved("c", "here");
  await ends(sagaId, "completed");
  const { steps } = await bus.sagas.show(sagaId);
  expect(steps.map(({ step, status: as }) => [step, as])).toEqual([
    ["left", "completed"],
    ["came", "completed"],
  ]);
});
