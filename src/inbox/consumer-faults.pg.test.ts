import { Readable } from "node:stream";
import { expect, test } from "vitest";
import { z } from "zod";
import { currentMessageContext, event } from "../message/index.ts";
import { defineStatement } from "../storage/index.ts";
import { consumers } from "../../test/support/consumers.ts";
import { aMessage } from "../../test/support/messages.ts";
import type { HandlerContext, Received } from "./handler.ts";

const OrderPlaced = event("order.placed", { schema: z.object({ n: z.number().optional() }) });
const quick = { firstDelay: 1, maxDelay: 2 } as const;

const record = async (message: Received, { tx, consumer }: HandlerContext): Promise<void> => {
  await tx.query("insert into effect (consumer, id) values ($1, $2)", [consumer, message.id]);
};

test("I-11c: through retries one key keeps its order, and other keys do not wait for it", async () => {
  const house = await consumers();
  const failures = new Map<string, number>();
  house.registry.on(
    OrderPlaced,
    { consumer: "billing", retry: { ...quick, maxAttempts: 50 } },
    async (message, context) => {
      const failed = failures.get(message.id) ?? 0;
      failures.set(message.id, failed + 1);
      if (message.headers["fails"] !== undefined && failed < Number(message.headers["fails"]))
        throw new Error("not yet");
      await record(message, context);
    },
  );
  await house.start();
  const keys = ["a", "b", "c", "d"];
  const messages = Array.from({ length: 25 }, (_, n) =>
    keys.map((key) =>
      aMessage({ id: `${key}-${n}`, key, headers: key === "a" && n % 4 === 0 ? { fails: "3" } : {} }),
    ),
  ).flat();
  await house.publish(...messages);
  await house.observer.until("consumer.processed", 100);
  const ids = (await house.effects()).map((effect) => effect.id);
  for (const key of keys) {
    const ofKey = ids.filter((id) => id.startsWith(`${key}-`));
    expect(ofKey).toEqual(Array.from({ length: 25 }, (_, n) => `${key}-${n}`));
  }
});

test("R-03: while the database is away nothing is charged and nothing is buried; then all is handled once", async () => {
  const house = await consumers();
  let running = 0;
  house.registry.on(
    OrderPlaced,
    { consumer: "billing", retry: { ...quick, maxAttempts: 2 } },
    async (message, context) => {
      running += 1;
      if (running <= 20) await context.tx.query("select pg_terminate_backend(pg_backend_pid())");
      await record(message, context);
    },
  );
  await house.start();
  await house.publish(...Array.from({ length: 10 }, () => aMessage()));
  await house.observer.until("consumer.processed", 10);
  expect(await house.effects()).toHaveLength(10);
  expect(await house.deadLetters()).toEqual([]);
  expect(house.observer.of("consumer.retried").every((retry) => !retry.charged)).toBe(true);
});

test("I-16c: a hundred handlers that never end do not eat the pool", async () => {
  const house = await consumers({ poolSize: 4, maxTransactions: 3 });
  const aborted: boolean[] = [];
  const options = { consumer: "stuck", deadline: 30, retry: { maxAttempts: 1 }, concurrency: 50 } as const;
  house.registry.on(OrderPlaced, options, (_message, { signal }) => {
    signal.addEventListener("abort", () => aborted.push(true));
    return new Promise<void>(() => undefined);
  });
  await house.start();
  await house.publish(...Array.from({ length: 100 }, () => aMessage()));
  const buried = await house.observer.until("dead_letter.buried", 100);
  expect(new Set(buried.map((letter) => letter.reason))).toEqual(new Set(["exhausted"]));
  expect(aborted).toHaveLength(100);
  expect(house.observer.of("consumer.stuck")).toHaveLength(100);
  expect(await house.rows("select count(*)::int as seen from sagabox.consumer_inbox")).toEqual([{ seen: 0 }]);
  expect((await house.deadLetters())[0]).toMatchObject({ errorType: "HANDLER_TIMEOUT" });
});

test("X-01: a pool of four, sixteen handlers that each want a connection of their own beside it: all make progress", async () => {
  const house = await consumers({ poolSize: 4, maxTransactions: 2 });
  house.registry.on(OrderPlaced, { consumer: "greedy", concurrency: 16 }, async (message, context) => {
    await house.pool.query("select 1");
    await record(message, context);
  });
  await house.start();
  await house.publish(...Array.from({ length: 64 }, () => aMessage()));
  await house.observer.until("consumer.processed", 64);
  expect(await house.effects()).toHaveLength(64);
});

test("rule 12: a handler that swallows an SQL error has not succeeded", async () => {
  const house = await consumers();
  house.registry.on(
    OrderPlaced,
    { consumer: "careless", retry: { maxAttempts: 1 } },
    async (message, context) => {
      await record(message, context);
      await context.tx.query("select 1/0").catch(() => undefined);
    },
  );
  await house.start();
  await house.publish(aMessage());
  expect(await house.observer.until("dead_letter.buried")).toHaveLength(1);
  expect(await house.effects()).toEqual([]);
});

test("D8: the idempotency key is the same for each attempt, and the context of the message is set", async () => {
  const house = await consumers();
  const keys: string[] = [];
  house.registry.on(OrderPlaced, { consumer: "mail", retry: quick }, (message, context) => {
    keys.push(context.idempotencyKey);
    expect(currentMessageContext()).toMatchObject({ messageId: "a", correlationId: message.correlationId });
    if (context.attempt === 1) throw new Error("again");
  });
  await house.start();
  await house.publish(aMessage({ id: "a" }));
  await house.observer.until("consumer.processed");
  expect(keys).toEqual(["mail:a", "mail:a"]);
});

test("what a handler publishes commits with its effect; told only after the commit", async () => {
  const committed: number[] = [];
  const note = defineStatement(
    "test.note",
    "insert into effect (consumer, id, note) values ('outbox', $1::text, 'published')",
  );
  const house = await consumers({
    openScope: () => {
      const written: string[] = [];
      return {
        publish: async (contract) => ({ id: written[written.push(contract.name) - 1] ?? "" }),
        waitForPending: () => Promise.resolve(),
        lastStatements: () => written.map((name) => ({ statement: note, params: [name] })),
        open: () => Readable.from([]),
        handleCommit: () => void committed.push(written.length),
      };
    },
  });
  house.registry.on(OrderPlaced, { consumer: "billing", retry: quick }, async (_message, context) => {
    await context.publish(OrderPlaced, {});
    if (context.attempt === 1) throw new Error("after the publish");
  });
  await house.start();
  await house.publish(aMessage());
  await house.observer.until("consumer.processed");
  expect(await house.effects()).toEqual([{ consumer: "outbox", id: "order.placed", note: "published" }]);
  expect(committed).toContain(1);
});

test("where the transport lives in the database, the acknowledgement commits with the effect", async () => {
  const ackStatement = defineStatement(
    "test.ack",
    "insert into effect (consumer, note) values ('queue', 'acknowledged')",
  );
  const house = await consumers({ transport: { ackStatement } });
  house.registry.on(
    OrderPlaced,
    { consumer: "billing", retry: { maxAttempts: 1 } },
    async (message, context) => {
      if (message.id === "bad") throw new Error("no");
      await record(message, context);
    },
  );
  await house.start();
  await house.publish(aMessage({ id: "good" }), aMessage({ id: "bad" }));
  await house.observer.until("consumer.processed");
  await house.observer.until("dead_letter.buried");
  await house.stop();
  const pairs = await house.rows(
    `select (select count(*)::int from effect a join effect b on a.xmin = b.xmin and a.consumer = 'billing' and b.consumer = 'queue') as handled,
            (select count(*)::int from effect a join sagabox.dead_letter d on d.xmin = a.xmin) as buried`,
  );
  expect(pairs).toEqual([{ handled: 1, buried: 1 }]);
  expect(house.transport.backlog("billing")).toBe(0);
});

test("a message taken over by another member is finished by that member only", async () => {
  const house = await consumers();
  let runs = 0;
  let taken: (() => void) | undefined;
  const first = new Promise<void>((resolve) => (taken = resolve));
  house.registry.on(OrderPlaced, { consumer: "billing" }, async (message, context) => {
    runs += 1;
    await record(message, context);
    if (runs === 1) {
      taken?.();
      await new Promise<void>((resolve) => context.signal.addEventListener("abort", () => resolve()));
    }
  });
  await house.start();
  await house.publish(aMessage({ key: "k" }));
  await first;
  house.transport.revokeDeliveries("billing");
  await house.observer.until("consumer.processed");
  expect(runs).toBe(2);
  expect(await house.effects()).toHaveLength(1);
});

test("X-05: a stop finishes what runs, gives back what waits, and repeats nothing", async () => {
  const house = await consumers();
  let release: (() => void) | undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  let started = 0;
  house.registry.on(OrderPlaced, { consumer: "billing", concurrency: 2 }, async (message, context) => {
    started += 1;
    if (started <= 2) await held;
    await record(message, context);
  });
  await house.start();
  await house.publish(...Array.from({ length: 10 }, () => aMessage()));
  await expect.poll(() => started).toBe(2);
  const stopping = house.stop();
  release?.();
  await stopping;
  expect(await house.effects()).toHaveLength(2);
  expect(house.transport.backlog("billing")).toBe(8);
  expect(await house.rows("select 1 from sagabox.running")).toEqual([]);
  await house.start();
  await house.observer.until("consumer.processed", 10);
  expect(house.observer.of("consumer.duplicate")).toEqual([]);
  expect(await house.effects()).toHaveLength(10);
});

test("a stop does not wait for ever: it cuts a handler off, says so, and gives the message back", async () => {
  const house = await consumers({ stopDeadlineMs: 50 });
  let started = 0;
  house.registry.on(OrderPlaced, { consumer: "billing" }, async (message, context) => {
    started += 1;
    if (started > 1) return;
    await record(message, context);
    await new Promise<void>(() => undefined);
  });
  await house.start();
  await house.publish(aMessage());
  await expect.poll(() => started).toBe(1);
  await expect(house.stop()).rejects.toMatchObject({ code: "SHUTDOWN_TIMEOUT" });
  expect(await house.effects()).toEqual([]);
  expect(house.transport.backlog("billing")).toBe(1);
  await house.start();
  await house.observer.until("consumer.processed");
  expect(house.observer.of("consumer.retried")).toEqual([]);
});

test("a broker that is away when a message is settled gets the acknowledgement later", async () => {
  const house = await consumers();
  house.registry.on(OrderPlaced, { consumer: "billing" }, async (message, context) => {
    await record(message, context);
    house.transport.goDown();
  });
  await house.start();
  await house.publish(aMessage());
  await house.observer.until("storage.failed");
  expect(house.transport.backlog("billing")).toBe(1);
  house.transport.comeUp();
  await expect.poll(() => house.transport.backlog("billing")).toBe(0);
  expect(await house.effects()).toHaveLength(1);
});

test.each([{}, { batch: { size: 4 } }])(
  "a classifier that throws ends no process and keeps no message (%o)",
  async (how) => {
    const house = await consumers();
    const classify = (error: unknown) =>
      (error as { code: string }).code.startsWith("23") ? ("permanent" as const) : undefined;
    const common = { consumer: "billing", retry: { ...quick, maxAttempts: 2 }, classify };
    house.registry.on(OrderPlaced, { ...common, ...how }, async (message, context) => {
      if (message.id === "bad") throw new Error("without a code");
      await record(message, context);
    });
    await house.start();
    await house.publish(...["bad", "behind", "last"].map((id) => aMessage({ id, key: "k" })));
    await house.observer.until("consumer.processed", 2);
    expect(await house.deadLetters()).toMatchObject([{ messageId: "bad", reason: "exhausted" }]);
  },
);
