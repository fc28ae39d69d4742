import { event, permanent, saga, type Bus } from "sagabox";
import { expect, test } from "vitest";
import { z } from "zod";
import { until } from "../support/relays.ts";
import { sagaFixture } from "../support/saga-fixture.ts";

const options = { version: 1, input: z.object({ id: z.string() }), key: ({ id }: { id: string }) => id };
const Go = event("go", { schema: z.object({ id: z.string() }), key: ({ id }) => id });

const order = saga("order", options)
  .run("charge", () => ({ paymentId: "p1" }))
  .noUndo("a test")
  .waitFor("gone", Go, { timeout: "1h" });

const start = async (bus: Bus, id = "a") => (await bus.transaction((tx) => tx.start(order, { id }))).sagaId;

test("the result of a saga arrives in the process that runs it, in another worker, and in one that runs nothing", async () => {
  const { bus, another } = await sagaFixture();
  const [worker, client] = [another({ worker: "second" }), another({ worker: "client" })];
  for (const one of [bus, worker]) one.register(order);
  await Promise.all([bus.run(), worker.run()]);
  const sagaId = await start(bus);
  const results = [bus, worker, client].map((one) => one.sagas.result(order, sagaId, { timeout: "25s" }));
  await bus.transaction((tx) => tx.publish(Go, { id: "a" }));
  const completed = { status: "completed", steps: { charge: { paymentId: "p1" }, gone: { id: "a" } } };
  expect(await Promise.all(results)).toEqual([completed, completed, completed]);
  expect(await client.sagas.result(order, sagaId, { timeout: "5s" })).toEqual(completed); // it has ended before
});

test("the result of a saga that an event starts is awaited by its key, before it exists", async () => {
  const { bus, another } = await sagaFixture();
  const client = another({ worker: "client" }); // it runs nothing
  const Placed = event("placed", { schema: z.object({ id: z.string() }), key: ({ id }) => id });
  bus.startOn(Placed, order, ({ data }) => data);
  await bus.run();
  const keys = ["a", 'b, "c"', "{d}"];
  const results = keys.map((key) => client.sagas.result(order, { key }, { timeout: "25s" }));
  for (const id of keys) {
    await client.transaction(async (tx) => {
      await tx.publish(Placed, { id });
      await tx.publish(Go, { id });
    });
  }
  expect(
    (await Promise.all(results)).map((result) => result.status === "completed" && result.steps.gone),
  ).toEqual(keys.map((id) => ({ id })));
  const again = await client.sagas.result(order, { key: "a" }, { timeout: "5s" });
  expect(again.status).toBe("completed"); // it has ended before
});

test("a failure has the step and its error", async () => {
  const { bus } = await sagaFixture();
  const once = { retry: { maxAttempts: 1 } } as const;
  const declined = saga("declined", options)
    .run("reserve", () => "r1")
    .undo(() => undefined)
    .run("charge", () => Promise.reject(permanent("card declined")), once)
    .noUndo("a test");
  const parked = saga("parked", options)
    .run("charge", () => undefined)
    .pivot()
    .run("ship", () => Promise.reject(permanent("no parcels")), once);
  bus.register(declined, parked, order);
  await bus.run();
  const { sagaId: first } = await bus.transaction((tx) => tx.start(declined, { id: "a" }));
  expect(await bus.sagas.result(declined, first, { timeout: "20s" })).toEqual({
    status: "compensated",
    step: "charge",
    error: "card declined",
  });
  const second = await bus.transaction((tx) => tx.start(parked, { id: "a" }));
  expect(await bus.sagas.result(parked, second.sagaId, { timeout: "20s" })).toEqual({
    status: "failed",
    step: "ship",
    error: "no parcels",
  });
  const sagaId = await start(bus);
  const cancelled = bus.sagas.result(order, sagaId, { timeout: "20s" });
  await until(async () => (await bus.sagas.show(sagaId)).currentStep === "gone");
  await bus.sagas.cancel(sagaId, { actor: "ada", reason: "changed her mind" });
  expect(await cancelled).toEqual({
    status: "compensated",
    step: null,
    error: expect.stringContaining("changed her mind") as string,
  });
});

test("waiting ends with the timeout, without an instance, in a transaction, and when the bus stops", async () => {
  const { bus, another } = await sagaFixture();
  bus.register(order);
  const sagaId = await start(bus);
  const wait = (timeout: number, id = sagaId) => bus.sagas.result(order, id, { timeout });
  const other = saga("other", options)
    .run("a", () => 1)
    .noUndo("a test");
  const code = (name: string) => expect.objectContaining({ code: name }) as Error;
  await expect(wait(50)).rejects.toThrow(code("SAGA_RESULT_TIMEOUT"));
  await expect(wait(50, "nothing")).rejects.toThrow(code("SAGA_NOT_FOUND"));
  await expect(wait(50, "a")).rejects.toThrow("this is the key of saga " + sagaId);
  const find = (key: string) => bus.sagas.result(order, { key }, { timeout: 50 });
  await expect(find("nothing")).rejects.toThrow(
    /No saga "order" with the key "nothing" was started within 50 ms/,
  );
  await expect(find("\u0000")).rejects.toThrow(code("OPTIONS_INVALID")); // it would fail the waits of others
  await expect(wait(50, "\u0000")).rejects.toThrow(code("OPTIONS_INVALID"));
  await expect(wait(0)).rejects.toThrow(code("OPTIONS_INVALID"));
  await expect(bus.transaction(() => wait(50))).rejects.toThrow(code("REQUEST_IN_TRANSACTION"));
  const worker = another({ worker: "second" });
  worker.register(order);
  await worker.run();
  await worker.sagas.cancel(sagaId, { actor: "ada", reason: "a test" });
  await expect(worker.sagas.result(other, sagaId, { timeout: "20s" })).rejects.toThrow(
    code("SAGA_NOT_FOUND"),
  );
  const stopped = bus.sagas.result(order, await start(bus, "b"), { timeout: "20s" });
  const searching = bus.sagas.result(order, { key: "nothing" }, { timeout: "20s" });
  const rejected = [stopped, searching].map((one) => expect(one).rejects.toThrow(code("BUS_STOPPED")));
  await bus.stop();
  await Promise.all(rejected);
});
