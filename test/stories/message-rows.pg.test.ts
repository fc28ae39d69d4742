import { createBus, event } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../support/database.ts";

async function setup() {
  const { pool } = await temporaryDatabase({ max: 60, migrated: true });
  const rows = async <R extends object>(sql: string): Promise<R[]> => (await pool.query<R>(sql)).rows;
  const bus = (options: Partial<Parameters<typeof createBus>[0]> = {}) => {
    const made = createBus({ service: "shop", database: pool, log: false, ...options });
    onTestFinished(async () => void (await made.stop()));
    return made;
  };
  return { pool, rows, bus };
}

const schema = z.object({ n: z.number() });

test("A4: every message has its four headers, filled in by itself, and what it causes carries them on", async () => {
  const { rows, bus } = await setup();
  const [Placed, Billed] = [event("placed", { schema }), event("billed", { schema })];
  const shop = bus();
  shop.on(
    Placed,
    { consumer: "billing" },
    async ({ data }, { publish }) => void (await publish(Billed, data)),
  );
  await shop.run();
  await shop.transaction((tx) => tx.publish(Placed, { n: 1 }));
  type ReceivedRow = { type: string; id: string; headers: Record<string, string> };
  const readReceived = () =>
    rows<ReceivedRow>(
      "select event_type as type, event_id as id, headers from sagabox.outbox_events order by created_at",
    );
  await expect.poll(async () => (await readReceived()).map(({ type }) => type)).toEqual(["placed", "billed"]);
  const [cause, effect] = await readReceived();
  expect(cause?.headers).toMatchObject({ message_id: cause?.id, causation_id: cause?.id });
  expect(cause?.headers["trace_id"]).toMatch(/^[0-9a-f]{32}$/);
  expect(effect?.headers).toMatchObject({
    message_id: effect?.id,
    causation_id: cause?.id,
    correlation_id: cause?.headers["correlation_id"],
    trace_id: cause?.headers["trace_id"],
  });
  const bad = shop.transaction((tx) => tx.publish(Placed, { n: 2 }, { headers: { "bad\nname": "x" } }));
  await expect(bad).rejects.toMatchObject({ code: expect.stringContaining("HEADER") as string });
});

test("A18: a topic is the one that is named, else what the user's function says, else made of the type", async () => {
  const { rows, bus } = await setup();
  const contracts = [
    event("OrderCreated", { schema }),
    event("order_created", { schema }),
    event("order.named", { schema, topic: "orders" }),
    event("order.routed", { schema }),
  ] as const;
  const shop = bus({ routing: ({ type }) => (type === "order.routed" ? "routed.by.us" : undefined) });
  await shop.transaction(async (tx) => {
    for (const contract of contracts) await tx.publish(contract, { n: 1 });
  });
  expect(await rows("select event_type, topic from sagabox.outbox_events order by event_type")).toEqual(
    [
      { event_type: "order.named", topic: "orders" },
      { event_type: "order.routed", topic: "routed.by.us" },
      { event_type: "OrderCreated", topic: "events.order.created" },
      { event_type: "order_created", topic: "events.order.created" },
    ].toSorted((a, b) => (a.event_type < b.event_type ? -1 : 1)),
  );
});

test("A12: messages of a key are handled in the order of their commits, over two workers and through retries", async () => {
  const { pool, rows, bus } = await setup();
  await pool.query("create table handled (place bigserial, key text, n integer)");
  const Moved = event("moved", { schema: schema.extend({ key: z.string() }), key: ({ key }) => key });
  const failed = new Set<string>();
  const buses = [bus({ worker: "one" }), bus({ worker: "two" })];
  for (const one of buses) {
    one.on(
      Moved,
      { consumer: "books", retry: { firstDelay: 5, maxDelay: 20 } },
      async ({ id, data }, { tx }) => {
        if (data.n % 5 === 0 && !failed.has(id)) {
          failed.add(id);
          throw new Error("not at the first try");
        }
        await tx.query("insert into handled (key, n) values ($1, $2)", [data.key, data.n]);
      },
    );
    await one.run();
  }
  const keys = ["a", "b", "c", "d", "e", "f"];
  for (let n = 0; n < 20; n++) {
    for (const [i, key] of keys.entries()) {
      await buses[(n + i) % 2]?.transaction((tx) => tx.publish(Moved, { key, n }));
    }
  }
  const count = "select count(*)::integer as n from handled";
  await expect.poll(() => rows(count)).toEqual([{ n: keys.length * 20 }]);
  const inOrder = await rows<{ key: string; ns: number[] }>(
    "select key, array_agg(n order by place) as ns from handled group by key order by key",
  );
  const expected = Array.from({ length: 20 }, (_, n) => n);
  expect(inOrder).toEqual(keys.map((key) => ({ key, ns: expected })));
  expect(failed.size).toBe(keys.length * 4);
});
