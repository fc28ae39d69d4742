import { retryAfter, type Bus, type GivenInput, type Phase, type Saga } from "sagabox";
import { eventually, MemoryTransport, sagaEnds, sagaWaitsFor, timeTraveller } from "sagabox/testing";
import { afterEach, expect, test, vi } from "vitest";
import { testKeyRing } from "../../test/support/data-subjects.ts";
import { sagaFixture } from "../../test/support/saga-fixture.ts";
import {
  approval,
  Approved,
  confidentialApproval,
  everyKind,
  limitedSaga,
  Release,
  Reserve,
  reservingSaga,
} from "../../test/support/tested-order.ts";

const slow = { sagas: { pollInterval: "30s" } } as const;

async function startSaga<I, R, P extends Phase>(
  bus: Bus,
  saga: Saga<I, R, P>,
  input: GivenInput<I>,
): Promise<string> {
  return (await bus.transaction((tx) => bus.start(tx, saga, input))).sagaId;
}

async function openService<I, R, P extends Phase>(saga: Saga<I, R, P>, options = {}) {
  const shop = await sagaFixture(options);
  shop.bus.register(saga);
  await shop.bus.run();
  return { ...shop, time: timeTraveller(shop.bus) };
}

afterEach(() => vi.unstubAllEnvs());

test("a timeout of 30 seconds passes at once, although the worker polls more rarely", async () => {
  const order = reservingSaga();
  const { bus, time } = await openService(order, slow);
  const beganAt = performance.now();
  // #region timeout
  const sagaId = await startSaga(bus, order, { orderId: "o1" });
  await sagaWaitsFor(bus, sagaId, "reserve");
  await time.advance("29s");
  await sagaWaitsFor(bus, sagaId, "reserve");
  await time.advance("1s");
  await sagaWaitsFor(bus, sagaId, "undo of reserve"); // no service answers in this test, so the step may have been done
  // #endregion timeout
  expect(performance.now() - beganAt).toBeLessThan(8_000);
  const { lastError, createdAt, steps } = await bus.sagas.show(sagaId);
  expect(lastError).toContain("no answer");
  expect(Date.now() - Date.parse(createdAt)).toBeGreaterThan(29_900);
  expect(steps[0]).toMatchObject({ step: "reserve", status: "compensating", outcome: "unknown" });
});

test("a wait of two weeks for an approval times out", async () => {
  const saga = approval();
  const { bus, time } = await openService(saga, slow);
  // #region approval
  const sagaId = await startSaga(bus, saga, { orderId: "o1" });
  await time.advance("13d");
  await sagaWaitsFor(bus, sagaId, "approved");
  await time.advance("1d");
  const { cause } = await sagaEnds(bus, sagaId, "compensated");
  // #endregion approval
  expect(cause).toContain("approved");
  const notes = (await bus.sagas.history(sagaId)).filter(({ cause: by }) => by === "test");
  expect(notes.map(({ event, note, version }) => [event, note, version])).toEqual([
    ["noted", "time was moved by a test: 13d", 2],
    ["noted", "time was moved by a test: 1d", 3],
  ]);
});

test("an approval that arrives after a week is accepted", async () => {
  const saga = approval();
  const { bus, time } = await openService(saga);
  const sagaId = await startSaga(bus, saga, { orderId: "o1" });
  expect(await time.advance("7d")).toEqual({ sagas: 1, messages: 0 });
  await bus.transaction((tx) => tx.publish(Approved, { orderId: "o1" }));
  const { waitingSince, createdAt, completedAt } = await sagaEnds(bus, sagaId, "completed");
  expect(waitingSince).toBeNull();
  expect(Date.parse(completedAt ?? "") - Date.parse(createdAt)).toBeGreaterThan(7 * 86_400_000 - 1_000);
});

test("the state of a saga with personal data is decrypted, moved and encrypted again", async () => {
  const saga = confidentialApproval();
  const { bus, pool, time } = await openService(saga, { ...slow, privacy: { keys: testKeyRing() } });
  const [late, soon, gone] = [
    await startSaga(bus, saga, { orderId: "late" }),
    await startSaga(bus, saga, { orderId: "soon" }),
    await startSaga(bus, saga, { orderId: "gone" }),
  ];
  for (const id of [late, soon, gone]) await sagaWaitsFor(bus, id, "approved");
  await bus.privacy.erase("customer of gone", { reason: "request", force: true });
  expect(await time.advance("13d")).toEqual({ sagas: 2, messages: 0 });
  const { rows } = await pool.query<{ state: object }>("select state from sagabox.saga_instance");
  expect(rows.flatMap(({ state }) => Object.keys(state))).toEqual(["$sealed", "$sealed", "$sealed"]);
  await bus.transaction((tx) => tx.publish(Approved, { orderId: "soon" }));
  const { steps } = await sagaEnds(bus, soon, "completed");
  expect(steps[0]?.result).toEqual({ asked: "soon" });
  await sagaWaitsFor(bus, late, "approved");
  await time.advance("1d");
  expect((await sagaEnds(bus, late, "compensated")).cause).toContain("approved");
});

test("a saga with personal data cannot be moved without its keys", async () => {
  const saga = confidentialApproval();
  const { bus, another } = await openService(saga, { privacy: { keys: testKeyRing() } });
  const sagaId = await startSaga(bus, saga, { orderId: "o1" });
  await sagaWaitsFor(bus, sagaId, "approved");
  const blind = timeTraveller(another({ privacy: {} }));
  await expect(blind.advance("1d")).rejects.toMatchObject({ code: "PRIVACY_KEYS_UNAVAILABLE" });
});

test("a worker in the middle of a step continues and finds the deadline passed", async () => {
  let [calls, told, finish]: [number, string, (text: string) => void] = [0, "", () => undefined];
  const saga = limitedSaga((signal) => {
    calls += 1;
    signal.addEventListener("abort", () => (told = String(signal.reason)));
    return new Promise((resolve) => (finish = resolve));
  });
  const { bus, time } = await openService(saga);
  const [one, two] = [await startSaga(bus, saga, { orderId: "o1" }), "o2"];
  await eventually(() => calls === 1);
  await time.advance("14m");
  finish("done");
  await sagaWaitsFor(bus, one, "rest");
  expect(calls).toBe(1);
  await time.advance("1m");
  await sagaEnds(bus, one, "compensated");

  const late = await startSaga(bus, saga, { orderId: two });
  await eventually(() => calls === 2);
  await time.advance("15m");
  await eventually(() => told !== "");
  finish("too late");
  expect((await sagaEnds(bus, late, "compensated")).cause).toContain("deadline");
  expect(calls).toBe(2);
});

test("a scheduled message and a message that waits for a retry are delivered at once", async () => {
  const saga = approval();
  const shop = await sagaFixture();
  const { bus } = shop;
  const handled: string[] = [];
  bus.on(Release, { consumer: "warehouse" }, ({ data }) => {
    handled.push(data.orderId);
    if (handled.length === 1) throw retryAfter("1h");
  });
  bus.register(saga);
  await bus.run();
  const time = timeTraveller(bus);
  await bus.transaction((tx) => tx.publish(Release, { orderId: "later" }, { delay: "2h" }));
  expect(await time.advance("1h")).toEqual({ sagas: 0, messages: 1 });
  expect(handled).toEqual([]);
  expect(await time.advance("1h")).toEqual({ sagas: 0, messages: 1 });
  await eventually(() => handled.length === 1);
  await eventually(async () => (await time.advance("1h")).messages === 1);
  await eventually(() => handled.length === 2);
});

test("a message that the broker did not accept is published again, and one with a time to live expires", async () => {
  const transport = new MemoryTransport();
  const retry = { firstDelay: "1h", maxDelay: "1h" } as const;
  const { bus, pool } = await sagaFixture({ transport, outbox: { retry, optimistic: false } });
  const time = timeTraveller(bus);
  await bus.transaction((tx) => tx.publish(Release, { orderId: "mayfly" }, { ttl: "4h" }));
  await time.advance("5h");
  transport.failNext(1, "rejected");
  await bus.transaction((tx) => tx.publish(Release, { orderId: "again" }));
  await bus.run();
  await eventually(
    async () => (await pool.query("select 1 from sagabox.outbox where attempts = 1")).rowCount,
  );
  expect(await bus.deadLetters.list()).toMatchObject([{ reason: "expired" }]);
  await time.advance("1h");
  await eventually(() => transport.published.length > 0);
  expect(transport.published.map(({ data }) => data)).toEqual(['{"orderId":"again"}']);
});

test("an event stored for a saga that has not started expires", async () => {
  const saga = approval();
  const { bus, pool, time } = await openService(saga, { sagas: { pollInterval: 50, earlyEvents: "1d" } });
  await bus.transaction((tx) => tx.publish(Approved, { orderId: "early" }));
  await eventually(async () => (await pool.query("select 1 from sagabox.saga_input")).rowCount === 1);
  await time.advance("2d");
  const sagaId = await startSaga(bus, saga, { orderId: "early" });
  await sagaWaitsFor(bus, sagaId, "approved");
  expect((await bus.sagas.show(sagaId)).pendingInputs).toBe(0);
});

test("open incidents and flows are moved, closed ones are not", async () => {
  const { bus, pool } = await sagaFixture();
  await pool.query(`
    insert into sagabox.saga_incident (saga_id, steps, error, opened_at) values ('s', '{pay}', 'no', now());
    insert into sagabox.flow_event (flow, message_id, correlation_id, type, source, happened_at, open)
    values ('f', 'm1', 'c', 't', 'shop', now(), true), ('f', 'm2', 'c', 't', 'shop', now(), false)`);
  await timeTraveller(bus).advance("2d");
  const { rows } = await pool.query(`
    select round(extract(epoch from now() - opened_at) / 86400)::int as days from sagabox.saga_incident
    union all
    (select round(extract(epoch from now() - recorded_at) / 86400)::int from sagabox.flow_event order by message_id)`);
  expect(rows).toEqual([{ days: 2 }, { days: 2 }, { days: 0 }]);
});

test("moving time repeatedly under busy workers loses and duplicates nothing", async () => {
  const { bus, pool } = await sagaFixture();
  await pool.query("create table effect (order_id text, what text, note text)");
  const saga = everyKind(async (key) => key);
  bus.register(saga);
  bus.on(Reserve, { consumer: "warehouse" }, () => ({ shelf: "A" }));
  await bus.run();
  const time = timeTraveller(bus);
  const ids = await Promise.all(
    Array.from({ length: 20 }, (_, n) => startSaga(bus, saga, { orderId: `o${n}` })),
  );
  const ending = Promise.all(ids.map((id) => sagaEnds(bus, id, "completed", { within: "20s" })));
  for (let moves = 0; moves < 10; moves += 1) await time.advance("1s");
  await ending;
  const { rows } = await pool.query(
    "select order_id from sagabox.saga_instance, effect where order_id = correlation_id",
  );
  expect(rows).toHaveLength(20);
});

test("advance is refused in production, and for zero and negative times", async () => {
  const { bus } = await sagaFixture();
  await expect(timeTraveller(bus).advance("0s")).rejects.toThrow(/advance must be from 1 ms/);
  expect(() => timeTraveller(bus, { scheme: "x" } as object)).toThrow(/Did you mean "schema"/);
  vi.stubEnv("NODE_ENV", "production");
  expect(() => timeTraveller(bus)).toThrow(/for tests/);
});
