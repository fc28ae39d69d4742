import { expect, test } from "vitest";
import { z } from "zod";
import { event } from "../message/index.ts";
import { consumers } from "../../test/support/consumers.ts";
import { aMessage } from "../../test/support/messages.ts";

const OrderPlaced = event("order.placed", { schema: z.object({ n: z.number().optional() }) });
const quick = { firstDelay: 1, maxDelay: 2 } as const;
const common = { consumer: "billing", concurrency: 8, retry: quick };

const numbered = (n: number, key: string | null = null) =>
  aMessage({ id: `m${n}`, key, data: JSON.stringify({ n }) });

test("statements that are ready together share transactions, and each runs once and in the order of its key", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, {
    ...common,
    statement: ({ id }) => ({
      text: "insert into effect (consumer, id, note) select 'billing', $1::text, pg_current_xact_id()::text from fresh",
      params: [id],
    }),
  });
  await harness.start();
  const messages = Array.from({ length: 60 }, (_, n) => numbered(n, `k${n % 7}`));
  await harness.publish(...messages, ...messages.slice(0, 10));
  await harness.observer.until("consumer.processed", 60);
  await harness.observer.until("consumer.duplicate", 10);
  const effects = await harness.effects();
  expect(new Set(effects.map(({ id }) => id)).size).toBe(60);
  expect(effects).toHaveLength(60);
  expect(new Set(effects.map(({ note }) => note)).size).toBeLessThan(60);
  for (const key of new Set(messages.map((message) => message.key))) {
    const expected = messages.filter((message) => message.key === key).map(({ id }) => id);
    expect(effects.map(({ id }) => id).filter((id) => expected.includes(id))).toEqual(expected);
  }
});

test("a failing statement does not fail the others, and is retried alone", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, {
    ...common,
    retry: { ...quick, maxAttempts: 3 },
    statement: ({ id, data }) => ({
      text: "insert into effect (consumer, id, note) select 'billing', $1::text, (100 / $2::integer)::text from fresh",
      params: [id, data.n ?? 0],
    }),
  });
  await harness.start();
  await harness.publish(
    ...Array.from({ length: 9 }, (_, n) => numbered(n, n < 3 ? "with the bad one" : null)),
  );
  await harness.observer.until("dead_letter.buried");
  await harness.observer.until("consumer.processed", 8);
  expect((await harness.effects()).map(({ id }) => id).toSorted()).toEqual(
    Array.from({ length: 8 }, (_, n) => `m${n + 1}`),
  );
  expect(await harness.deadLetters()).toMatchObject([{ messageId: "m0", reason: "exhausted", attempts: 3 }]);
  expect(harness.observer.of("consumer.retried")).toHaveLength(2);
});

test("the statements of a failed batch run concurrently, within the limit of `concurrency`", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, {
    ...common,
    concurrency: 3,
    retry: { ...quick, maxAttempts: 1 },
    statement: ({ id, data }) => ({
      text: `insert into effect (consumer, id, note)
             select 'billing', $1::text, (select count(*) from pg_stat_activity
                                           where state = 'active' and query like '%insert into effect%')::text
               from fresh, pg_sleep(0.05) where 100 / $2::integer > 0`,
      params: [id, data.n ?? 0],
    }),
  });
  await harness.start();
  await harness.publish(...Array.from({ length: 6 }, (_, n) => numbered(n)));
  await harness.observer.until("consumer.processed", 5);
  await harness.observer.until("dead_letter.buried");
  expect(Math.max(...(await harness.effects()).map(({ note }) => Number(note)))).toBeLessThanOrEqual(3);
});

test("a statement that waits for locked rows does not delay others, and counts no attempt", async () => {
  const harness = await consumers();
  await harness.rows("create table stock (id integer primary key, taken integer not null default 0)");
  await harness.rows("insert into stock (id) select generate_series(0, 7)");
  harness.registry.on(OrderPlaced, {
    ...common,
    statement: ({ data }) => ({
      text: "update stock set taken = taken + 1 from fresh where stock.id = $1::integer",
      params: [data.n ?? 0],
    }),
  });
  const other = await harness.pool.connect();
  await other.query("begin");
  await other.query("update stock set taken = 0 where id = 0");
  await harness.start();
  await harness.publish(...Array.from({ length: 8 }, (_, n) => numbered(n)));
  await harness.observer.until("consumer.processed", 7);
  await other.query("commit");
  other.release();
  await harness.observer.until("consumer.processed", 8);
  expect(await harness.rows("select id from stock where taken <> 1")).toEqual([]);
  expect(harness.observer.of("consumer.retried")).toEqual([]);
});

test("two processes that update rows in different orders do not block each other", async () => {
  const harness = await consumers();
  await harness.rows("create table stock (id integer primary key, taken integer not null default 0)");
  await harness.rows("insert into stock (id) select generate_series(0, 3)");
  for (const consumer of ["forth", "back"]) {
    harness.registry.on(OrderPlaced, {
      ...common,
      consumer,
      statement: ({ data }) => ({
        text: "update stock set taken = taken + 1 from fresh where stock.id = $1::integer",
        params: [consumer === "forth" ? (data.n ?? 0) % 4 : 3 - ((data.n ?? 0) % 4)],
      }),
    });
  }
  await harness.start();
  await harness.publish(...Array.from({ length: 100 }, (_, n) => numbered(n)));
  await harness.observer.until("consumer.processed", 200);
  expect(await harness.rows("select sum(taken)::int as taken from stock")).toEqual([{ taken: 200 }]);
  expect(harness.observer.of("dead_letter.buried")).toEqual([]);
});

test("a stop waits for a running batch and leaves no partial effects", async () => {
  const harness = await consumers({ stopDeadlineMs: 10_000 });
  harness.registry.on(OrderPlaced, {
    ...common,
    statement: ({ id }) => ({
      text: "insert into effect (consumer, id, note) select 'billing', $1::text, pg_sleep(0.02)::text from fresh",
      params: [id],
    }),
  });
  await harness.start();
  await harness.publish(...Array.from({ length: 30 }, (_, n) => numbered(n)));
  await harness.observer.until("consumer.processed");
  await harness.stop();
  const [{ seen } = { seen: -1 }] = await harness.rows(
    "select count(*)::int as seen from sagabox.consumer_inbox",
  );
  expect(await harness.effects()).toHaveLength(Number(seen));
  expect(harness.observer.of("consumer.processed")).toHaveLength(Number(seen));
});

test("an invalid parameter does not fail other statements, and leaves the connections usable", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, {
    ...common,
    retry: { ...quick, maxAttempts: 3 },
    statement: ({ id, data }) => ({
      text: "insert into effect (consumer, id, note) select 'billing', $1::text, $2::text from fresh",
      params: [id, (data.n === 23 ? { amount: 1n } : "fine") as string],
    }),
  });
  await harness.start();
  await harness.publish(...Array.from({ length: 20 }, (_, n) => numbered(n)));
  await harness.observer.until("consumer.processed", 20);
  await harness.publish(...Array.from({ length: 20 }, (_, n) => numbered(20 + n)));
  await harness.observer.until("dead_letter.buried");
  await harness.observer.until("consumer.processed", 39);
  expect(await harness.deadLetters()).toMatchObject([{ messageId: "m23" }]);
  expect(await harness.effects()).toHaveLength(39);
  expect(harness.observer.of("consumer.duplicate")).toEqual([]);
  expect(new Set(harness.observer.of("consumer.retried").map(({ id }) => id))).toEqual(new Set(["m23"]));
});

test("a stop returns the messages of a batch that failed meanwhile", async () => {
  const harness = await consumers({ stopDeadlineMs: 10_000 });
  harness.registry.on(OrderPlaced, {
    ...common,
    statement: ({ id, data }) => ({
      text: "insert into effect (consumer, id) select 'billing', $1::text from fresh, pg_sleep(0.1) where 1 / $2::integer = 0",
      params: [id, 4 - (data.n ?? 0)],
    }),
  });
  await harness.start();
  await harness.publish(...Array.from({ length: 5 }, (_, n) => numbered(n, n < 2 ? "k" : null)));
  while (
    (
      await harness.rows(
        "select 1 from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()",
      )
    ).length === 0
  );
  await harness.stop();
  expect(await harness.effects()).toEqual([]);
  expect(harness.transport.backlog("billing")).toBe(5);
  expect(harness.observer.of("consumer.retried")).toEqual([]);
});
