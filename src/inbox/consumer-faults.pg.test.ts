import { Readable } from "node:stream";
import { expect, test } from "vitest";
import { z } from "zod";
import { currentMessageContext, event } from "../message/index.ts";
import { defineStatement } from "../storage/index.ts";
import { consumers } from "../../test/support/consumers.ts";
import { aMessage } from "../../test/support/messages.ts";
import type { BusTransaction, HandlerContext, Received } from "./handler.ts";

const OrderPlaced = event("order.placed", { schema: z.object({ n: z.number().optional() }) });
const quick = { firstDelay: 1, maxDelay: 2 } as const;

const record = async (message: Received, { tx, consumer }: HandlerContext): Promise<void> => {
  await tx.query("insert into effect (consumer, id) values ($1, $2)", [consumer, message.id]);
};

test("I-11c: a key keeps its order through retries, and other keys do not wait for it", async () => {
  const harness = await consumers();
  const failures = new Map<string, number>();
  harness.registry.on(
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
  await harness.start();
  const keys = ["a", "b", "c", "d"];
  const messages = Array.from({ length: 25 }, (_, n) =>
    keys.map((key) =>
      aMessage({ id: `${key}-${n}`, key, headers: key === "a" && n % 4 === 0 ? { fails: "3" } : {} }),
    ),
  ).flat();
  await harness.publish(...messages);
  await harness.observer.until("consumer.processed", 100);
  const ids = (await harness.effects()).map((effect) => effect.id);
  for (const key of keys) {
    const ofKey = ids.filter((id) => id.startsWith(`${key}-`));
    expect(ofKey).toEqual(Array.from({ length: 25 }, (_, n) => `${key}-${n}`));
  }
});

test("R-03: while the database is unavailable no attempt is counted and nothing is dead-lettered; then all is handled once", async () => {
  const harness = await consumers();
  let running = 0;
  harness.registry.on(
    OrderPlaced,
    { consumer: "billing", retry: { ...quick, maxAttempts: 2 } },
    async (message, context) => {
      running += 1;
      if (running <= 20) await context.tx.query("select pg_terminate_backend(pg_backend_pid())");
      await record(message, context);
    },
  );
  await harness.start();
  await harness.publish(...Array.from({ length: 10 }, () => aMessage()));
  await harness.observer.until("consumer.processed", 10);
  expect(await harness.effects()).toHaveLength(10);
  expect(await harness.deadLetters()).toEqual([]);
  expect(harness.observer.of("consumer.retried").every((retry) => !retry.countsAsAttempt)).toBe(true);
});

test("I-16c: a hundred handlers that never end do not exhaust the pool", async () => {
  const harness = await consumers({ poolSize: 4, maxTransactions: 3 });
  const aborted: boolean[] = [];
  const options = { consumer: "stuck", deadline: 30, retry: { maxAttempts: 1 }, concurrency: 50 } as const;
  harness.registry.on(OrderPlaced, options, (_message, { signal }) => {
    signal.addEventListener("abort", () => aborted.push(true));
    return new Promise<void>(() => undefined);
  });
  await harness.start();
  await harness.publish(...Array.from({ length: 100 }, () => aMessage()));
  const buried = await harness.observer.until("dead_letter.buried", 100);
  expect(new Set(buried.map((letter) => letter.reason))).toEqual(new Set(["exhausted"]));
  expect(aborted).toHaveLength(100);
  expect(harness.observer.of("consumer.stuck")).toHaveLength(100);
  expect(await harness.rows("select count(*)::int as seen from sagabox.consumer_inbox")).toEqual([
    { seen: 0 },
  ]);
  expect((await harness.deadLetters())[0]).toMatchObject({ errorType: "HANDLER_TIMEOUT" });
});

test("X-01: a pool of four, sixteen handlers that each need another connection: all make progress", async () => {
  const harness = await consumers({ poolSize: 4, maxTransactions: 2 });
  harness.registry.on(OrderPlaced, { consumer: "greedy", concurrency: 16 }, async (message, context) => {
    await harness.pool.query("select 1");
    await record(message, context);
  });
  await harness.start();
  await harness.publish(...Array.from({ length: 64 }, () => aMessage()));
  await harness.observer.until("consumer.processed", 64);
  expect(await harness.effects()).toHaveLength(64);
});

test("rule 12: a handler that swallows an SQL error has not succeeded", async () => {
  const harness = await consumers();
  harness.registry.on(
    OrderPlaced,
    { consumer: "careless", retry: { maxAttempts: 1 } },
    async (message, context) => {
      await record(message, context);
      await context.tx.query("select 1/0").catch(() => undefined);
    },
  );
  await harness.start();
  await harness.publish(aMessage());
  expect(await harness.observer.until("dead_letter.buried")).toHaveLength(1);
  expect(await harness.effects()).toEqual([]);
});

test("D8: the idempotency key is the same for each attempt, and the context of the message is set", async () => {
  const harness = await consumers();
  const keys: string[] = [];
  harness.registry.on(OrderPlaced, { consumer: "mail", retry: quick }, (message, context) => {
    keys.push(context.idempotencyKey);
    expect(currentMessageContext()).toMatchObject({ messageId: "a", correlationId: message.correlationId });
    if (context.attempt === 1) throw new Error("again");
  });
  await harness.start();
  await harness.publish(aMessage({ id: "a" }));
  await harness.observer.until("consumer.processed");
  expect(keys).toEqual(["mail:a", "mail:a"]);
});

test("what a handler publishes commits with its effect, and is sent only after the commit", async () => {
  const committed: number[] = [];
  const note = defineStatement(
    "test.note",
    "insert into effect (consumer, id, note) values ('outbox', $1::text, 'published')",
  );
  const harness = await consumers({
    openScope: (tx) => {
      const written: string[] = [];
      const publish: BusTransaction["publish"] = async (contract) => {
        written.push(contract.name);
        return { id: contract.name, written: true };
      };
      const start = (): Promise<never> => Promise.reject(new Error("no sagas here"));
      return {
        tx: { query: tx.query.bind(tx), publish, start },
        publish,
        start,
        waitForPending: () => Promise.resolve(),
        lastStatements: () => written.map((name) => ({ statement: note, params: [name] })),
        open: () => Readable.from([]),
        handleCommit: () => void committed.push(written.length),
      };
    },
  });
  harness.registry.on(OrderPlaced, { consumer: "billing", retry: quick }, async (_message, context) => {
    await context.publish(OrderPlaced, {});
    if (context.attempt === 1) throw new Error("after the publish");
  });
  await harness.start();
  await harness.publish(aMessage());
  await harness.observer.until("consumer.processed");
  expect(await harness.effects()).toEqual([{ consumer: "outbox", id: "order.placed", note: "published" }]);
  expect(committed).toContain(1);
});

test("with a transport in the database, the acknowledgement commits with the effect", async () => {
  const ackStatement = defineStatement(
    "test.ack",
    "insert into effect (consumer, note) values ('queue', 'acknowledged')",
  );
  const harness = await consumers({ transport: { ackStatement } });
  harness.registry.on(
    OrderPlaced,
    { consumer: "billing", retry: { maxAttempts: 1 } },
    async (message, context) => {
      if (message.id === "bad") throw new Error("no");
      await record(message, context);
    },
  );
  await harness.start();
  await harness.publish(aMessage({ id: "good" }), aMessage({ id: "bad" }));
  await harness.observer.until("consumer.processed");
  await harness.observer.until("dead_letter.buried");
  await harness.stop();
  const pairs = await harness.rows(
    `select (select count(*)::int from effect a join effect b on a.xmin = b.xmin and a.consumer = 'billing' and b.consumer = 'queue') as handled,
            (select count(*)::int from effect a join sagabox.dead_letter d on d.xmin = a.xmin) as buried`,
  );
  expect(pairs).toEqual([{ handled: 1, buried: 1 }]);
  expect(harness.transport.backlog("billing")).toBe(0);
});

test("a message that another worker took over is settled by that worker only", async () => {
  const harness = await consumers();
  let runs = 0;
  let taken: (() => void) | undefined;
  const first = new Promise<void>((resolve) => (taken = resolve));
  harness.registry.on(OrderPlaced, { consumer: "billing" }, async (message, context) => {
    runs += 1;
    await record(message, context);
    if (runs === 1) {
      taken?.();
      await new Promise<void>((resolve) => context.signal.addEventListener("abort", () => resolve()));
    }
  });
  await harness.start();
  await harness.publish(aMessage({ key: "k" }));
  await first;
  harness.transport.revokeDeliveries("billing");
  await harness.observer.until("consumer.processed");
  expect(runs).toBe(2);
  expect(await harness.effects()).toHaveLength(1);
});

test("X-05: a stop waits for running handlers, returns waiting messages, and repeats nothing", async () => {
  const harness = await consumers();
  let release: (() => void) | undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  let started = 0;
  harness.registry.on(OrderPlaced, { consumer: "billing", concurrency: 2 }, async (message, context) => {
    started += 1;
    if (started <= 2) await held;
    await record(message, context);
  });
  await harness.start();
  await harness.publish(...Array.from({ length: 10 }, () => aMessage()));
  await expect.poll(() => started).toBe(2);
  const stopping = harness.stop();
  release?.();
  await stopping;
  expect(await harness.effects()).toHaveLength(2);
  expect(harness.transport.backlog("billing")).toBe(8);
  expect(await harness.rows("select 1 from sagabox.running")).toEqual([]);
  await harness.start();
  await harness.observer.until("consumer.processed", 10);
  expect(harness.observer.of("consumer.duplicate")).toEqual([]);
  expect(await harness.effects()).toHaveLength(10);
});

test("a stop has a deadline: it aborts the handler, reports it, and returns the message", async () => {
  const harness = await consumers({ stopDeadlineMs: 50 });
  let started = 0;
  harness.registry.on(OrderPlaced, { consumer: "billing" }, async (message, context) => {
    started += 1;
    if (started > 1) return;
    await record(message, context);
    await new Promise<void>(() => undefined);
  });
  await harness.start();
  await harness.publish(aMessage());
  await expect.poll(() => started).toBe(1);
  await expect(harness.stop()).rejects.toMatchObject({ code: "SHUTDOWN_TIMEOUT" });
  expect(await harness.effects()).toEqual([]);
  expect(harness.transport.backlog("billing")).toBe(1);
  await harness.start();
  await harness.observer.until("consumer.processed");
  expect(harness.observer.of("consumer.retried")).toEqual([]);
});

test("a broker that is unavailable during settlement gets the acknowledgement later", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, { consumer: "billing" }, async (message, context) => {
    await record(message, context);
    harness.transport.goDown();
  });
  await harness.start();
  await harness.publish(aMessage());
  await harness.observer.until("storage.failed");
  expect(harness.transport.backlog("billing")).toBe(1);
  harness.transport.comeUp();
  await expect.poll(() => harness.transport.backlog("billing")).toBe(0);
  expect(await harness.effects()).toHaveLength(1);
});

test.each([{}, { batch: { size: 4 } }])(
  "a classifier that throws ends no process and keeps no message (%o)",
  async (how) => {
    const harness = await consumers();
    const classify = (error: unknown) =>
      (error as { code: string }).code.startsWith("23") ? ("permanent" as const) : undefined;
    const common = { consumer: "billing", retry: { ...quick, maxAttempts: 2 }, classify };
    harness.registry.on(OrderPlaced, { ...common, ...how }, async (message, context) => {
      if (message.id === "bad") throw new Error("without a code");
      await record(message, context);
    });
    await harness.start();
    await harness.publish(...["bad", "behind", "last"].map((id) => aMessage({ id, key: "k" })));
    await harness.observer.until("consumer.processed", 2);
    expect(await harness.deadLetters()).toMatchObject([{ messageId: "bad", reason: "exhausted" }]);
  },
);
