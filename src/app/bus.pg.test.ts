import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../test/support/database.ts";
import { event } from "../message/index.ts";
import type { Bus } from "./bus.ts";
import type { BusOptions } from "./bus-options.ts";
import type { BusTransaction } from "../inbox/index.ts";
import { createBus } from "./create-bus.ts";

async function setup(options: Partial<BusOptions> = {}) {
  const { pool } = await temporaryDatabase();
  const bus = createBus({ service: "shop", database: pool, log: false, ...options });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate();
  return { pool, bus };
}

function metric(bus: Bus, name: string): number {
  const lines = bus
    .metrics()
    .split("\n")
    .filter((line) => line.startsWith(`${name}{`));
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

const foreign = { consumer: "billing", topic: "orders", type: "order.placed", data: { n: 1 } };

test("D7: the inbox of a bus finds ids with the extractor it was given and keeps the deadline", async () => {
  const { bus } = await setup({ inbox: { idOf: ({ headers }) => headers?.["x-id"], deadline: "200ms" } });
  const headers = { "x-id": "f-1" };
  expect(await bus.inbox.process({ ...foreign, headers }, ({ id }) => id)).toEqual({
    kind: "processed",
    result: "f-1",
  });
  expect(await bus.inbox.process({ ...foreign, id: "f-1" }, () => "again")).toEqual({
    kind: "duplicate",
    result: "f-1",
  });
  const endless = bus.inbox.process({ ...foreign, id: "f-2" }, () => new Promise<void>(() => undefined));
  await expect(endless).rejects.toMatchObject({ code: "HANDLER_TIMEOUT" });
});

test("D4: what was processed, how long it took and what was a duplicate is counted per consumer", async () => {
  const { bus } = await setup();
  for (const id of ["a", "b", "a"]) await bus.inbox.process({ ...foreign, id }, () => undefined);
  expect(metric(bus, "consumer_inbox_processed_total")).toBe(2);
  expect(metric(bus, "consumer_inbox_processing_duration_seconds_count")).toBe(2);
  expect(metric(bus, "consumer_inbox_processing_duration_seconds_sum")).toBeGreaterThan(0);
  expect(metric(bus, "consumer_inbox_duplicates_total")).toBe(1);
});

test("A14, A19: a message may wait for ten years and live as long, and no longer", async () => {
  const { pool, bus } = await setup();
  const Reminder = event("reminder.due", { schema: z.object({}), ttl: "3650d" });
  await bus.transaction((tx) => tx.publish(Reminder, {}, { delay: "3650d" }));
  await bus.transaction((tx) => tx.publish(Reminder, {}, { delay: "1s", ttl: "3650d" }));
  const { rows } = await pool.query(
    `select round(extract(epoch from due_at - written_at) / 86400)::int as waits,
            round(extract(epoch from expires_at - due_at) / 86400)::int as lives
       from sagabox.scheduled order by due_at desc`,
  );
  expect(rows).toEqual([
    { waits: 3650, lives: 3650 },
    { waits: 0, lives: 3650 },
  ]);
  for (const options of [{ delay: "3651d" }, { ttl: "3651d" }] as const) {
    await expect(bus.transaction((tx) => tx.publish(Reminder, {}, options))).rejects.toMatchObject({
      code: "OPTIONS_INVALID",
    });
  }
});

test("A1: a publish that nobody awaited is part of its transaction, and one that fails takes the transaction with it", async () => {
  const { bus, pool } = await setup({ outbox: { optimistic: false } });
  await pool.query("create table effect (id text)");
  const Noted = event("noted", { schema: z.object({ id: z.string() }).refine(async ({ id }) => id !== "") });
  const forget = (id: string): Promise<void> =>
    bus.transaction(async (tx) => {
      await tx.query("insert into effect values ($1)", [id]);
      void tx.publish(Noted, { id });
      void bus.publishAll(tx, [{ contract: Noted, data: { id } }]);
    });
  await forget("kept");
  await expect(forget("")).rejects.toMatchObject({ code: "PAYLOAD_INVALID" });
  const { rows } = await pool.query(
    "select (select count(*)::int from sagabox.outbox) as messages, id from effect",
  );
  expect(rows).toEqual([{ messages: 2, id: "kept" }]);
});

test.each([
  ["at once", (): undefined => undefined],
  ["while the transaction does something else", (tx: BusTransaction) => tx.query("select 1")],
])(
  "A1: a publish that nobody awaited and that fails %s takes the transaction with it",
  async (_, meanwhile) => {
    const { bus, pool } = await setup({ outbox: { optimistic: false } });
    await pool.query("create table effect (id text)");
    const Noted = event("noted", { schema: z.object({ id: z.string().min(1) }) });
    const forgetful = bus.transaction(async (tx) => {
      await tx.query("insert into effect values ('lost')");
      void tx.publish(Noted, { id: "" });
      await meanwhile(tx);
    });
    await expect(forgetful).rejects.toMatchObject({ code: "PAYLOAD_INVALID" });
    expect((await pool.query("select id from effect")).rows).toEqual([]);
  },
);

test("A1: a publish that failed and was caught leaves the transaction as it is", async () => {
  const { bus, pool } = await setup({ outbox: { optimistic: false } });
  const Noted = event("noted", { schema: z.object({ id: z.string().min(1) }) });
  await bus.transaction(async (tx) => {
    await tx.publish(Noted, { id: "" }).catch(() => tx.publish(Noted, { id: "instead" }));
    await expect(tx.publish(Noted, { id: "" })).rejects.toMatchObject({ code: "PAYLOAD_INVALID" });
  });
  expect((await pool.query("select data from sagabox.message")).rows).toEqual([{ data: '{"id":"instead"}' }]);
});

test("messages of a key that are published at the same time keep the order they were asked for in", async () => {
  const { bus, pool } = await setup({ outbox: { optimistic: false } });
  const Noted = event("noted", { schema: z.object({ n: z.number() }), key: () => "k" });
  // One with an id of its own is written straight away, the others with the COMMIT.
  const lists = [[0], ["1", "2", "3"], [4, "5", 6], ["7", 8, "9"]];
  for (const list of lists) {
    await bus.transaction(async (tx) => {
      await tx.publish(Noted, { n: -1 });
      const all = list.map((n) =>
        tx.publish(Noted, { n: Number(n) }, typeof n === "string" ? { id: n } : {}),
      );
      await Promise.all(all);
    });
  }
  const { rows } = await pool.query<{ n: number }>(
    "select (data::json ->> 'n')::int as n from sagabox.outbox join sagabox.message on id = message_id order by outbox.seq",
  );
  expect(rows.map(({ n }) => n)).toEqual([-1, 0, -1, 1, 2, 3, -1, 4, 5, 6, -1, 7, 8, 9]);
});

test("D3: a publish that a handler did not await is part of its effect", async () => {
  const { bus, pool } = await setup();
  const Asked = event("asked", { schema: z.object({}).refine(async () => true) });
  await bus.inbox.process({ ...foreign, id: "h-1" }, (_message, { publish }) => {
    void publish(Asked, {});
  });
  const { rows } = await pool.query("select type from sagabox.message");
  expect(rows).toEqual([{ type: "asked" }]);
  const Strict = event("strict", { schema: z.object({ n: z.number() }) });
  const forgetful = bus.inbox.process({ ...foreign, id: "h-2" }, (_message, { publish }) => {
    void publish(Strict, { n: "none" } as never);
  });
  await expect(forgetful).rejects.toMatchObject({ code: "PAYLOAD_INVALID" });
});

test("G4: sinks written as async functions may fail, and the process goes on", async () => {
  const unhandled: unknown[] = [];
  const hear = (reason: unknown): void => void unhandled.push(reason);
  process.on("unhandledRejection", hear);
  onTestFinished(() => void process.off("unhandledRejection", hear));
  const fail = (): void => Promise.reject(new Error("the sink is broken")) as unknown as undefined;
  const { bus } = await setup({
    observers: [{ emit: fail }],
    log: { level: "debug", write: fail, sagas: fail },
  });
  await bus.transaction((tx) => tx.publish(event("noted", { schema: z.object({}) }), {}));
  await new Promise((resolve) => setImmediate(resolve));
  expect(unhandled).toEqual([]);
});
