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

test("statements that are ready together share transactions, and each is carried out once and in the order of its key", async () => {
  const house = await consumers();
  house.registry.on(OrderPlaced, {
    ...common,
    statement: ({ id }) => ({
      text: "insert into effect (consumer, id, note) select 'billing', $1::text, pg_current_xact_id()::text from fresh",
      params: [id],
    }),
  });
  await house.start();
  const messages = Array.from({ length: 60 }, (_, n) => numbered(n, `k${n % 7}`));
  await house.publish(...messages, ...messages.slice(0, 10));
  await house.observer.until("consumer.processed", 60);
  await house.observer.until("consumer.duplicate", 10);
  const effects = await house.effects();
  expect(new Set(effects.map(({ id }) => id)).size).toBe(60);
  expect(effects).toHaveLength(60);
  expect(new Set(effects.map(({ note }) => note)).size).toBeLessThan(60);
  for (const key of new Set(messages.map((message) => message.key))) {
    const expected = messages.filter((message) => message.key === key).map(({ id }) => id);
    expect(effects.map(({ id }) => id).filter((id) => expected.includes(id))).toEqual(expected);
  }
});

test("one that fails takes no other with it, and comes back by itself", async () => {
  const house = await consumers();
  house.registry.on(OrderPlaced, {
    ...common,
    retry: { ...quick, maxAttempts: 3 },
    statement: ({ id, data }) => ({
      text: "insert into effect (consumer, id, note) select 'billing', $1::text, (100 / $2::integer)::text from fresh",
      params: [id, data.n ?? 0],
    }),
  });
  await house.start();
  await house.publish(...Array.from({ length: 9 }, (_, n) => numbered(n, n < 3 ? "with the bad one" : null)));
  await house.observer.until("dead_letter.buried");
  await house.observer.until("consumer.processed", 8);
  expect((await house.effects()).map(({ id }) => id).toSorted()).toEqual(
    Array.from({ length: 8 }, (_, n) => `m${n + 1}`),
  );
  expect(await house.deadLetters()).toMatchObject([{ messageId: "m0", reason: "exhausted", attempts: 3 }]);
  expect(house.observer.of("consumer.retried")).toHaveLength(2);
});

test("those of a lot that failed run side by side, no more of them than concurrency allows", async () => {
  const house = await consumers();
  house.registry.on(OrderPlaced, {
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
  await house.start();
  await house.publish(...Array.from({ length: 6 }, (_, n) => numbered(n)));
  await house.observer.until("consumer.processed", 5);
  await house.observer.until("dead_letter.buried");
  expect(Math.max(...(await house.effects()).map(({ note }) => Number(note)))).toBeLessThanOrEqual(3);
});

test("what waits for rows of somebody else keeps no neighbour waiting, and costs no attempt", async () => {
  const house = await consumers();
  await house.rows("create table stock (id integer primary key, taken integer not null default 0)");
  await house.rows("insert into stock (id) select generate_series(0, 7)");
  house.registry.on(OrderPlaced, {
    ...common,
    statement: ({ data }) => ({
      text: "update stock set taken = taken + 1 from fresh where stock.id = $1::integer",
      params: [data.n ?? 0],
    }),
  });
  const other = await house.pool.connect();
  await other.query("begin");
  await other.query("update stock set taken = 0 where id = 0");
  await house.start();
  await house.publish(...Array.from({ length: 8 }, (_, n) => numbered(n)));
  await house.observer.until("consumer.processed", 7);
  await other.query("commit");
  other.release();
  await house.observer.until("consumer.processed", 8);
  expect(await house.rows("select id from stock where taken <> 1")).toEqual([]);
  expect(house.observer.of("consumer.retried")).toEqual([]);
});

test("two processes that want the same rows in another order do not stand in each other's way", async () => {
  const house = await consumers();
  await house.rows("create table stock (id integer primary key, taken integer not null default 0)");
  await house.rows("insert into stock (id) select generate_series(0, 3)");
  for (const consumer of ["forth", "back"]) {
    house.registry.on(OrderPlaced, {
      ...common,
      consumer,
      statement: ({ data }) => ({
        text: "update stock set taken = taken + 1 from fresh where stock.id = $1::integer",
        params: [consumer === "forth" ? (data.n ?? 0) % 4 : 3 - ((data.n ?? 0) % 4)],
      }),
    });
  }
  await house.start();
  await house.publish(...Array.from({ length: 100 }, (_, n) => numbered(n)));
  await house.observer.until("consumer.processed", 200);
  expect(await house.rows("select sum(taken)::int as taken from stock")).toEqual([{ taken: 200 }]);
  expect(house.observer.of("dead_letter.buried")).toEqual([]);
});

test("stopping waits for a lot, and leaves nothing half done", async () => {
  const house = await consumers({ stopDeadlineMs: 10_000 });
  house.registry.on(OrderPlaced, {
    ...common,
    statement: ({ id }) => ({
      text: "insert into effect (consumer, id, note) select 'billing', $1::text, pg_sleep(0.02)::text from fresh",
      params: [id],
    }),
  });
  await house.start();
  await house.publish(...Array.from({ length: 30 }, (_, n) => numbered(n)));
  await house.observer.until("consumer.processed");
  await house.stop();
  const [{ seen } = { seen: -1 }] = await house.rows(
    "select count(*)::int as seen from sagabox.consumer_inbox",
  );
  expect(await house.effects()).toHaveLength(Number(seen));
  expect(house.observer.of("consumer.processed")).toHaveLength(Number(seen));
});

test("a parameter that cannot be written takes no neighbour with it, and leaves every connection as it was", async () => {
  const house = await consumers();
  house.registry.on(OrderPlaced, {
    ...common,
    retry: { ...quick, maxAttempts: 3 },
    statement: ({ id, data }) => ({
      text: "insert into effect (consumer, id, note) select 'billing', $1::text, $2::text from fresh",
      params: [id, (data.n === 23 ? { amount: 1n } : "fine") as string],
    }),
  });
  await house.start();
  await house.publish(...Array.from({ length: 20 }, (_, n) => numbered(n)));
  await house.observer.until("consumer.processed", 20);
  await house.publish(...Array.from({ length: 20 }, (_, n) => numbered(20 + n)));
  await house.observer.until("dead_letter.buried");
  await house.observer.until("consumer.processed", 39);
  expect(await house.deadLetters()).toMatchObject([{ messageId: "m23" }]);
  expect(await house.effects()).toHaveLength(39);
  expect(house.observer.of("consumer.duplicate")).toEqual([]);
  expect(new Set(house.observer.of("consumer.retried").map(({ id }) => id))).toEqual(new Set(["m23"]));
});

test("stopping gives back what a lot that failed meanwhile leaves to be done", async () => {
  const house = await consumers({ stopDeadlineMs: 10_000 });
  house.registry.on(OrderPlaced, {
    ...common,
    statement: ({ id, data }) => ({
      text: "insert into effect (consumer, id) select 'billing', $1::text from fresh, pg_sleep(0.1) where 1 / $2::integer = 0",
      params: [id, 4 - (data.n ?? 0)],
    }),
  });
  await house.start();
  await house.publish(...Array.from({ length: 5 }, (_, n) => numbered(n, n < 2 ? "k" : null)));
  while (
    (
      await house.rows(
        "select 1 from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()",
      )
    ).length === 0
  );
  await house.stop();
  expect(await house.effects()).toEqual([]);
  expect(house.transport.backlog("billing")).toBe(5);
  expect(house.observer.of("consumer.retried")).toEqual([]);
});
