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

test("a bulk handler gets new messages in order, in one transaction, without duplicates", async () => {
  const harness = await consumers();
  const sizes: number[] = [];
  harness.registry.onBatch(
    OrderPlaced,
    { consumer: "billing", batch, concurrency: 1 },
    async (messages, { tx }) => {
      sizes.push(messages.length);
      const ids = messages.map((message) => message.id);
      await tx.query("insert into effect (consumer, id) select 'billing', unnest($1::text[])", [ids]);
    },
  );
  await harness.start();
  const messages = Array.from({ length: 40 }, (_, n) => aMessage({ id: `m${n}`, key: `k${n % 3}` }));
  await harness.publish(...messages, ...messages.slice(0, 5));
  await harness.observer.until("consumer.processed", 40);
  await harness.observer.until("consumer.duplicate", 5);
  expect(sizes[0]).toBeGreaterThan(20);
  const ids = (await harness.effects()).map((effect) => effect.id);
  for (const key of ["k0", "k1", "k2"]) {
    const expected = messages.filter((message) => message.key === key).map((message) => message.id);
    expect(ids.filter((id) => expected.includes(id))).toEqual(expected);
  }
  const timed =
    "select count(*)::int as timed from sagabox.consumer_inbox where processing_duration_ms is not null";
  expect(await harness.rows(timed)).toEqual([{ timed: 40 }]);
  await harness.publish(...messages.slice(0, 3), aMessage({ id: "new" }), ...messages.slice(3, 6));
  await harness.observer.until("consumer.duplicate", 11);
  await harness.observer.until("consumer.processed", 41);
  expect((await harness.effects()).map((effect) => effect.id).slice(40)).toEqual(["new"]);
});

test("the messages of a failing batch are retried one by one: the bad one is dead-lettered, the others are handled once", async () => {
  const harness = await consumers();
  harness.registry.onBatch(
    OrderPlaced,
    { consumer: "billing", batch, retry: quick },
    async (messages, { tx }) => {
      for (const { id } of messages)
        await tx.query("insert into effect (consumer, id) values ('billing', $1)", [id]);
      if (messages.some(({ id }) => id === "bad")) throw permanent("no such customer");
    },
  );
  await harness.start();
  await harness.publish(...["a", "b", "bad", "c", "d"].map((id) => aMessage({ id, key: "k" })));
  await harness.observer.until("consumer.processed", 4);
  await harness.observer.until("dead_letter.buried");
  expect((await harness.effects()).map((effect) => effect.id)).toEqual(["a", "b", "c", "d"]);
  expect(await harness.deadLetters()).toMatchObject([{ messageId: "bad", reason: "rejected" }]);
});

test("when a batch is retried, a message that must wait blocks only its own key", async () => {
  const harness = await consumers();
  let failures = 0;
  harness.registry.onBatch(
    OrderPlaced,
    { consumer: "billing", batch, retry: quick },
    async (messages, { tx }) => {
      if (messages.some(({ id }) => id === "a1") && failures++ < 4) throw new Error("not yet");
      for (const { id } of messages)
        await tx.query("insert into effect (consumer, id) values ('billing', $1)", [id]);
    },
  );
  await harness.start();
  await harness.publish(
    ...["a0", "a1", "b0", "a2", "b1", "a3"].map((id) => aMessage({ id, key: id.slice(0, 1) })),
  );
  await harness.observer.until("consumer.processed", 6);
  const ids = (await harness.effects()).map((effect) => effect.id);
  expect(ids.filter((id) => id.startsWith("a"))).toEqual(["a0", "a1", "a2", "a3"]);
  expect(ids.filter((id) => id.startsWith("b"))).toEqual(["b0", "b1"]);
  expect(ids.indexOf("b1")).toBeLessThan(ids.indexOf("a1"));
});

test("handlers of a batch run concurrently on one connection, those of one key in order", async () => {
  const harness = await consumers();
  let running = 0;
  let most = 0;
  const inKey = new Map<string, number>();
  harness.registry.on(
    OrderPlaced,
    { consumer: "billing", batch, concurrency: 1 },
    async (message, { tx }) => {
      const key = message.key ?? "";
      running += 1;
      most = Math.max(most, running);
      inKey.set(key, (inKey.get(key) ?? 0) + 1);
      expect(inKey.get(key)).toBe(1);
      await tx.query("insert into effect (consumer, id) values ('billing', $1)", [message.id]);
      inKey.set(key, 0);
      running -= 1;
      return { handled: message.id };
    },
  );
  await harness.start();
  await harness.publish(
    ...Array.from({ length: 40 }, (_, n) => aMessage({ id: `m${n}`, key: `k${n % 10}` })),
  );
  await harness.observer.until("consumer.processed", 40);
  expect(most).toBe(10);
  expect(await harness.rows("select result from sagabox.consumer_inbox where event_id = 'm7'")).toEqual([
    { result: '{"handled":"m7"}' },
  ]);
  expect(await harness.rows("select count(distinct xmin::text)::int as transactions from effect")).toEqual([
    { transactions: 1 },
  ]);
});

test("a batch skips expired and unreadable messages", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, { consumer: "billing", batch }, async (message, { tx }) => {
    await tx.query("insert into effect (consumer, id) values ('billing', $1)", [message.id]);
  });
  await harness.start();
  await harness.publish(
    aMessage({ id: "good" }),
    aMessage({ id: "late", expiresAt: "2026-01-01T00:00:00Z" }),
    aMessage({ id: "broken", data: "{" }),
  );
  await harness.observer.until("dead_letter.buried", 2);
  await harness.observer.until("consumer.processed");
  expect(
    (await harness.deadLetters()).map(({ messageId, reason }) => `${messageId} ${reason}`).sort(),
  ).toEqual(["broken rejected", "late expired"]);
  expect((await harness.effects()).map((effect) => effect.id)).toEqual(["good"]);
});

test("each message of a batch is stored with its own topic, and its payload if configured", async () => {
  const harness = await consumers();
  for (const [consumer, storePayload] of [
    ["billing", false],
    ["keeping", true],
  ] as const) {
    harness.registry.onBatch(OrderPlaced, { consumer, batch, storePayload }, () => Promise.resolve());
  }
  const Elsewhere = event("order.placed", { schema: z.object({}), topic: "elsewhere" });
  harness.registry.onBatch(Elsewhere, { consumer: "both", batch }, () => Promise.resolve());
  await harness.start();
  await harness.publish(aMessage({ id: "a", data: '{"n":1}' }), aMessage({ id: "b", data: '{"n":2}' }));
  await harness.publish(aMessage({ id: "c", topic: "elsewhere" }), aMessage({ id: "d", topic: "elsewhere" }));
  await harness.observer.until("consumer.processed", 6);
  const kept =
    "select consumer_name as consumer, event_id as id, source_topic as topic, payload from sagabox.consumer_inbox";
  const { topic } = aMessage();
  expect(await harness.rows(`${kept} order by 1, 2`)).toEqual([
    { consumer: "billing", id: "a", topic, payload: null },
    { consumer: "billing", id: "b", topic, payload: null },
    { consumer: "both", id: "c", topic: "elsewhere", payload: null },
    { consumer: "both", id: "d", topic: "elsewhere", payload: null },
    { consumer: "keeping", id: "a", topic, payload: '{"n":1}' },
    { consumer: "keeping", id: "b", topic, payload: '{"n":2}' },
  ]);
});

test("a batch that loses its connection counts no attempts and is handled later", async () => {
  const harness = await consumers();
  let runs = 0;
  harness.registry.onBatch(
    OrderPlaced,
    { consumer: "billing", batch, retry: quick },
    async (messages, { tx }) => {
      if (++runs === 1) await tx.query("select pg_terminate_backend(pg_backend_pid())");
      for (const { id } of messages)
        await tx.query("insert into effect (consumer, id) values ('billing', $1)", [id]);
    },
  );
  await harness.start();
  await harness.publish(...["a", "b", "c"].map((id) => aMessage({ id, key: "k" })));
  await harness.observer.until("consumer.processed", 3);
  expect((await harness.effects()).map((effect) => effect.id)).toEqual(["a", "b", "c"]);
  expect(harness.observer.of("consumer.retried").map((retry) => retry.countsAsAttempt)).toEqual([false]);
});

test("a statement handler dedupes and writes in one statement", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, {
    consumer: "billing",
    statement: ({ id, data }) => ({
      text: "insert into effect (consumer, id, note) select 'billing', $1::text, $2::text from fresh",
      params: [id, String(data.n)],
    }),
  });
  await harness.start();
  const one = aMessage({ id: "a", data: '{"n":7}' });
  await harness.publish(one, one, aMessage({ id: "late", expiresAt: "2026-01-01T00:00:00Z" }));
  await harness.observer.until("consumer.processed");
  await harness.observer.until("consumer.duplicate");
  await harness.observer.until("dead_letter.buried");
  expect(await harness.effects()).toEqual([{ consumer: "billing", id: "a", note: "7" }]);
  expect(await harness.deadLetters()).toMatchObject([{ messageId: "late", reason: "expired" }]);
});

test("a statement that calls a function runs it for fresh messages only", async () => {
  const harness = await consumers();
  await harness.rows(
    "create function note(id text) returns void language sql as $$ insert into effect (id) values (id) $$",
  );
  harness.registry.on(OrderPlaced, {
    consumer: "billing",
    statement: ({ id }) => ({ text: "select note($1::text) from fresh", params: [id] }),
  });
  await harness.start();
  const one = aMessage({ id: "a" });
  await harness.publish(one, one);
  await harness.observer.until("consumer.duplicate");
  expect(await harness.effects()).toHaveLength(1);
});

test("a statement that would also run for duplicates, or changes with the data, is refused", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, {
    consumer: "careless",
    statement: () => ({ text: "insert into effect (id) values ('x')" }),
  });
  harness.registry.on(OrderPlaced, {
    consumer: "pasting",
    statement: ({ id }) => ({ text: `insert into effect (id) select '${id}' from fresh` }),
  });
  await harness.start();
  await harness.publish(...Array.from({ length: 17 }, () => aMessage()));
  await harness.observer.until("dead_letter.buried", 18);
  await harness.observer.until("consumer.processed", 16);
  const letters = harness.observer.of("dead_letter.buried");
  expect(letters.filter((letter) => letter.consumer === "careless")).toHaveLength(17);
  expect(letters.find((letter) => letter.consumer === "pasting")?.error).toContain("parameters");
});

test("a message that cannot be read at the moment blocks later messages of its key in the batch", async () => {
  const harness = await consumers();
  let asked = 0;
  const validate = (data: unknown) => {
    const value = data as { n: number };
    if (value.n === 1 && asked++ === 0) throw new Error("the registry does not answer");
    return { value };
  };
  const schema: StandardSchemaV1<{ n: number }> = { "~standard": { version: 1, vendor: "test", validate } };
  const Looked = event("order.placed", { schema });
  harness.registry.onBatch(Looked, { consumer: "billing", batch, retry: quick }, async (messages, { tx }) => {
    for (const { id } of messages)
      await tx.query("insert into effect (consumer, id) values ('billing', $1)", [id]);
  });
  await harness.start();
  await harness.publish(
    ...[0, 1, 2, 3].map((n) => aMessage({ id: `m${n}`, key: "k", data: JSON.stringify({ n }) })),
  );
  await harness.observer.until("consumer.processed", 4);
  expect(harness.observer.of("consumer.retried")).toHaveLength(1);
  expect((await harness.effects()).map((effect) => effect.id)).toEqual(["m0", "m1", "m2", "m3"]);
});

test("the results of a batch are stored with their messages", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, { consumer: "billing", batch }, ({ data: { n = 0 } }) =>
    n % 2 === 0 ? { n } : undefined,
  );
  await harness.start();
  await harness.publish(...[0, 1, 2, 3].map((n) => aMessage({ id: `m${n}`, data: JSON.stringify({ n }) })));
  await harness.observer.until("consumer.processed", 4);
  const kept = await harness.rows(
    "select event_id as id, result, processing_duration_ms >= 0 as timed from sagabox.consumer_inbox order by 1",
  );
  expect(kept).toEqual([
    { id: "m0", result: '{"n":0}', timed: true },
    { id: "m1", result: null, timed: true },
    { id: "m2", result: '{"n":2}', timed: true },
    { id: "m3", result: null, timed: true },
  ]);
});

test("a batch updates only its own rows, for any table statistics", async () => {
  const harness = await consumers();
  const { engine, pool } = harness;
  await harness.rows("analyze sagabox.consumer_inbox");
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

test("a rollback to a savepoint does not undo writes of handlers of other keys", async () => {
  const harness = await consumers();
  const ids = ["a", "b", "saving"];
  let batches = 0;
  harness.registry.on(OrderPlaced, { consumer: "billing", batch }, async ({ id }, { tx }) => {
    const insert = () => tx.query("insert into effect (consumer, id) values ('billing', $1)", [id]);
    if (!id.startsWith("saving")) return void (await insert());
    batches += 1;
    await tx.query("savepoint s");
    await new Promise((resolve) => setTimeout(resolve, 50));
    await tx.query("rollback to s");
    await insert();
  });
  await harness.start();
  await harness.publish(...ids.map((id) => aMessage({ id, key: id })));
  await harness.observer.until("consumer.processed", 3);
  expect((await harness.effects()).map(({ id }) => id).sort()).toEqual(ids);
  expect(batches).toBe(2);
  // After that the messages of a batch run one after the other.
  const more = ["saving 2", "saving 3", "z"];
  await harness.publish(...more.map((id) => aMessage({ id, key: id })));
  await harness.observer.until("consumer.processed", 6);
  expect((await harness.effects()).map(({ id }) => id).sort()).toEqual([...ids, ...more]);
  expect(batches).toBe(4);
});
