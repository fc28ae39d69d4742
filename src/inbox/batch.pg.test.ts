import type { StandardSchemaV1 } from "@standard-schema/spec";
import { expect, test } from "vitest";
import { z } from "zod";
import { permanent } from "../errors/index.ts";
import { event } from "../message/index.ts";
import { consumers } from "../../test/support/consumers.ts";
import { aMessage } from "../../test/support/messages.ts";

const OrderPlaced = event("order.placed", { schema: z.object({ n: z.number().optional() }) });
const quick = { firstDelay: 1, maxDelay: 2 } as const;
const batch = { size: 50, wait: "20ms" } as const;

test("a bulk handler gets many messages in one transaction, in order and without the ones it has seen", async () => {
  const house = await consumers();
  const sizes: number[] = [];
  house.registry.onBatch(
    OrderPlaced,
    { consumer: "billing", batch, concurrency: 1 },
    async (messages, { tx }) => {
      sizes.push(messages.length);
      const ids = messages.map((message) => message.id);
      await tx.query("insert into effect (consumer, id) select 'billing', unnest($1::text[])", [ids]);
    },
  );
  await house.start();
  const messages = Array.from({ length: 40 }, (_, n) => aMessage({ id: `m${n}`, key: `k${n % 3}` }));
  await house.publish(...messages, ...messages.slice(0, 5));
  await house.observer.until("consumer.processed", 40);
  await house.observer.until("consumer.duplicate", 5);
  expect(sizes[0]).toBeGreaterThan(20);
  const ids = (await house.effects()).map((effect) => effect.id);
  for (const key of ["k0", "k1", "k2"]) {
    const expected = messages.filter((message) => message.key === key).map((message) => message.id);
    expect(ids.filter((id) => expected.includes(id))).toEqual(expected);
  }
  const timed =
    "select count(*)::int as timed from sagabox.consumer_inbox where processing_duration_ms is not null";
  expect(await house.rows(timed)).toEqual([{ timed: 40 }]);
  await house.publish(...messages.slice(0, 3), aMessage({ id: "new" }), ...messages.slice(3, 6));
  await house.observer.until("consumer.duplicate", 11);
  await house.observer.until("consumer.processed", 41);
  expect((await house.effects()).map((effect) => effect.id).slice(40)).toEqual(["new"]);
});

test("a failing batch is redone one by one: the bad message is buried, the good ones are handled once", async () => {
  const house = await consumers();
  house.registry.onBatch(
    OrderPlaced,
    { consumer: "billing", batch, retry: quick },
    async (messages, { tx }) => {
      for (const { id } of messages)
        await tx.query("insert into effect (consumer, id) values ('billing', $1)", [id]);
      if (messages.some(({ id }) => id === "bad")) throw permanent("no such customer");
    },
  );
  await house.start();
  await house.publish(...["a", "b", "bad", "c", "d"].map((id) => aMessage({ id, key: "k" })));
  await house.observer.until("consumer.processed", 4);
  await house.observer.until("dead_letter.buried");
  expect((await house.effects()).map((effect) => effect.id)).toEqual(["a", "b", "c", "d"]);
  expect(await house.deadLetters()).toMatchObject([{ messageId: "bad", reason: "rejected" }]);
});

test("in a redone batch a message that must wait holds back its own key only", async () => {
  const house = await consumers();
  let failures = 0;
  house.registry.onBatch(
    OrderPlaced,
    { consumer: "billing", batch, retry: quick },
    async (messages, { tx }) => {
      if (messages.some(({ id }) => id === "a1") && failures++ < 4) throw new Error("not yet");
      for (const { id } of messages)
        await tx.query("insert into effect (consumer, id) values ('billing', $1)", [id]);
    },
  );
  await house.start();
  await house.publish(
    ...["a0", "a1", "b0", "a2", "b1", "a3"].map((id) => aMessage({ id, key: id.slice(0, 1) })),
  );
  await house.observer.until("consumer.processed", 6);
  const ids = (await house.effects()).map((effect) => effect.id);
  expect(ids.filter((id) => id.startsWith("a"))).toEqual(["a0", "a1", "a2", "a3"]);
  expect(ids.filter((id) => id.startsWith("b"))).toEqual(["b0", "b1"]);
  expect(ids.indexOf("b1")).toBeLessThan(ids.indexOf("a1"));
});

test("handlers of a batch run side by side on one connection, those of one key in series", async () => {
  const house = await consumers();
  let running = 0;
  let most = 0;
  const inKey = new Map<string, number>();
  house.registry.on(OrderPlaced, { consumer: "billing", batch, concurrency: 1 }, async (message, { tx }) => {
    const key = message.key ?? "";
    running += 1;
    most = Math.max(most, running);
    inKey.set(key, (inKey.get(key) ?? 0) + 1);
    expect(inKey.get(key)).toBe(1);
    await tx.query("insert into effect (consumer, id) values ('billing', $1)", [message.id]);
    inKey.set(key, 0);
    running -= 1;
    return { handled: message.id };
  });
  await house.start();
  await house.publish(...Array.from({ length: 40 }, (_, n) => aMessage({ id: `m${n}`, key: `k${n % 10}` })));
  await house.observer.until("consumer.processed", 40);
  expect(most).toBe(10);
  expect(await house.rows("select result from sagabox.consumer_inbox where event_id = 'm7'")).toEqual([
    { result: '{"handled":"m7"}' },
  ]);
  expect(await house.rows("select count(distinct xmin::text)::int as transactions from effect")).toEqual([
    { transactions: 1 },
  ]);
});

test("a batch passes over what has expired and what cannot be read", async () => {
  const house = await consumers();
  house.registry.on(OrderPlaced, { consumer: "billing", batch }, async (message, { tx }) => {
    await tx.query("insert into effect (consumer, id) values ('billing', $1)", [message.id]);
  });
  await house.start();
  await house.publish(
    aMessage({ id: "good" }),
    aMessage({ id: "late", expiresAt: "2026-01-01T00:00:00Z" }),
    aMessage({ id: "broken", data: "{" }),
  );
  await house.observer.until("dead_letter.buried", 2);
  await house.observer.until("consumer.processed");
  expect((await house.deadLetters()).map(({ messageId, reason }) => `${messageId} ${reason}`).sort()).toEqual(
    ["broken rejected", "late expired"],
  );
  expect((await house.effects()).map((effect) => effect.id)).toEqual(["good"]);
});

test("each message of a batch is remembered by its own topic, and kept where that is asked for", async () => {
  const house = await consumers();
  for (const [consumer, storePayload] of [
    ["billing", false],
    ["keeping", true],
  ] as const) {
    house.registry.onBatch(OrderPlaced, { consumer, batch, storePayload }, () => Promise.resolve());
  }
  const Elsewhere = event("order.placed", { schema: z.object({}), topic: "elsewhere" });
  house.registry.onBatch(Elsewhere, { consumer: "both", batch }, () => Promise.resolve());
  await house.start();
  await house.publish(aMessage({ id: "a", data: '{"n":1}' }), aMessage({ id: "b", data: '{"n":2}' }));
  await house.publish(aMessage({ id: "c", topic: "elsewhere" }), aMessage({ id: "d", topic: "elsewhere" }));
  await house.observer.until("consumer.processed", 6);
  const kept =
    "select consumer_name as consumer, event_id as id, source_topic as topic, payload from sagabox.consumer_inbox";
  const { topic } = aMessage();
  expect(await house.rows(`${kept} order by 1, 2`)).toEqual([
    { consumer: "billing", id: "a", topic, payload: null },
    { consumer: "billing", id: "b", topic, payload: null },
    { consumer: "both", id: "c", topic: "elsewhere", payload: null },
    { consumer: "both", id: "d", topic: "elsewhere", payload: null },
    { consumer: "keeping", id: "a", topic, payload: '{"n":1}' },
    { consumer: "keeping", id: "b", topic, payload: '{"n":2}' },
  ]);
});

test("a batch that loses its connection charges nobody and is handled later", async () => {
  const house = await consumers();
  let runs = 0;
  house.registry.onBatch(
    OrderPlaced,
    { consumer: "billing", batch, retry: quick },
    async (messages, { tx }) => {
      if (++runs === 1) await tx.query("select pg_terminate_backend(pg_backend_pid())");
      for (const { id } of messages)
        await tx.query("insert into effect (consumer, id) values ('billing', $1)", [id]);
    },
  );
  await house.start();
  await house.publish(...["a", "b", "c"].map((id) => aMessage({ id, key: "k" })));
  await house.observer.until("consumer.processed", 3);
  expect((await house.effects()).map((effect) => effect.id)).toEqual(["a", "b", "c"]);
  expect(house.observer.of("consumer.retried").map((retry) => retry.charged)).toEqual([false]);
});

test("a statement handler dedupes and writes in one statement", async () => {
  const house = await consumers();
  house.registry.on(OrderPlaced, {
    consumer: "billing",
    statement: ({ id, data }) => ({
      text: "insert into effect (consumer, id, note) select 'billing', $1::text, $2::text from fresh",
      params: [id, String(data.n)],
    }),
  });
  await house.start();
  const one = aMessage({ id: "a", data: '{"n":7}' });
  await house.publish(one, one, aMessage({ id: "late", expiresAt: "2026-01-01T00:00:00Z" }));
  await house.observer.until("consumer.processed");
  await house.observer.until("consumer.duplicate");
  await house.observer.until("dead_letter.buried");
  expect(await house.effects()).toEqual([{ consumer: "billing", id: "a", note: "7" }]);
  expect(await house.deadLetters()).toMatchObject([{ messageId: "late", reason: "expired" }]);
});

test("a statement that calls a function runs it for fresh messages only", async () => {
  const house = await consumers();
  await house.rows(
    "create function note(id text) returns void language sql as $$ insert into effect (id) values (id) $$",
  );
  house.registry.on(OrderPlaced, {
    consumer: "billing",
    statement: ({ id }) => ({ text: "select note($1::text) from fresh", params: [id] }),
  });
  await house.start();
  const one = aMessage({ id: "a" });
  await house.publish(one, one);
  await house.observer.until("consumer.duplicate");
  expect(await house.effects()).toHaveLength(1);
});

test("a statement that would also run for duplicates, or changes with the data, is refused", async () => {
  const house = await consumers();
  house.registry.on(OrderPlaced, {
    consumer: "careless",
    statement: () => ({ text: "insert into effect (id) values ('x')" }),
  });
  house.registry.on(OrderPlaced, {
    consumer: "pasting",
    statement: ({ id }) => ({ text: `insert into effect (id) select '${id}' from fresh` }),
  });
  await house.start();
  await house.publish(...Array.from({ length: 17 }, () => aMessage()));
  await house.observer.until("dead_letter.buried", 18);
  await house.observer.until("consumer.processed", 16);
  const letters = house.observer.of("dead_letter.buried");
  expect(letters.filter((letter) => letter.consumer === "careless")).toHaveLength(17);
  expect(letters.find((letter) => letter.consumer === "pasting")?.error).toContain("parameters");
});

test("a message that cannot be read just now holds back its successors in the same batch", async () => {
  const house = await consumers();
  let asked = 0;
  const validate = (data: unknown) => {
    const value = data as { n: number };
    if (value.n === 1 && asked++ === 0) throw new Error("the registry does not answer");
    return { value };
  };
  const schema: StandardSchemaV1<{ n: number }> = { "~standard": { version: 1, vendor: "test", validate } };
  const Looked = event("order.placed", { schema });
  house.registry.onBatch(Looked, { consumer: "billing", batch, retry: quick }, async (messages, { tx }) => {
    for (const { id } of messages)
      await tx.query("insert into effect (consumer, id) values ('billing', $1)", [id]);
  });
  await house.start();
  await house.publish(
    ...[0, 1, 2, 3].map((n) => aMessage({ id: `m${n}`, key: "k", data: JSON.stringify({ n }) })),
  );
  await house.observer.until("consumer.processed", 4);
  expect(house.observer.of("consumer.retried")).toHaveLength(1);
  expect((await house.effects()).map((effect) => effect.id)).toEqual(["m0", "m1", "m2", "m3"]);
});

test("what handlers of a batch answer is kept with each of their messages", async () => {
  const house = await consumers();
  house.registry.on(OrderPlaced, { consumer: "billing", batch }, ({ data: { n = 0 } }) =>
    n % 2 === 0 ? { n } : undefined,
  );
  await house.start();
  await house.publish(...[0, 1, 2, 3].map((n) => aMessage({ id: `m${n}`, data: JSON.stringify({ n }) })));
  await house.observer.until("consumer.processed", 4);
  const kept = await house.rows(
    "select event_id as id, result, processing_duration_ms >= 0 as timed from sagabox.consumer_inbox order by 1",
  );
  expect(kept).toEqual([
    { id: "m0", result: '{"n":0}', timed: true },
    { id: "m1", result: null, timed: true },
    { id: "m2", result: '{"n":2}', timed: true },
    { id: "m3", result: null, timed: true },
  ]);
});

test("a batch is finished by its own rows, not by all of its consumer's, whatever is known of the table", async () => {
  const house = await consumers();
  const { engine, pool } = house;
  await house.rows("analyze sagabox.consumer_inbox");
  const { finishAll, finishWithResults, recall, recallAll } = engine.sql;
  const given = {
    finishAll: "'c', 1, '{a}'",
    finishWithResults: "'c', 1, '{a}', '{b}'",
    recall: "'c', '{a}'",
    recallAll: "'c', '{a}'",
  };
  const client = await pool.connect();
  await client.query("set plan_cache_mode = force_generic_plan");
  for (const [name, { text }] of Object.entries({ finishAll, finishWithResults, recall, recallAll })) {
    await client.query(`prepare ${name} as ${text}`);
    const { rows } = await client.query(`explain execute ${name} (${given[name as keyof typeof given]})`);
    expect(JSON.stringify(rows)).toMatch(
      /Index Cond: \(\(consumer_name = \$1\) AND \(event_id = given\.id\)/,
    );
  }
  client.release(true);
});

test("a rollback to a savepoint takes back nothing that handlers of other keys wrote in the batch", async () => {
  const house = await consumers();
  const ids = ["a", "b", "saving"];
  let batches = 0;
  house.registry.on(OrderPlaced, { consumer: "billing", batch }, async ({ id }, { tx }) => {
    const insert = () => tx.query("insert into effect (consumer, id) values ('billing', $1)", [id]);
    if (!id.startsWith("saving")) return void (await insert());
    batches += 1;
    await tx.query("savepoint s");
    await new Promise((resolve) => setTimeout(resolve, 50));
    await tx.query("rollback to s");
    await insert();
  });
  await house.start();
  await house.publish(...ids.map((id) => aMessage({ id, key: id })));
  await house.observer.until("consumer.processed", 3);
  expect((await house.effects()).map(({ id }) => id).sort()).toEqual(ids);
  expect(batches).toBe(2);
  // From then on they share a transaction one after the other.
  const more = ["saving 2", "saving 3", "z"];
  await house.publish(...more.map((id) => aMessage({ id, key: id })));
  await house.observer.until("consumer.processed", 6);
  expect((await house.effects()).map(({ id }) => id).sort()).toEqual([...ids, ...more]);
  expect(batches).toBe(4);
});
