import {
  type Transport,
  command,
  event,
  refuse,
  saga,
  type Bus,
  type Phase,
  type Saga,
  flowPathDiagram,
  sagaDiagram,
  type FlowPath,
} from "sagabox";
import { eventually, sagaEnds, sagaWaitsFor, type SagaEnd } from "sagabox/testing";
import { expect, test } from "vitest";
import { z } from "zod";
import type { Message } from "../../src/message/index.ts";
import * as flow from "./flows.ts";
import { startBrokerService, type BrokerService } from "./saga-suite.ts";

/**
 * A transport that sends every reply twice, under two ids so that no inbox can detect it, and one stray reply;
 * what was said last comes first.
 */
export function chatty(transport: Transport): Transport {
  const publish: Transport["publish"] = async (batch, options) => {
    const said = batch.filter(({ topic }) => topic.startsWith("replies."));
    const echoes = said.flatMap((reply) => [again(reply), stray(reply)]).reverse();
    if (echoes.length > 0) await transport.publish(echoes, options);
    return transport.publish(batch, options);
  };
  return new Proxy(transport, {
    get: (target, name) => {
      if (name === "publish") return publish;
      const own: unknown = Reflect.get(target, name, target);
      return typeof own === "function" ? (own.bind(target) as unknown) : own;
    },
  });
}

function again(reply: Message): Message {
  return { ...reply, id: `${reply.id}-again` };
}

function stray(reply: Message): Message {
  const body = JSON.parse(reply.data) as object;
  return { ...reply, id: `${reply.id}-stray`, data: JSON.stringify({ ...body, requestId: "unknown" }) };
}

const Order = z.object({ orderId: z.string() });
type Order = z.infer<typeof Order>;
const asks = (name: string) =>
  command(`rows.${name}`, { schema: Order, reply: z.object({ by: z.string() }) });
const Reserve = asks("reserve");
const Release = command("rows.release", { schema: Order });
const Charge = asks("charge");
const Refund = command("rows.refund", { schema: Order });
const Ship = asks("ship");
const Thank = asks("thank");
export const Delivered = event("rows.delivered", { schema: Order, key: ({ orderId }) => orderId });

/** Everything that was done to orders, here and at the others. */
type Book = string[];

const sagaOptions = (version: number) => ({ version, input: Order, key: (order: Order) => order.orderId });
const order = (c: { readonly input: Order }): Order => c.input;

/** Local steps and commands in turn, an order that is past its pivot before it is thanked for. */
export function buyingSaga(book: Book, { name = "rows-buying", patience = 60_000 } = {}) {
  const here = (what: string, c: { readonly input: Order }): void =>
    void book.push(`${what} ${c.input.orderId}`);
  return saga(name, sagaOptions(1))
    .run("note", (c) => here("note", c))
    .undo((c) => here("unnote", c))
    .send("reserve", Reserve, order)
    .undo(Release, order)
    .send("charge", Charge, order, { timeout: patience })
    .undo(Refund, order)
    .send("ship", Ship, order)
    .pivot()
    .send("thank", Thank, order);
}

/** Three answers at once. */
export const crowdedSaga = saga("rows-crowded", sagaOptions(1)).all("together", (g) =>
  g
    .send("reserve", Reserve, order, { undo: [Release, order] })
    .send("charge", Charge, order, { undo: [Refund, order] })
    .send("ship", Ship, order, { undo: { none: "it is shipped" } }),
);

/** Waits for something from outside, and says which version of it went on. */
export function waitingSaga(book: Book, version: number) {
  return saga("rows-waiting", sagaOptions(version))
    .waitFor("delivered", Delivered, { timeout: "1m" })
    .run("close", (c) => void book.push(`version ${version} ${c.input.orderId}`))
    .noUndo("it is last");
}

/** What becomes of commands: the payment of a late order is made only when its gate opens. */
interface Faults {
  thankful: boolean;
  readonly gate: Promise<void>;
}

export interface SagaRequirementsHarness {
  readonly shop: BrokerService;
  readonly others: BrokerService;
  readonly book: Book;
  /** What was done to one order, in its order. */
  readonly acts: (orderId: string) => string[];
  readonly start: <R, P extends Phase>(
    which: Saga<Order, R, P>,
    orderId: string,
    by?: Bus,
  ) => Promise<string>;
  /** The statuses an instance has been in. */
  readonly moves: (sagaId: string) => Promise<string[]>;
}

/** A shop and its participants. Replies arrive twice, together with stray ones. */
export async function sagaRequirementsHarness(
  newTransport: () => Transport,
  faults: Faults = { thankful: true, gate: Promise.resolve() },
): Promise<SagaRequirementsHarness> {
  const shop = await startBrokerService("rows-shop", newTransport());
  const others = await startBrokerService("rows-others", chatty(newTransport()));
  const book: Book = [];
  addParticipants(others.bus, book, faults);
  await others.bus.run();
  return {
    shop,
    others,
    book,
    acts: (orderId) =>
      book.filter((line) => line.endsWith(` ${orderId}`)).map((line) => line.split(" ")[0] ?? ""),
    start: async (which, orderId, by = shop.bus) =>
      (await by.transaction((tx) => by.start(tx, which, { orderId }))).sagaId,
    moves: async (sagaId) =>
      (await shop.bus.sagas.history(sagaId))
        .filter(({ event: kind }) => kind === "state_changed")
        .map(({ to }) => to ?? ""),
  };
}

function addParticipants(bus: Bus, book: Book, faults: Faults): void {
  const on = { consumer: "rows-others" };
  const did = (what: string, { orderId }: Order): { by: string } => {
    book.push(`${what} ${orderId}`);
    return { by: "others" };
  };
  bus.on(Reserve, on, ({ data }) => did("reserve", data));
  bus.on(Release, on, ({ data }) => void did("release", data));
  bus.on(Charge, on, async ({ data }) => {
    if (data.orderId.startsWith("declined")) throw refuse("card declined");
    if (data.orderId.startsWith("late")) await faults.gate;
    return did("charge", data);
  });
  bus.on(Refund, on, ({ data }) => void did("refund", data));
  bus.on(Ship, on, ({ data }) => did("ship", data));
  bus.on(Thank, on, ({ data }) => {
    if (!faults.thankful) throw refuse("no cards left");
    return did("thank", data);
  });
}

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

  test("F3: two processes receive the replies to one saga at once, and each version of it is written once", async () => {
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
    expect(await shop.bus.sagas.list({ key: "crowd-3" })).toMatchObject([
      { key: "crowd-3", status: "completed", type: "rows-crowded", lastError: null },
    ]);
  });

  test("F5: the statuses an instance goes through are reported with their causes", async () => {
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

  test("F7: late, doubled, shuffled and stray replies do no harm", async () => {
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
    // Replies after the end are recorded as well, so one may still be in flight.
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

  test("F10, F11: what failed for good is found, drawn, and continues when an operator retries it", async () => {
    const faults = { thankful: false, gate: Promise.resolve() };
    const { shop, book, acts, start, moves } = await sagaRequirementsHarness(broker(), faults);
    const buying = buyingSaga(book);
    shop.bus.register(buying);
    await shop.bus.run();
    const sagaId = await start(buying, "good");
    await ends(shop.bus, sagaId, "failed");
    expect(await shop.bus.sagas.stuck()).toMatchObject([{ id: sagaId, reason: "incident" }]);
    expect(await shop.bus.sagas.diagram(sagaId)).toMatch(/"thank<br\/>.*failed \+.*no cards left"/);
    expect(sagaDiagram(buying.definition)).toMatch(/"thank<br\/>/);
    faults.thankful = true;
    await shop.bus.sagas.retry(sagaId, { ...by, step: "thank" });
    await ends(shop.bus, sagaId, "completed");
    expect(await shop.bus.sagas.stuck()).toEqual([]);
    expect(acts("good")).toEqual(["note", "reserve", "charge", "ship", "thank"]);
    expect(await moves(sagaId)).toEqual(["running", "completing", "failed", "completing", "completed"]);
    expect(await shop.bus.sagas.diagram(sagaId)).toMatch(/"thank<br\/>.*completed \+/);
  });
}
