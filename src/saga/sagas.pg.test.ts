import { expect, onTestFinished, test } from "vitest";
import { command, createBus, event, refuse, saga } from "sagabox";
import { z } from "zod";
import { temporaryDatabase } from "../../test/support/database.ts";
import { until } from "../../test/support/relays.ts";

const ReserveStock = command("stock.reserve", {
  schema: z.object({ sku: z.string(), quantity: z.number() }),
  reply: z.object({ reservationId: z.string() }),
});
const ReleaseStock = command("stock.release", {
  schema: z.object({ orderId: z.string(), reservationId: z.string().optional() }),
});
const Paid = event("payments.paid", { schema: z.object({ orderId: z.string() }), key: (d) => d.orderId });

async function setup() {
  const { pool, url } = await temporaryDatabase({ migrated: true });
  const bus = createBus({ service: "shop", database: url, log: false, sagas: { pollInterval: 50 } });
  onTestFinished(() => bus.stop().then(() => undefined));
  await bus.migrate();
  const status = async (id: string): Promise<string> =>
    (await pool.query<{ status: string }>("select status from sagabox.saga_instance where id = $1", [id]))
      .rows[0]?.status ?? "none";
  const ends = (id: string, as: string): Promise<unknown> =>
    until(async () => (await status(id)) === as, 10_000);
  return { bus, pool, status, ends };
}

test("F1, F2: commands, functions and transactions, one after the other, to the end", async () => {
  const { bus, pool, ends } = await setup();
  await pool.query("create table booked (order_id text, payment text)");
  const seen: unknown[] = [];
  const order = saga("place-order", {
    version: 1,
    input: z.object({ orderId: z.string() }),
    key: (i) => i.orderId,
  })
    .send("reserve", ReserveStock, () => ({ sku: "s", quantity: 1 }))
    .undo(ReleaseStock, (c) => ({ orderId: c.input.orderId }))
    .run("charge", (c) => ({ paymentId: c.idempotencyKey }))
    .undo(() => undefined)
    .tx("book", async (c) => {
      await c.tx.query("insert into booked values ($1, $2)", [c.input.orderId, c.steps.charge.paymentId]);
      return { row: 1 };
    })
    .pivot()
    .waitFor("paid", Paid, { timeout: "1m" })
    .run("close", (c) => {
      seen.push(c.steps.reserve.reservationId, c.steps.paid.orderId);
      return null;
    });
  bus.register(order);
  bus.on(ReserveStock, { consumer: "stock" }, async ({ data }) => ({ reservationId: `r-${data.sku}` }));
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await bus.transaction((tx) => tx.publish(Paid, { orderId: "o1" }));
  await ends(sagaId, "completed");
  expect(seen).toEqual(["r-s", "o1"]);
  expect((await pool.query("select * from booked")).rows).toEqual([
    { order_id: "o1", payment: `${sagaId}:charge` },
  ]);
});

test("F4: a refusal undoes what was done, in reverse order", async () => {
  const { bus, ends } = await setup();
  const undone: string[] = [];
  const order = saga("place-order", {
    version: 1,
    input: z.object({ orderId: z.string() }),
    key: (i) => i.orderId,
  })
    .send("reserve", ReserveStock, () => ({ sku: "s", quantity: 1 }))
    .undo(ReleaseStock, (c) => ({
      orderId: c.input.orderId,
      ...(c.outcome === "done" ? { reservationId: c.result.reservationId } : {}),
    }))
    .run("note", () => 1)
    .undo((c) => void undone.push(`note ${c.outcome}`))
    .run("charge", () => {
      throw refuse("card declined");
    })
    .noUndo("it fails");
  bus.register(order);
  bus.on(ReserveStock, { consumer: "stock" }, async () => ({ reservationId: "r1" }));
  bus.on(ReleaseStock, { consumer: "stock" }, async ({ data }) => {
    undone.push(`released ${data.reservationId}`);
  });
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o1" }));
  await ends(sagaId, "compensated");
  expect(undone).toEqual(["note done", "released r1"]);
});
