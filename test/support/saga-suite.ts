import type pg from "pg";
import { createBus, type Bus, type Transport, command, event, refuse, saga } from "sagabox";
import { onTestFinished, expect, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "./database.ts";
import { until } from "./relays.ts";

export interface BrokerService {
  readonly bus: Bus;
  readonly pool: pg.Pool;
  /** Another process of the same service, on the same database. */
  readonly another: (transport: Transport) => Bus;
}

/** A service with a database of its own, which shares nothing with others but a broker. */
export async function startBrokerService(service: string, transport: Transport): Promise<BrokerService> {
  const { pool } = await temporaryDatabase({ max: 30 });
  const another = (by: Transport): Bus => {
    const bus = createBus({
      service,
      database: pool,
      transport: by,
      log: false,
      sagas: { pollInterval: 50 },
    });
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  const bus = another(transport);
  await bus.migrate();
  return { bus, pool, another };
}

const Order = z.object({ orderId: z.string() });
const Reserve = command("suite.reserve", { schema: Order, reply: z.object({ shelf: z.string() }) });
const Release = command("suite.release", { schema: Order });
const Charge = command("suite.charge", { schema: Order, reply: z.object({ paymentId: z.string() }) });
const Refund = command("suite.refund", { schema: Order });
const Wrap = command("suite.wrap", { schema: Order, reply: z.object({ paper: z.string() }) });
const Unwrap = command("suite.unwrap", { schema: Order });
const Ship = command("suite.ship", { schema: Order, reply: z.object({ parcel: z.string() }) });
const Delivered = event("suite.delivered", { schema: Order, key: (order) => order.orderId });

const packing = saga("suite-packing", { version: 1, input: Order, key: (order) => order.orderId })
  .send("wrap", Wrap, (c) => c.input)
  .undo(Unwrap, (c) => c.input);

const placeOrder = saga("suite-order", { version: 1, input: Order, key: (order) => order.orderId })
  .all("prepare", (g) =>
    g
      .send("reserve", Reserve, (c) => c.input, { undo: [Release, (c) => c.input] })
      .send("charge", Charge, (c) => c.input, { timeout: "20s", undo: [Refund, (c) => c.input] }),
  )
  .child("packing", packing, (c) => c.input)
  .undoChild()
  .when(
    "gift",
    (c) => c.input.orderId.startsWith("gift"),
    (s) => s.run("card", (c) => ({ text: `for ${c.input.orderId}` })).noUndo("paper only"),
  )
  .send("ship", Ship, (c) => c.input)
  .pivot()
  .waitFor("delivered", Delivered, { timeout: "1m" });

/** One saga over two services that share nothing but a broker. */
export function sagaSuite(transports: () => readonly [Transport, Transport]): void {
  test("F1, F4, F6: a saga over the broker completes, is refused and undone, between databases of their own", async () => {
    const [one, two] = transports();
    const shop = await startBrokerService("suite-shop", one);
    const others = await startBrokerService("suite-others", two);
    const did: string[] = [];
    const act =
      (what: string) =>
      async ({ data }: { data: { orderId: string } }) => {
        did.push(`${what} ${data.orderId}`);
      };
    const on = { consumer: "suite-others" };
    others.bus.on(Reserve, on, async (m) => act("reserve")(m).then(() => ({ shelf: "A" })));
    others.bus.on(Release, on, act("release"));
    others.bus.on(Charge, on, async (m) => {
      if (m.data.orderId.startsWith("declined")) throw refuse("card declined");
      await act("charge")(m);
      return { paymentId: "p" };
    });
    others.bus.on(Refund, on, act("refund"));
    others.bus.on(Wrap, on, async (m) => act("wrap")(m).then(() => ({ paper: "red" })));
    others.bus.on(Unwrap, on, act("unwrap"));
    others.bus.on(Ship, on, async (m, { publish }) => {
      if (m.data.orderId.startsWith("lost")) throw refuse("no truck");
      await act("ship")(m);
      await publish(Delivered, m.data);
      return { parcel: "1" };
    });
    shop.bus.register(placeOrder);
    await others.bus.run();
    await shop.bus.run();
    const start = (orderId: string) =>
      shop.bus.transaction((tx) => shop.bus.start(tx, placeOrder, { orderId }));
    const orders = ["gift-1", "plain-1", "declined-1", "lost-1"];
    const ids = await Promise.all(orders.map(start));
    const listEnded = async (): Promise<string[]> => {
      const sql = "select status from sagabox.saga_instance where id = $1 and completed_at is not null";
      const found = await Promise.all(
        ids.map(({ sagaId }) => shop.pool.query<{ status: string }>(sql, [sagaId])),
      );
      return found.map(({ rows }) => rows[0]?.status ?? "open");
    };
    await until(async () => !(await listEnded()).includes("open"), 60_000);
    expect(await listEnded()).toEqual(["completed", "completed", "compensated", "compensated"]);
    const acts = (orderId: string) =>
      did.filter((line) => line.endsWith(` ${orderId}`)).map((line) => line.split(" ")[0] ?? "");
    expect(acts("gift-1").toSorted()).toEqual(["charge", "reserve", "ship", "wrap"]);
    expect(acts("declined-1")).toEqual(["reserve", "release"]);
    expect(acts("lost-1").slice(2)).toEqual(["wrap", "unwrap", ...acts("lost-1").slice(4)]);
    expect(acts("lost-1").slice(4).toSorted()).toEqual(["refund", "release"]);
  });
}
