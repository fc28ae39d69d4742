import { command, event, refuse, saga, type Bus, type Phase, type Saga, type Transport } from "sagabox";
import { z } from "zod";
import { startBrokerService, type BrokerService } from "./broker-service.ts";
import { chatty } from "./chatty-transport.ts";

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

/** A shop and those who work for it. Replies come doubled, beside some that nobody asked for. */
export async function sagaRequirementsHarness(
  newTransport: () => Transport,
  world: Faults = { thankful: true, gate: Promise.resolve() },
): Promise<SagaRequirementsHarness> {
  const shop = await startBrokerService("rows-shop", newTransport());
  const others = await startBrokerService("rows-others", chatty(newTransport()));
  const book: Book = [];
  addParticipants(others.bus, book, world);
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

function addParticipants(bus: Bus, book: Book, world: Faults): void {
  const on = { consumer: "rows-others" };
  const did = (what: string, { orderId }: Order): { by: string } => {
    book.push(`${what} ${orderId}`);
    return { by: "others" };
  };
  bus.on(Reserve, on, ({ data }) => did("reserve", data));
  bus.on(Release, on, ({ data }) => void did("release", data));
  bus.on(Charge, on, async ({ data }) => {
    if (data.orderId.startsWith("declined")) throw refuse("card declined");
    if (data.orderId.startsWith("late")) await world.gate;
    return did("charge", data);
  });
  bus.on(Refund, on, ({ data }) => void did("refund", data));
  bus.on(Ship, on, ({ data }) => did("ship", data));
  bus.on(Thank, on, ({ data }) => {
    if (!world.thankful) throw refuse("no cards left");
    return did("thank", data);
  });
}
