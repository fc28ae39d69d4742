import { expect, test } from "vitest";
import { permanent, refuse, saga } from "sagabox";
import { replayFailedCommands } from "../../examples/guides/sagas.ts";
import { until } from "../support/relays.ts";
import { Charge, Order, Refund, sagaFixture } from "../support/saga-fixture.ts";

const by = { actor: "ada", reason: "refunded by hand" };

const failures = [
  { name: "throws permanent()", error: () => permanent("the bank is closed"), attempts: 1 },
  { name: "uses up its attempts", error: () => new Error("the bank is closed"), attempts: 2 },
];

/** A saga whose undo command becomes a dead letter, and what its handler and its operators see. */
async function sagaWithBadUndo(error: () => Error) {
  const { bus, pool, ends } = await sagaFixture();
  const fixture = { attempts: 0, isBroken: true };
  const order = saga("order", { version: 1, input: Order, key: (i) => i.orderId })
    .send("charge", Charge, (c) => c.input)
    .undo(Refund, (c) => c.input)
    .run("ship", () => {
      throw refuse("no truck");
    })
    .noUndo("nothing was shipped");
  bus.register(order);
  bus.on(Charge, { consumer: "payments" }, () => ({ paymentId: "p1" }));
  const retry = { maxAttempts: 2, firstDelay: 1 };
  bus.on(Refund, { consumer: "payments", retry }, () => {
    fixture.attempts += 1;
    if (fixture.isBroken) throw error();
  });
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "failed");
  const letters = async () =>
    (
      await pool.query<{ id: string; closed_as: string | null }>(
        "select id::text, closed_as from sagabox.dead_letter order by id",
      )
    ).rows;
  return { bus, sagaId, ends, letters, fixture };
}

test.for(failures)("F4: an undo whose handler $name is one dead letter of one incident", async (failure) => {
  const { bus, sagaId, ends, letters, fixture } = await sagaWithBadUndo(failure.error);
  expect(fixture.attempts).toBe(failure.attempts);
  const [letter, ...others] = await letters();
  expect(others).toEqual([]);
  expect(letter).toMatchObject({ closed_as: null });
  const { incident, steps } = await bus.sagas.show(sagaId);
  expect(incident).toMatchObject({ steps: ["charge"], deadLetters: [letter?.id] });
  expect(incident?.error).toContain("the bank is closed");
  expect(steps[0]?.undo).toMatchObject({ status: "failed", attempts: 1 });
  await bus.sagas.settle(sagaId, { step: "charge", ...by });
  await ends(sagaId, "compensated");
  expect(await letters()).toEqual([{ id: letter?.id, closed_as: "discarded" }]);
  expect(await bus.sagas.incidents({ open: false })).toMatchObject([{ sagaId, deadLetters: [] }]);
});

test("F4: a retry of the undo discards its dead letter, and another failure is the only open one", async () => {
  const { bus, sagaId, ends, letters, fixture } = await sagaWithBadUndo(() => permanent("closed"));
  await bus.sagas.retry(sagaId, by);
  await until(async () => (await letters()).length === 2);
  await ends(sagaId, "failed");
  expect(await letters()).toMatchObject([{ closed_as: "discarded" }, { closed_as: null }]);
  fixture.isBroken = false;
  await bus.sagas.retry(sagaId, by);
  await ends(sagaId, "compensated");
  expect(await letters()).toMatchObject([{ closed_as: "discarded" }, { closed_as: "discarded" }]);
  expect(fixture.attempts).toBe(3);
});

test("F4: a replay of the dead letter carries out the undo, and closes the incident", async () => {
  const { bus, sagaId, ends, letters, fixture } = await sagaWithBadUndo(() => permanent("closed"));
  fixture.isBroken = false;
  const [letter] = await letters();
  await replayFailedCommands(bus, sagaId);
  await ends(sagaId, "compensated");
  expect(await letters()).toEqual([{ id: letter?.id, closed_as: "replayed" }]);
  expect(await bus.sagas.incidents()).toEqual([]);
});
