import { command, createBus, event, isSagaboxError, permanent, type Bus, type BusOptions } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase, type TemporaryDatabase } from "../support/database.ts";
import { until } from "../support/relays.ts";
import { ScriptedTransport } from "../support/scripted-transport.ts";

const Reserve = command("ask.reserve", {
  schema: z.object({ sku: z.string() }),
  reply: z.object({ reservationId: z.string() }),
});
const Note = command("ask.note", { schema: z.object({ text: z.string() }) });
const Noted = event("ask.noted", { schema: z.object({ text: z.string() }) });

const database = (): Promise<TemporaryDatabase> => temporaryDatabase({ max: 40, migrated: true });

function openBus(pool: TemporaryDatabase["pool"], options: Partial<BusOptions> = {}): Bus {
  const bus = createBus({ service: "shop", database: pool, log: false, ...options });
  onTestFinished(async () => void (await bus.stop()));
  return bus;
}

const start = async (...buses: readonly Bus[]): Promise<void> => {
  for (const bus of buses) {
    await bus.migrate();
    await bus.run();
  }
};

const stock = (bus: Bus, handled: string[] = []): string[] => {
  bus.on(Reserve, { consumer: "stock" }, ({ data: { sku } }) => {
    handled.push(sku);
    return { reservationId: `r-${sku}` };
  });
  return handled;
};

test.each([true, false])(
  "B8: asked and answered in one process, optimistic sending %s",
  async (optimistic) => {
    const { pool } = await database();
    const bus = openBus(pool, { outbox: { optimistic } });
    stock(bus);
    await start(bus);
    const replies = await Promise.all(
      ["a", "b", "c"].map((sku) => bus.request(Reserve, { sku }, { timeout: "10s" })),
    );
    expect(replies.map(({ reservationId }) => reservationId)).toEqual(["r-a", "r-b", "r-c"]);
    expect(bus.metrics()).toContain('requests_total{event_type="ask.reserve",outcome="done"} 3');
    expect((await bus.health()).checks).toMatchObject({ "consumer shop.replies": true });
  },
);

test.each([true, false])(
  "B8: two services with databases of their own, over a broker, optimistic sending %s",
  async (optimistic) => {
    const transport = new MemoryTransport();
    const [one, two] = [await database(), await database()];
    const asking = openBus(one.pool, { transport, outbox: { optimistic } });
    const answering = openBus(two.pool, { service: "stock", transport, outbox: { optimistic } });
    stock(answering);
    await start(answering, asking);
    expect(await asking.request(Reserve, { sku: "a" }, { timeout: "10s" })).toEqual({ reservationId: "r-a" });
    const kept = await two.pool.query(
      "select topic, causation_id is not null as caused from sagabox.message",
    );
    expect(kept.rows).toEqual([{ topic: "replies.shop", caused: true }]);
  },
);

test("B8: whichever instance gets the reply, the requesting one resolves", async () => {
  const { pool } = await temporaryDatabase({ max: 90, migrated: true });
  const instances = [openBus(pool), openBus(pool)];
  const answering = openBus(pool, { service: "stock" });
  stock(answering);
  await start(...instances, answering);
  const asked = Array.from({ length: 60 }, (_, n) => {
    const bus = instances[n % 2] as Bus;
    return bus.request(Reserve, { sku: `${n}` }, { timeout: "15s" });
  });
  expect((await Promise.all(asked)).map(({ reservationId }) => reservationId)).toEqual(
    asked.map((_, n) => `r-${n}`),
  );
  const members = await pool.query(
    "select count(*)::int as n from sagabox.consumer_inbox where consumer_name = 'shop.replies'",
  );
  expect(members.rows).toEqual([{ n: 60 }]);
});

test("B8: effect and reply are one: what the handler wrote is there when the reply is", async () => {
  const { pool } = await database();
  await pool.query("create table note (text text)");
  const bus = openBus(pool);
  bus.on(Note, { consumer: "notes" }, async ({ data: { text } }, { tx, publish }) => {
    await tx.query("insert into note values ($1)", [text]);
    await publish(Noted, { text });
  });
  await start(bus);
  expect(await bus.request(Note, { text: "x" }, { timeout: "10s" })).toBeUndefined();
  expect((await pool.query("select text from note")).rows).toEqual([{ text: "x" }]);
});

test("B8: a failed command is reported with its reason, after its last attempt", async () => {
  const { pool } = await database();
  const bus = openBus(pool);
  let attempts = 0;
  bus.on(Reserve, { consumer: "stock", retry: { maxAttempts: 3, firstDelay: 10 } }, () => {
    attempts += 1;
    throw new Error("the shelf is empty \ud800");
  });
  bus.on(Note, { consumer: "notes" }, () => {
    throw permanent("no notes today");
  });
  await start(bus);
  await expect(bus.request(Reserve, { sku: "a" }, { timeout: "10s" })).rejects.toMatchObject({
    name: "RequestError",
    code: "REQUEST_FAILED",
    reason: "exhausted",
    message: expect.stringContaining("the shelf is empty"),
  });
  expect(attempts).toBe(3);
  await expect(bus.request(Note, { text: "x" }, { timeout: "10s" })).rejects.toMatchObject({
    reason: "rejected",
    message: expect.stringContaining("no notes today"),
  });
  expect(await bus.deadLetters.list({ open: true })).toHaveLength(2);
});

test("B8: a request without a reply times out, and says that the command may still be carried out", async () => {
  const { pool } = await database();
  const bus = openBus(pool);
  await start(bus);
  // Long enough for it to be sent on a busy machine.
  const asked = bus.request(Reserve, { sku: "a" }, { timeout: 3_000, id: "request-1" });
  await expect(asked).rejects.toMatchObject({
    code: "REQUEST_TIMEOUT",
    requestId: "request-1",
    message: expect.stringContaining("may still be carried out"),
  });
  expect(bus.metrics()).toContain('requests_total{event_type="ask.reserve",outcome="timeout"} 1');
});

test("B8: a repeated request with the same id gets the reply, and the effect is not repeated", async () => {
  const { pool } = await database();
  const bus = openBus(pool);
  await start(bus);
  const again = (timeout: number) => bus.request(Reserve, { sku: "a" }, { timeout, id: "request-1" });
  await again(100).catch((error: unknown) => expect(isSagaboxError(error, "REQUEST_TIMEOUT")).toBe(true));
  const late = openBus(pool, { service: "stock" });
  const handled = stock(late);
  await start(late);
  expect(await again(10_000)).toEqual({ reservationId: "r-a" });
  expect(await again(10_000)).toEqual({ reservationId: "r-a" });
  expect(handled).toEqual(["a"]);
});

test("B8: replies and requests delivered twice change nothing", async () => {
  const { pool } = await database();
  const bus = openBus(pool);
  const handled = stock(bus);
  await start(bus);
  const { reservationId } = await bus.request(Reserve, { sku: "a" }, { timeout: "10s" });
  await bus.republish({ from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 60_000) });
  const left = "select 1 from sagabox.outbox union all select 1 from sagabox.queue";
  await until(async () => (await pool.query(left)).rowCount === 0);
  expect([reservationId, handled]).toEqual(["r-a", ["a"]]);
  expect((await pool.query("select outcome from sagabox.reply")).rows).toEqual([{ outcome: "done" }]);
});

test("B8: handlers in batches and handlers of one statement answer as well", async () => {
  const { pool } = await database();
  await pool.query("create table note (text text)");
  const bus = openBus(pool);
  bus.on(Reserve, { consumer: "stock", batch: { size: 10, wait: 20 } }, ({ data: { sku } }) => ({
    reservationId: sku,
  }));
  const Bulk = command("ask.bulk", { schema: z.object({}) });
  bus.onBatch(Bulk, { consumer: "bulk" }, () => undefined);
  bus.on(Note, {
    consumer: "notes",
    statement: ({ data: { text } }) => ({
      text: "insert into note select $1::text from fresh",
      params: [text],
    }),
  });
  await start(bus);
  const asked = [
    ...Array.from({ length: 8 }, (_, n) => bus.request(Reserve, { sku: `${n}` }, { timeout: "10s" })),
    ...Array.from({ length: 8 }, () => bus.request(Bulk, {}, { timeout: "10s" })),
    bus.request(Note, { text: "x" }, { timeout: "10s" }),
  ];
  const replies = await Promise.all<unknown>(asked);
  expect(replies.slice(0, 8)).toEqual(Array.from({ length: 8 }, (_, n) => ({ reservationId: `${n}` })));
  expect((await pool.query("select text from note")).rows).toEqual([{ text: "x" }]);
});

test("B8: a request inside a handler or a transaction is refused", async () => {
  const { pool } = await database();
  const bus = openBus(pool);
  let refusal: unknown;
  bus.on(Note, { consumer: "notes" }, async () => {
    refusal = await bus.request(Reserve, { sku: "a" }, { timeout: "1s" }).catch((error: unknown) => error);
  });
  await start(bus);
  await bus.request(Note, { text: "x" }, { timeout: "10s" });
  expect(refusal).toMatchObject({ code: "REQUEST_IN_TRANSACTION" });
  await expect(
    bus.transaction(() => bus.request(Reserve, { sku: "a" }, { timeout: "1s" })),
  ).rejects.toMatchObject({ code: "REQUEST_IN_TRANSACTION" });
});

test("B8: a request that the broker refuses fails at once instead of timing out", async () => {
  const { pool } = await database();
  const transport = new ScriptedTransport();
  transport.answer = () => "refused";
  transport.subscribe = () =>
    Promise.resolve({ pause: async () => {}, close: async () => {}, health: () => ({ ok: true }) });
  const bus = openBus(pool, { transport });
  await start(bus);
  await expect(bus.request(Reserve, { sku: "a" }, { timeout: "20s" })).rejects.toMatchObject({
    code: "REQUEST_FAILED",
    reason: "rejected",
  });
});

test("B8: when the connection that listens is cut, the reply is found anyway", async () => {
  const { pool } = await database();
  const bus = openBus(pool);
  let letGo: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (letGo = resolve));
  bus.on(Note, { consumer: "notes" }, () => held);
  await start(bus);
  const asked = bus.request(Note, { text: "x" }, { timeout: "10s" });
  await until(async () => (await pool.query("select 1 from sagabox.receipt")).rowCount === 1);
  const cut = await pool.query(`select pg_terminate_backend(pid) from pg_stat_activity
                                 where datname = current_database() and query ilike 'listen%'`);
  expect(cut.rowCount).toBe(1);
  letGo();
  expect(await asked).toBeUndefined();
});

test("B8: a bus that does not run, or stops, says so", async () => {
  const { pool } = await database();
  const bus = openBus(pool);
  const ask = () => bus.request(Reserve, { sku: "a" }, { timeout: "30s" });
  await expect(ask()).rejects.toMatchObject({ code: "BUS_NOT_RUNNING" });
  await start(bus);
  const asked = ask();
  asked.catch(() => undefined);
  await until(async () => (await pool.query("select 1 from sagabox.message")).rowCount === 1);
  expect(await bus.stop()).toEqual({ clean: true });
  await expect(asked).rejects.toMatchObject({ code: "BUS_STOPPED" });
});
