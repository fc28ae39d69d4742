import { flowPathDiagram, sagaDiagram, type Bus, type FlowPath, type Transport } from "sagabox";
import { eventually, sagaEnds, sagaWaitsFor, type SagaEnd } from "sagabox/testing";
import { expect, test } from "vitest";
import { startBrokerService } from "./broker-service.ts";
import * as flow from "./order-flow.ts";
import {
  buyingSaga,
  crowdedSaga,
  Delivered,
  sagaRequirementsHarness,
  waitingSaga,
} from "./saga-requirements-harness.ts";

const patiently = { within: "30s" } as const;
const ends = (bus: Bus, sagaId: string, end: SagaEnd) => sagaEnds(bus, sagaId, end, patiently);
const by = { actor: "ann", reason: "ticket 7" };

/** What is asked of sagas row by row, over a broker. `broker` gives a place of its own, and any number of ways to it. */
export function sagaRequirementsSuite(broker: () => () => Transport): void {
  test("F2: functions in process stand among remote steps, and are undone in their turn", async () => {
    const { shop, book, acts, start } = await sagaRequirementsHarness(broker());
    const buying = buyingSaga(book);
    shop.bus.register(buying);
    await shop.bus.run();
    const [good, declined] = [await start(buying, "good"), await start(buying, "declined")];
    await ends(shop.bus, good, "completed");
    await ends(shop.bus, declined, "compensated");
    expect(acts("good")).toEqual(["note", "reserve", "charge", "ship", "thank"]);
    expect(acts("declined")).toEqual(["note", "reserve", "release", "unnote"]);
  });

  test("F3: two processes hear the replies to one saga at once, and each version of it is written once", async () => {
    const newTransport = broker();
    const { shop, acts, start } = await sagaRequirementsHarness(newTransport);
    const twin = shop.another(newTransport());
    for (const bus of [shop.bus, twin]) {
      bus.register(crowdedSaga);
      await bus.run();
    }
    const orders = Array.from({ length: 10 }, (_, nr) => `crowd-${nr}`);
    const ids = await Promise.all(orders.map((one, nr) => start(crowdedSaga, one, nr % 2 ? twin : shop.bus)));
    for (const id of ids) await ends(shop.bus, id, "completed");
    for (const one of orders) expect(acts(one).toSorted()).toEqual(["charge", "reserve", "ship"]);
    const { rows } = await shop.pool.query<{ wrong: number }>(
      `select count(*)::integer as wrong from (
         select log.saga_id, log.version from sagabox.saga_audit_log as log
          where log.event_type <> 'ignored' group by 1, 2 having count(distinct log.cause) > 1) as twice`,
    );
    expect(rows).toEqual([{ wrong: 0 }]);
    expect(await shop.bus.sagas.list({ correlationId: "crowd-3" })).toMatchObject([
      { correlationId: "crowd-3", status: "completed", type: "rows-crowded", lastError: null },
    ]);
  });

  test("F5: the statuses an instance goes through are told with what caused them", async () => {
    const { shop, book, start, moves } = await sagaRequirementsHarness(broker());
    const buying = buyingSaga(book);
    shop.bus.register(buying);
    await shop.bus.run();
    const [good, declined] = [await start(buying, "good"), await start(buying, "declined")];
    await ends(shop.bus, good, "completed");
    const { steps } = await ends(shop.bus, declined, "compensated");
    expect(await moves(good)).toEqual(["running", "completing", "completed"]);
    expect(await moves(declined)).toEqual(["running", "compensating", "compensated"]);
    expect(steps.map(({ step, status }) => `${step} ${status}`)).toEqual([
      "note compensated",
      "reserve compensated",
      "charge failed",
    ]);
    const causes = (await shop.bus.sagas.history(good)).map(({ cause }) => cause.split(":")[0]);
    expect(new Set(causes)).toEqual(new Set(["start", "worker", "message"]));
  });

  test("F7: late, doubled and shuffled replies, and such as nobody asked for, do no harm", async () => {
    let open = (): void => undefined;
    const gate = new Promise<void>((resolve) => (open = resolve));
    const { shop, book, acts, start } = await sagaRequirementsHarness(broker(), { thankful: true, gate });
    const buying = buyingSaga(book);
    const hasty = buyingSaga(book, { name: "rows-hasty", patience: 500 });
    shop.bus.register(buying, hasty);
    await shop.bus.run();
    const [good, late] = [await start(buying, "good"), await start(hasty, "late")];
    await sagaWaitsFor(shop.bus, late, "undo of charge", patiently);
    open();
    await ends(shop.bus, good, "completed");
    await ends(shop.bus, late, "compensated");
    expect(acts("good")).toEqual(["note", "reserve", "charge", "ship", "thank"]);
    expect(acts("late")).toEqual(["note", "reserve", "charge", "refund", "release", "unnote"]);
    // What comes after the end is written down as well, so it may still be on its way.
    const findUnused = async (id: string): Promise<Set<string | null>> => {
      const lines = await shop.bus.sagas.history(id);
      return new Set(lines.filter(({ event }) => event === "ignored").map(({ note }) => note));
    };
    await eventually(async () => (await findUnused(good)).has("it was known to be done"), patiently);
    await eventually(
      async () => (await findUnused(good)).has("no step of this saga sent that command"),
      patiently,
    );
    expect((await shop.bus.sagas.show(good)).status).toBe("completed");
  });

  test("F8: an instance ends on the version it began with, although the new one is there", async () => {
    const newTransport = broker();
    const { shop, others, book, start } = await sagaRequirementsHarness(newTransport);
    const [first, second] = [waitingSaga(book, 1), waitingSaga(book, 2)];
    shop.bus.register(first);
    await shop.bus.run();
    const old = await start(first, "old");
    await sagaWaitsFor(shop.bus, old, "delivered", patiently);
    await shop.bus.stop();
    const modern = shop.another(newTransport());
    modern.register(first, second);
    await modern.run();
    const young = await start(second, "young", modern);
    await others.bus.transaction(async (tx) => {
      await tx.publish(Delivered, { orderId: "old" });
      await tx.publish(Delivered, { orderId: "young" });
    });
    for (const id of [old, young]) await ends(modern, id, "completed");
    expect(book.toSorted()).toEqual(["version 1 old", "version 2 young"]);
  });

  test("F9: the path of one correlation id over services is seen, with what was undone on it", async () => {
    const newTransport = broker();
    const [orders, stock, payments] = [
      await startBrokerService("orders", newTransport()),
      await startBrokerService("stock", newTransport()),
      await startBrokerService("payments", newTransport()),
    ];
    stock.bus.on(flow.OrderPlaced, { consumer: "stock" }, async ({ data }, { publish }) => {
      await publish(flow.StockReserved, data);
    });
    payments.bus.on(flow.StockReserved, { consumer: "payments" }, async ({ data }, { publish }) => {
      await publish(flow.PaymentFailed, data);
    });
    stock.bus.on(flow.PaymentFailed, { consumer: "stock" }, async ({ data }, { publish }) => {
      await publish(flow.StockReleased, data);
    });
    orders.bus.flows.watch(flow.orderFlow);
    for (const { bus } of [orders, stock, payments]) await bus.run();
    await orders.bus.transaction((tx) =>
      tx.publish(flow.OrderPlaced, { orderId: "o1" }, { correlationId: "visit-1" }),
    );
    const path = await eventually(async (): Promise<FlowPath | undefined> => {
      const [found] = await orders.bus.flows.paths("visit-1");
      return found?.steps.length === 4 && found.waitsFor.length === 0 ? found : undefined;
    }, patiently);
    expect(path.steps.map(({ source, type }) => `${source}: ${type}`)).toEqual([
      "orders: order.placed",
      "stock: stock.reserved",
      "payments: payment.failed",
      "stock: stock.released",
    ]);
    expect([path.status, path.surprises, path.notUndone]).toEqual(["compensated", [], []]);
    expect(flowPathDiagram(path)).toContain("payment.failed");
  });

  test("F10, F11: what failed for good is found, drawn, and goes on when a person has it tried again", async () => {
    const world = { thankful: false, gate: Promise.resolve() };
    const { shop, book, acts, start, moves } = await sagaRequirementsHarness(broker(), world);
    const buying = buyingSaga(book);
    shop.bus.register(buying);
    await shop.bus.run();
    const sagaId = await start(buying, "good");
    await ends(shop.bus, sagaId, "failed");
    expect(await shop.bus.sagas.stuck()).toMatchObject([{ id: sagaId, reason: "incident" }]);
    expect(await shop.bus.sagas.diagram(sagaId)).toMatch(/"thank<br\/>.*failed \+.*no cards left"/);
    expect(sagaDiagram(buying.definition)).toMatch(/"thank<br\/>/);
    world.thankful = true;
    await shop.bus.sagas.retry(sagaId, { ...by, step: "thank" });
    await ends(shop.bus, sagaId, "completed");
    expect(await shop.bus.sagas.stuck()).toEqual([]);
    expect(acts("good")).toEqual(["note", "reserve", "charge", "ship", "thank"]);
    expect(await moves(sagaId)).toEqual(["running", "completing", "failed", "completing", "completed"]);
    expect(await shop.bus.sagas.diagram(sagaId)).toMatch(/"thank<br\/>.*completed \+/);
  });
}
