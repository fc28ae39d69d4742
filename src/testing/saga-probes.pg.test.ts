import { eventually, sagaEnds, sagaWaitsFor } from "sagabox/testing";
import { expect, test } from "vitest";
import { sagaFixture } from "../../test/support/saga-fixture.ts";
import { approval, Approved } from "../../test/support/tested-order.ts";

async function setup() {
  const { bus } = await sagaFixture();
  const saga = approval();
  bus.register(saga);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, saga, { orderId: "o1" }));
  return { bus, sagaId };
}

test("a probe resolves with the saga when it reaches the expected state", async () => {
  const { bus, sagaId } = await setup();
  // #region probes
  const { dueAt } = await sagaWaitsFor(bus, sagaId, "approved");
  await bus.transaction((tx) => tx.publish(Approved, { orderId: "o1" }));
  const { steps } = await sagaEnds(bus, sagaId, "completed", { within: "5s" });
  // #endregion probes
  expect(dueAt).not.toBeNull();
  expect(steps).toMatchObject([{ step: "approved", status: "completed" }]);
  expect((await sagaEnds(bus, sagaId)).status).toBe("completed");
});

test("a probe that times out describes the state and the history of the saga", async () => {
  const { bus, sagaId } = await setup();
  const error = await sagaEnds(bus, sagaId, "completed", { within: 100 }).catch((thrown: Error) => thrown);
  expect(error).toMatchObject({ name: "AssertionError", actual: "running" });
  const [first, second, third, fourth, fifth, ...lines] = (error as Error).message.split("\n");
  expect(first).toBe(`Saga ${sagaId} was expected to be completed within 100 ms.`);
  expect(second).toBe('It is a "tested-approval" (version 1) with the key "o1", and is running.');
  expect(third).toMatch(/^It waits for wait: approved, since 2/);
  expect(fourth).toMatch(/^It is due at 2/);
  expect(fifth).toBe("The last lines of its history:");
  expect(lines.join("\n")).toMatch(/v1 step_executed approved pending → in_progress \(.*\)/);
});

test("a probe rejects at once when the state can no longer be reached", async () => {
  const { bus, sagaId } = await setup();
  await bus.sagas.cancel(sagaId, { actor: "ada", reason: "changed her mind" });
  await sagaEnds(bus, sagaId, "compensated");
  const beganAt = performance.now();
  const never = { within: "20s" } as const;
  await expect(sagaEnds(bus, sagaId, "completed", never)).rejects.toThrow(/to be completed\.\n/);
  await expect(sagaWaitsFor(bus, sagaId, "approved", never)).rejects.toThrow(/to wait for "approved"\.\n/);
  expect(performance.now() - beganAt).toBeLessThan(5_000);
});

test("a probe waits for a completed saga to be compensated only after an operator's request", async () => {
  const { bus, sagaId } = await setup();
  await bus.transaction((tx) => tx.publish(Approved, { orderId: "o1" }));
  await sagaEnds(bus, sagaId, "completed");
  const never = { within: "20s" } as const;
  const beganAt = performance.now();
  await expect(sagaEnds(bus, sagaId, "compensated", never)).rejects.toThrow(/to be compensated\.\n/);
  await expect(sagaEnds(bus, sagaId, "failed", never)).rejects.toThrow(/to be failed\.\n/);
  expect(performance.now() - beganAt).toBeLessThan(5_000);
  await bus.sagas.compensate(sagaId, { actor: "ada", reason: "changed her mind" });
  expect((await sagaEnds(bus, sagaId, "compensated", never)).status).toBe("compensated");
});

test("a probe of a saga that does not exist says so", async () => {
  const { bus } = await setup();
  await expect(sagaEnds(bus, "nobody", "completed", { within: 50 })).rejects.toThrow(/There is no such saga/);
});

test("eventually fails with the last error as its cause", async () => {
  let looks = 0;
  expect(await eventually(() => ++looks > 3 && "found")).toBe("found");
  const broken = eventually(() => Promise.reject(new Error("no database")), { within: 20 });
  const error = (await broken.catch((thrown: unknown) => thrown)) as Error;
  expect(error.message).toContain("The condition was not met within 20 ms");
  expect(error.cause).toMatchObject({ message: "no database" });
  const stuck = eventually(() => new Promise<boolean>(() => undefined), { within: 20 });
  await expect(stuck).rejects.toThrow("The condition was not met within 20 ms");
});
