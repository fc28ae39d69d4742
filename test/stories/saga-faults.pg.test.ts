import { expect, test } from "vitest";
import { refuse, saga } from "sagabox";
import { Charge, Order, Paid, Refund, Release, Reserve, sagaFixture } from "../support/saga-fixture.ts";
import { RecordingObserver } from "../support/recording-observer.ts";
import { until } from "../support/relays.ts";

const begin = () => saga("order", { version: 1, input: Order, key: (i) => i.orderId });

test("F1: a participant that answers too late has its effect undone, and its late reply changes nothing", async () => {
  const { bus, ends, lines } = await sagaFixture();
  const did: string[] = [];
  let answer: () => void = () => undefined;
  const slow = new Promise<void>((resolve) => (answer = resolve));
  const order = begin()
    .send("charge", Charge, (c) => c.input, { timeout: "300ms" })
    .undo(Refund, (c) => c.input);
  bus.register(order);
  bus.on(Charge, { consumer: "payments" }, async () => {
    await slow;
    did.push("charged");
    return { paymentId: "p1" };
  });
  bus.on(Refund, { consumer: "payments" }, async () => {
    did.push("refunded");
  });
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await until(async () => (await lines(sagaId)).some(({ step, note }) => step === "charge" && note !== null));
  answer();
  await ends(sagaId, "compensated");
  expect(did).toEqual(["charged", "refunded"]);
});

test("F4, E6: an undo that always fails parks the saga with one open incident; other sagas continue", async () => {
  const { bus, ends, pool } = await sagaFixture();
  let broken = true;
  const order = begin()
    .run("note", () => 1)
    .undo(
      ({ input }) => {
        if (broken && input.orderId === "stuck") throw new Error("the shop is closed");
      },
      { retry: { maxAttempts: 2, firstDelay: 1 } },
    )
    .run("fail", () => {
      throw refuse("no");
    })
    .noUndo("it does nothing");
  bus.register(order);
  await bus.run();
  const start = (orderId: string) => bus.transaction((tx) => bus.start(tx, order, { orderId }));
  const { sagaId: stuck } = await start("stuck");
  const { sagaId: fine } = await start("fine");
  await ends(stuck, "failed");
  await ends(fine, "compensated");
  const incidents = await pool.query("select saga_id, steps, error, closed_at from sagabox.saga_incident");
  expect(incidents.rows).toEqual([
    { saga_id: stuck, steps: ["note"], error: "the shop is closed", closed_at: null },
  ]);
  broken = false;
});

test("F7, S-03: every reply twice advances every step once", async () => {
  const { bus, ends, pool } = await sagaFixture();
  const order = begin()
    .send("reserve", Reserve, (c) => c.input)
    .undo(Release, (c) => c.input)
    .send("charge", Charge, (c) => c.input)
    .undo(Refund, (c) => c.input);
  bus.register(order);
  bus.on(Reserve, { consumer: "stock" }, async () => ({ reservationId: "r1" }));
  bus.on(Charge, { consumer: "payments" }, async () => ({ paymentId: "p1" }));
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "completed");
  const from = new Date(Date.now() - 60_000);
  await bus.republish({ from, to: new Date(Date.now() + 60_000) });
  await until(async () => (await pool.query("select 1 from sagabox.outbox")).rows.length === 0);
  const versions = await pool.query<{ version: number }>(
    "select distinct version from sagabox.saga_audit_log where saga_id = $1 and event_type <> 'ignored' order by 1",
    [sagaId],
  );
  expect(versions.rows.map(({ version }) => version)).toEqual([1, 2, 3]);
});

test("S-10: of a hundred starts with one key, one starts and all get its id", async () => {
  const { bus, pool } = await sagaFixture();
  const order = begin()
    .run("note", () => 1)
    .noUndo("reads only");
  bus.register(order);
  const started = await Promise.all(
    Array.from({ length: 100 }, () => bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }))),
  );
  expect(started.filter((one) => one.started)).toHaveLength(1);
  expect(new Set(started.map(({ sagaId }) => sagaId)).size).toBe(1);
  expect((await pool.query("select 1 from sagabox.saga_instance")).rows).toHaveLength(1);
});

test("S-11, S-12: an event before its saga waits for it; one after its end is reported as ignored", async () => {
  const { bus, ends, lines, pool } = await sagaFixture();
  const order = begin().waitFor("paid", Paid, { timeout: "1m" });
  bus.register(order);
  await bus.run();
  await bus.transaction((tx) => tx.publish(Paid, { orderId: "o1" }));
  await until(async () => (await pool.query("select 1 from sagabox.saga_input")).rows.length === 1);
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "completed");
  await bus.transaction((tx) => tx.publish(Paid, { orderId: "o1" }));
  await until(async () => (await lines(sagaId)).some(({ event_type }) => event_type === "ignored"));
  expect((await lines(sagaId)).at(-1)).toMatchObject({ event_type: "ignored", note: "it has ended" });
});

test("S-01, I-14: fifty events at the same time are fifty versions, without a gap", async () => {
  const { bus, ends, pool } = await sagaFixture();
  const order = begin().repeat(
    "count",
    (s) => s.waitFor("paid", Paid, { timeout: "1m" }),
    () => false,
    { max: 51 },
  );
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await Promise.all(
    Array.from({ length: 50 }, () => bus.transaction((tx) => tx.publish(Paid, { orderId: "o1" }))),
  );
  const taken =
    "select count(distinct version)::integer as n, max(version) as top from sagabox.saga_audit_log";
  await until(async () => (await pool.query<{ top: number }>(taken)).rows[0]?.top === 51, 20_000);
  expect((await pool.query(taken)).rows).toEqual([{ n: 51, top: 51 }]);
  await bus.transaction((tx) => tx.publish(Paid, { orderId: "o1" }));
  await ends(sagaId, "compensated");
});

test("F2: a step in flight at a worker's death is repeated by another one, with the same key", async () => {
  const { bus, another, ends } = await sagaFixture({ shutdownTimeout: 500 });
  const keys: string[] = [];
  const order = begin()
    .run("charge", async (c) => {
      keys.push(c.idempotencyKey);
      if (keys.length === 1) await new Promise(() => undefined);
      return 1;
    })
    .noUndo("a test");
  const second = another();
  bus.register(order);
  second.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await until(() => keys.length === 1);
  await second.run();
  // What a dead process does: it renews nothing any more.
  await bus.stop();
  await ends(sagaId, "completed");
  expect(keys).toEqual([`${sagaId}:charge`, `${sagaId}:charge`]);
});

test("S-15: a result or an event that is too large is refused with its reason, and the saga continues", async () => {
  const { bus, ends, lines } = await sagaFixture({ sagas: { pollInterval: 50, maxStateBytes: 2_000 } });
  const undone: string[] = [];
  const order = begin()
    .run("note", () => 1)
    .undo(() => void undone.push("note"))
    .run("large", () => "x".repeat(5_000))
    .undo((c) => void undone.push(`large ${c.outcome}`));
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "compensated");
  expect(undone).toEqual(["large unknown", "note"]);
  const failures = (await lines(sagaId)).filter(({ event_type }) => event_type === "failed");
  expect(failures).toMatchObject([
    { step: "large", note: "its result is too large to be kept with the saga" },
  ]);
});

test("F10: a parked saga is logged as an error, with its step and cause; one registered late is refused", async () => {
  const observer = new RecordingObserver();
  const { bus, ends } = await sagaFixture({ observers: [observer] });
  const order = begin()
    .run("note", () => 1)
    .pivot()
    .run("ship", () => Promise.reject(new Error("no truck")), { retry: { maxAttempts: 1 } });
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "failed");
  await until(() => observer.of("saga.changed").some(({ to }) => to === "failed"));
  expect(observer.of("saga.changed").at(-1)).toMatchObject({ to: "failed", step: "ship", error: "no truck" });
  const late = saga("late", { version: 1, input: Order, key: (i) => i.orderId }).delay("pause", 1);
  expect(() => bus.register(late)).toThrowError(/after bus\.run\(\)/);
  expect(() => bus.register({} as typeof late)).toThrowError(/register takes sagas made by saga\(\)/);
});
