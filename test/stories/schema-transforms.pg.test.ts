// Between publisher and handler a schema runs once, on every way that data take.
import { type } from "arktype";
import { command, createBus, event, message, saga, type Bus, type Started } from "sagabox";
import * as v from "valibot";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { bookRoom, printBookings, remindGuest, RoomBooked } from "../../examples/guides/transforms.ts";
import { temporaryDatabase, type TemporaryDatabase } from "../support/database.ts";
import { until } from "../support/relays.ts";

const at = new Date("2026-03-04T05:06:07.008Z");
const cents = z.number().transform((euros) => euros * 100);

async function setup(): Promise<TemporaryDatabase & { bus: Bus }> {
  const database = await temporaryDatabase({ max: 30, migrated: true });
  const bus = createBus({
    service: "shop",
    database: database.pool,
    log: false,
    sagas: { pollInterval: 50 },
  });
  onTestFinished(async () => void (await bus.stop()));
  return { ...database, bus };
}

const ends = (pool: TemporaryDatabase["pool"], { sagaId }: Started): Promise<void> =>
  until(async () => {
    const sql = "select status from sagabox.saga_instance where id = $1";
    const { rows } = await pool.query<{ status: string }>(sql, [sagaId]);
    return rows[0]?.status === "completed";
  }, 20_000);

test("the example of the guide", async () => {
  const { bus, pool } = await setup();
  const lines: string[] = [];
  printBookings(bus, (line) => lines.push(line));
  bus.register(remindGuest);
  await bus.run();
  await bookRoom(bus);
  await until(() => lines.length > 0);
  expect(lines).toEqual(["2026: 9950 cents, 1 guest"]);
  const { rows } = await pool.query<{ key: string; data: object }>(
    "select key, data::json as data from sagabox.message where type = $1",
    [RoomBooked.name],
  );
  expect(rows).toEqual([
    { key: "b-1", data: { bookingId: "b-1", from: "2026-07-01T00:00:00.000Z", total: 99.5 } },
  ]);
  const input = { bookingId: "b-1", from: new Date("2026-07-01") };
  const started = await bus.transaction((tx) => bus.start(tx, remindGuest, input));
  await ends(pool, started);
  const { rows: stored } = await pool.query<{ input: object }>("select input from sagabox.saga_instance");
  expect(stored).toEqual([{ input: { bookingId: "b-1", from: "2026-07-01T00:00:00.000Z" } }]);
});

const libraries = {
  zod: z.object({ at: z.coerce.date(), n: z.string().transform(Number), total: cents }),
  valibot: v.object({
    at: v.pipe(
      v.union([v.string(), v.date()]),
      v.transform((value) => new Date(value)),
      v.date(),
    ),
    n: v.pipe(v.string(), v.transform(Number)),
    total: v.pipe(
      v.number(),
      v.transform((euros) => euros * 100),
    ),
  }),
  arktype: type({
    at: type("Date | string.date.iso").pipe((value) => new Date(value)),
    n: "string.numeric.parse",
    total: type("number").pipe((euros) => euros * 100),
  }),
};

test.each(Object.entries(libraries))(
  "an event, alone and in batches, after an upcast and from publishAll: %s",
  async (_, schema) => {
    const { bus } = await setup();
    const Measured = event("story.measured", { schema: schema as (typeof libraries)["zod"], version: 1 });
    const Newer = event("story.measured", {
      schema: schema as (typeof libraries)["zod"],
      version: 2,
      upcast: { 1: (wire) => ({ ...wire, n: `${wire.n}0` }) },
    });
    const seen: unknown[] = [];
    bus.on(Measured, { consumer: "each" }, ({ data }) => void seen.push(data));
    bus.onBatch(
      Measured,
      { consumer: "bulk" },
      (messages) => void seen.push(...messages.map(({ data }) => data)),
    );
    bus.on(Newer, { consumer: "newer" }, ({ data }) => void seen.push(data));
    await bus.run();
    const given = { at, n: "7", total: 5 };
    await bus.transaction(async (tx) => {
      await bus.publish(tx, Measured, given);
      await bus.publishAll(tx, message(Measured, given));
    });
    await until(() => seen.length === 6);
    const once = { at, n: 7, total: 500 };
    expect(seen).toHaveLength(6);
    expect(seen.filter((data) => (data as { n: number }).n === 7)).toEqual([once, once, once, once]);
    expect(seen.filter((data) => (data as { n: number }).n === 70)).toEqual([
      { ...once, n: 70 },
      { ...once, n: 70 },
    ]);
  },
);

const Quote = command("story.quote", {
  schema: z.object({ id: z.string(), euros: cents }),
  reply: z.object({
    price: cents,
    until: z.coerce.date(),
    code: z.string().transform((text) => text.length),
  }),
});

test("a command and its reply, through bus.request", async () => {
  const { bus } = await setup();
  const seen: unknown[] = [];
  bus.on(Quote, { consumer: "quotes" }, ({ data }) => {
    seen.push(data);
    return { price: data.euros, until: at, code: "abc" };
  });
  await bus.run();
  const reply = await bus.request(Quote, { id: "q", euros: 5 }, { timeout: "20s" });
  expect(seen).toEqual([{ id: "q", euros: 500 }]);
  expect(reply).toEqual({ price: 50_000, until: at, code: 3 });
});

const Shipped = event("story.shipped", {
  schema: z.object({ id: z.string(), on: z.coerce.date(), weight: cents }),
  key: (wire) => wire.id,
});

test("a saga: input, replies, awaited events, results of a child, undo", async () => {
  const { bus, pool } = await setup();
  const seen: Record<string, unknown> = {};
  const child = saga("story-child", {
    version: 1,
    input: z.object({ id: z.string(), price: cents }),
    key: (input) => input.id,
  })
    .send("ask", Quote, (c) => ({ id: c.input.id, euros: c.input.price }))
    .noUndo("test");
  const parent = saga("story-parent", {
    version: 1,
    input: z.object({ id: z.string(), from: z.coerce.date(), n: z.string().transform(Number) }),
    key: (input) => input.id,
  })
    .send("quote", Quote, (c) => ({ id: c.input.id, euros: c.input.n }))
    .noUndo("test")
    .waitFor("shipped", Shipped, { timeout: "1h", by: (data) => (data.on instanceof Date ? data.id : "") })
    .child("again", child, (c) => ({ id: `${c.input.id}-child`, price: 2 }))
    .undoChild()
    .tx("book", async (c) => {
      await c.tx.query("select 1");
      seen["tx"] = c.steps.shipped.on;
      return { done: true };
    })
    .noUndo("test")
    .run("end", (c) => {
      seen["input"] = c.input;
      seen["steps"] = structuredClone({ ...c.steps });
      return null;
    })
    .noUndo("test");
  bus.on(Quote, { consumer: "quotes" }, ({ data }) => ({ price: data.euros, until: at, code: "abc" }));
  bus.register(parent);
  await bus.run();
  const started = await bus.transaction((tx) => bus.start(tx, parent, { id: "p", from: at, n: "7" }));
  await bus.transaction((tx) => bus.publish(tx, Shipped, { id: "p", on: at, weight: 3 }));
  await ends(pool, started);
  expect(seen["input"]).toEqual({ id: "p", from: at, n: 7 });
  expect(seen["tx"]).toEqual(at);
  expect(seen["steps"]).toEqual({
    quote: { price: 70_000, until: at, code: 3 },
    shipped: { id: "p", on: at, weight: 300 },
    again: { ask: { price: 2_000_000, until: at, code: 3 } },
    book: { done: true },
  });
});

test("a saga started by an event, and its result", async () => {
  const { bus } = await setup();
  const booking = saga("story-booking", {
    version: 1,
    input: z.object({ id: z.string(), n: z.string().transform(Number) }),
    key: (input) => input.id,
  })
    .send("quote", Quote, (c) => ({ id: c.input.id, euros: c.input.n }))
    .noUndo("test")
    .publish("tell", Shipped, (c) => ({ id: c.input.id, on: c.steps.quote.until, weight: 2 }))
    .noUndo("test");
  const seen: unknown[] = [];
  bus.on(Quote, { consumer: "quotes" }, ({ data }) => ({ price: data.euros, until: at, code: "abc" }));
  bus.on(Shipped, { consumer: "watch" }, ({ data }) => void seen.push(data));
  const Asked = event("story.asked", { schema: z.object({ id: z.string(), n: cents }) });
  bus.startOn(Asked, booking, ({ data }) => ({ id: data.id, n: String(data.n) }));
  await bus.run();
  await bus.transaction((tx) => tx.publish(Asked, { id: "b", n: 5 }));
  await until(() => seen.length > 0);
  expect(seen).toEqual([{ id: "b", on: at, weight: 200 }]);
  const [found] = await bus.sagas.list({ type: "story-booking" });
  expect(await bus.sagas.result(booking, found?.id ?? "", { timeout: "20s" })).toMatchObject({
    status: "completed",
    steps: { quote: { price: 5_000_000, until: at, code: 3 } },
  });
});

test("data that cannot be sent are refused before anything is written", async () => {
  const { bus, pool } = await setup();
  const Random = event("story.random", {
    schema: z.object({ id: z.string().default(() => crypto.randomUUID()), n: cents }),
  });
  await expect(bus.transaction((tx) => bus.publish(tx, Random, { n: 1 }))).rejects.toMatchObject({
    code: "PAYLOAD_NOT_REPEATABLE",
    issues: [{ path: "id" }],
  });
  const { rows } = await pool.query("select 1 from sagabox.message");
  expect(rows).toEqual([]);
});
