// The code in docs/guides/compensation.md and docs/guides/saga-timeouts.md is cut from examples/guides; here it runs.
import { randomUUID } from "node:crypto";
import { createBus, permanent, refuse, type Bus, type GivenInput, type Phase, type Saga } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import * as times from "../../examples/guides/saga-times.ts";
import {
  ChargeCard,
  RefundCard,
  ReleaseStock,
  ReserveStock,
} from "../../examples/guides/readme-contracts.ts";
import { sagaExample } from "../../examples/guides/readme-saga.ts";
import { OrderShipped, ParcelScanned, type Bank, type Mail } from "../../examples/guides/saga-fixture.ts";
import * as sagas from "../../examples/guides/sagas.ts";
import { temporaryDatabase } from "../support/database.ts";
import { until } from "../support/relays.ts";
import { waitForEnd } from "../support/saga-fixture.ts";

/** A bank and a post office that write down what they are asked. */
function createFixture(): { did: string[]; bank: Bank; mail: Mail; broken: Set<string> } {
  const did: string[] = [];
  const broken = new Set<string>();
  const note = (what: string): void => {
    did.push(what);
    if (broken.has(what)) throw permanent(`cannot ${what}`);
  };
  const bank: Bank = {
    charge: async () => (note("charge"), { paymentId: "p1" }),
    refund: async (paymentId) => note(`refund ${paymentId}`),
    cancel: async () => note("cancel"),
    credit: async () => (note("credit"), { rating: 7 }),
  };
  return { did, bank, broken, mail: { send: async () => note("mail") } };
}

async function setup() {
  const { pool } = await temporaryDatabase({ max: 40, migrated: true });
  await pool.query(`
    create table guide_order (id text not null);
    create table guide_reservation (id text not null, sku text not null)`);
  const bus = createBus({ service: "guide", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  const rows = async (table: string): Promise<number> =>
    (await pool.query(`select 1 from ${table}`)).rowCount ?? 0;
  return { bus, pool, rows, ...createFixture() };
}

const input = (sku = "tea") => ({ orderId: randomUUID(), sku, cents: 100, patience: 10 });

async function startSaga<I, R, P extends Phase>(
  bus: Bus,
  saga: Saga<I, R, P>,
  given: GivenInput<I>,
): Promise<string> {
  return (await bus.transaction((tx) => bus.start(tx, saga, given))).sagaId;
}

async function cancelSaga(bus: Bus, sagaId: string): Promise<string> {
  await bus.sagas.compensate(sagaId, { actor: "test", reason: "to see the undo" });
  await until(async () => (await bus.sagas.show(sagaId)).status !== "completed");
  return waitForEnd(bus, sagaId);
}

test("what a command, a function or a transaction did is undone by the same means", async () => {
  const { bus, rows, bank, did } = await setup();
  const [command, work, inside] = [sagas.byCommand(), sagas.byFunction(bank), sagas.insideTheTransaction()];
  bus.register(command, work, inside);
  sagas.stockService(bus);
  await bus.run();
  const ids = [
    await startSaga(bus, command, input()),
    await startSaga(bus, work, input()),
    await startSaga(bus, inside, input()),
  ];
  for (const id of ids) expect(await waitForEnd(bus, id)).toBe("completed");
  expect([await rows("guide_reservation"), await rows("guide_order"), did]).toEqual([1, 1, ["charge"]]);
  for (const id of ids) expect(await cancelSaga(bus, id)).toBe("compensated");
  expect([await rows("guide_reservation"), await rows("guide_order")]).toEqual([0, 0]);
  expect(did).toEqual(["charge", "refund p1"]);
});

test("a step of unknown outcome is cancelled by its key", async () => {
  const { bus, bank, did, broken } = await setup();
  broken.add("charge");
  const saga = sagas.byFunction(bank);
  bus.register(saga);
  await bus.run();
  expect(await waitForEnd(bus, await startSaga(bus, saga, input()))).toBe("compensated");
  expect(did).toEqual(["charge", "cancel"]);
});

test("after the pivot it only goes forward, and a person is called when it cannot", async () => {
  const { bus, bank, mail, did, broken, rows } = await setup();
  broken.add("mail");
  const saga = sagas.withPivot(bank, mail);
  bus.register(saga);
  await bus.run();
  const said: string[] = [];
  sagas.reportTrouble(bus, (text) => said.push(text));
  const given = input();
  const id = await startSaga(bus, saga, given);
  expect(await waitForEnd(bus, id)).toBe("failed");
  await until(() => said.length > 0);
  expect(said).toEqual([`with-pivot ${given.orderId} is failed at confirm: cannot mail`]);
  expect(await sagas.openIncidents(bus)).toEqual([`with-pivot ${id}, confirm: cannot mail`]);
  broken.clear();
  await sagas.tryAgain(bus, id);
  await until(async () => (await bus.sagas.show(id)).status === "completed");
  expect(await rows("guide_order")).toBe(1);
  expect(did).toEqual(["credit", "charge", "mail", "mail"]);
  expect(await sagas.openIncidents(bus)).toEqual([]);
});

test("of steps side by side the others are undone when one fails", async () => {
  const { bus, bank, did, rows } = await setup();
  const saga = sagas.sideBySide(bank);
  bus.register(saga);
  sagas.stockService(bus);
  await bus.run();
  expect(await waitForEnd(bus, await startSaga(bus, saga, input("unicorn")))).toBe("compensated");
  expect(await rows("guide_reservation")).toBe(0);
  expect(did.toSorted()).toEqual(["cancel", "charge", "credit"]);
});

const decisions = { settled: sagas.wasDone, skipped: sagas.letItBe };

test.for(["settled", "skipped"] as const)(
  "an undo that fails for good ends when a person says: %s",
  async (say) => {
    const { bus, bank, broken } = await setup();
    const saga = sagas.persistentSaga(bank);
    bus.register(saga);
    await bus.run();
    broken.add("cancel");
    const id = await startSaga(bus, saga, input());
    await bus.sagas.cancel(id, { actor: "test", reason: "to see the undo" });
    expect(await waitForEnd(bus, id)).toBe("failed");
    await decisions[say](bus, id, "pay");
    await until(async () => (await bus.sagas.show(id)).status === "compensated");
    const [incident] = await bus.sagas.incidents({ open: false });
    expect(incident).toMatchObject({ sagaId: id, steps: ["pay"], resolution: "compensated" });
  },
);

test("a step may take its time and be tried again", async () => {
  const { bus, bank, did } = await setup();
  let tries = 0;
  const shaky: Bank = {
    ...bank,
    charge: async (...given) => {
      if ((tries += 1) < 2) throw new Error("try again");
      return bank.charge(...given);
    },
  };
  const saga = times.steps(shaky);
  bus.register(saga);
  sagas.stockService(bus);
  await bus.run();
  const id = await startSaga(bus, saga, input());
  expect(await waitForEnd(bus, id)).toBe("completed");
  expect([tries, did]).toEqual([2, ["charge"]]);
  expect((await bus.sagas.show(id)).retryCount).toBe(1);
});

test("events are waited for by the key of the saga or by what the wait says; a person may bring them", async () => {
  const { bus, bank } = await setup();
  const [saga, limited] = [times.waits(), times.withDeadline(bank)];
  bus.register(saga, limited);
  await bus.run();
  const given = input();
  const id = await startSaga(bus, saga, given);
  expect(await times.whatItWaitsFor(bus, id)).toMatch(/^running: wait: shipped since 2.*, until 2/);
  await times.settleShipment(bus, id, given.orderId);
  await bus.transaction((tx) =>
    tx.publish(ParcelScanned, { label: { order: given.orderId }, place: "Ghent" }),
  );
  expect(await waitForEnd(bus, id)).toBe("completed");
  const { steps } = await bus.sagas.show(id);
  expect(steps.at(-1)?.result).toEqual({ parcelId: "on foot", place: "Ghent" });

  const other = input();
  const limitedId = await startSaga(bus, limited, other);
  const { deadlineAt, createdAt } = await bus.sagas.show(limitedId);
  expect(Math.round((Date.parse(deadlineAt ?? "") - Date.parse(createdAt)) / 60_000)).toBe(15);
  await bus.transaction((tx) => tx.publish(OrderShipped, { orderId: other.orderId, parcelId: "p" }));
  expect(await waitForEnd(bus, limitedId)).toBe("completed");
});

test("a delay is a time on the row, which a moved clock passes", async () => {
  const { bus, pool, mail, did } = await setup();
  const saga = times.pauses(mail);
  bus.register(saga);
  await bus.run();
  const id = await startSaga(bus, saga, input());
  const { dueAt, createdAt, currentStep } = await bus.sagas.show(id);
  expect(currentStep).toBe("cool-off");
  expect(Math.round((Date.parse(dueAt ?? "") - Date.parse(createdAt)) / 60_000)).toBe(15);
  await pool.query(
    `update sagabox.saga_instance set due_at = now(),
       state = jsonb_set(state::jsonb, '{records,cool-off,dueAtMs}', '0')::json where id = $1`,
    [id],
  );
  expect(await waitForEnd(bus, id)).toBe("completed");
  expect(did).toEqual(["mail"]);
});

test("the bank may say no", async () => {
  const { bus, bank } = await setup();
  const saga = sagas.byFunction({ ...bank, charge: () => Promise.reject(refuse("no money")) });
  bus.register(saga);
  await bus.run();
  const id = await startSaga(bus, saga, input());
  expect(await waitForEnd(bus, id)).toBe("compensated");
  expect(await bus.sagas.show(id)).toMatchObject({ cause: 'step "pay" failed: no money' });
});

test("the saga of the README books its order", async () => {
  const { bus, pool, rows } = await setup();
  await pool.query("create table sales (order_id text, payment_id text)");
  const did: string[] = [];
  const consumer = { consumer: "all" };
  bus.on(ReserveStock, consumer, ({ data }) => void did.push(`reserve ${data.orderId}`));
  bus.on(ReleaseStock, consumer, ({ data }) => void did.push(`release ${data.orderId}`));
  bus.on(RefundCard, consumer, ({ data }) => void did.push(`refund ${data.orderId}`));
  bus.on(ChargeCard, consumer, ({ data }) => ({ paymentId: `p-${data.orderId}` }));
  const good = await sagaExample(bus, (orderId) => did.push(`tell ${orderId}`), "good");
  expect(await waitForEnd(bus, good)).toBe("completed");
  const { input: first } = await bus.sagas.show(good);
  expect([first, await rows("sales")]).toEqual([{ orderId: "good", cents: 1250 }, 1]);
  expect(did).toEqual(["reserve good", "tell good"]);
  const [definition] = bus.sagas.definitions();
  expect(definition?.nodes.map(({ name }) => name)).toEqual(["reserve", "charge", "book", "notify"]);
});
