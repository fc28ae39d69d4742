import pg from "pg";
import { command, event, saga } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { Drawn, large } from "../support/stores/payload-contracts.ts";
import { payloadHarness } from "../support/stores/payload-harness.ts";

test("C5: the threshold decides what leaves its message, and a consumer sees no difference", async () => {
  const { bus, pool, observer, counts } = await payloadHarness({ claimCheck: { threshold: 10_000 } });
  const seen = new Map<number, string>();
  bus.on(Drawn, { consumer: "archive" }, ({ data }) => void seen.set(data.n, data.text));
  await bus.run();
  const inline = { n: 1, text: "x".repeat(9_000) };
  const referenced = { n: 2, text: "ä".repeat(9_000) }; // as many letters, twice the bytes
  await bus.transaction(async (tx) => {
    await tx.publish(Drawn, inline);
    await tx.publish(Drawn, referenced);
  });
  await observer.until("consumer.processed", 2);
  expect(seen).toEqual(
    new Map([
      [1, inline.text],
      [2, referenced.text],
    ]),
  );
  const { rows } = await pool.query<{ headers: string; bytes: number }>(
    "select headers, length(data) as bytes from sagabox.message order by seq",
  );
  expect(rows).toMatchObject([{ headers: "{}" }, { headers: '{"sagabox-claim":"1"}' }]);
  expect(rows[1]?.bytes).toBeLessThan(300);
  expect(await counts()).toEqual({ blob: 1, use: 1, chunk: 1 });
});

test("C-02: a transaction that rolls back leaves nothing in the database, whichever driver opened it", async () => {
  const { bus, pool, counts } = await payloadHarness();
  await expect(
    bus.transaction(async (tx) => {
      await tx.publish(Drawn, large());
      throw new Error("changed my mind");
    }),
  ).rejects.toThrow("changed my mind");
  const client = new pg.Client({
    connectionString: (pool.options as { connectionString: string }).connectionString,
  });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query("begin");
  await bus.publish(client, Drawn, large());
  await client.query("rollback");
  expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
  await client.query("begin");
  await bus.publish(client, Drawn, large());
  await client.query("savepoint here");
  await bus.publish(client, Drawn, large(2));
  await client.query("rollback to savepoint here");
  await client.query("commit");
  expect(await counts()).toEqual({ blob: 1, use: 1, chunk: 5 });
});

test("C-07: three consumers share one blob, and all of them get it", async () => {
  const Shown = event("plan.shown", { schema: z.object({ n: z.number(), text: z.string() }) });
  const { bus, observer, counts } = await payloadHarness();
  const got: string[] = [];
  for (const consumer of ["a", "b", "c"]) {
    bus.on(Shown, { consumer }, ({ data }) => void got.push(`${consumer}${data.text.length}`));
  }
  await bus.run();
  await bus.transaction((tx) => tx.publish(Shown, large()));
  await observer.until("consumer.processed", 3);
  expect(got.toSorted()).toEqual(["a1200000", "b1200000", "c1200000"]);
  expect(await counts()).toMatchObject({ blob: 1, use: 1 });
});

test("a batch handler gets small and large ones together, in order", async () => {
  const { bus, observer } = await payloadHarness();
  const got: number[] = [];
  bus.onBatch(
    Drawn,
    { consumer: "archive" },
    (messages) => void got.push(...messages.map(({ data }) => data.n)),
  );
  await bus.transaction(async (tx) => {
    for (let n = 1; n <= 6; n++) {
      await tx.publish(Drawn, n % 2 === 0 ? large(n) : { n, text: "small" }, { key: "one" });
    }
  });
  await bus.run();
  await observer.until("consumer.processed", 6);
  expect(got).toEqual([1, 2, 3, 4, 5, 6]);
});

test("a dead letter, its replay, a republish and a schedule all carry the reference", async () => {
  const { bus, observer } = await payloadHarness();
  let healthy = false;
  const got: number[] = [];
  bus.on(Drawn, { consumer: "archive", retry: { maxAttempts: 1 } }, ({ data }) => {
    if (!healthy) throw new Error("not now");
    got.push(data.text.length);
  });
  await bus.run();
  const from = new Date(Date.now() - 60_000);
  await bus.transaction((tx) => tx.publish(Drawn, large(), { delay: 20 }));
  await observer.until("dead_letter.buried");
  const [letter] = await bus.deadLetters.list();
  const shown = await bus.deadLetters.show(letter?.id ?? "");
  expect(shown.original_message.data.length).toBeLessThan(300);
  healthy = true;
  await bus.deadLetters.replay(letter?.id ?? "");
  await observer.until("consumer.processed");
  expect(got).toEqual([1_200_000]);
  expect(await bus.republish({ from, to: new Date() })).toMatchObject({ count: 1 });
  await observer.until("consumer.duplicate");
});

test("a request with a large command finds its consumer and gets its answer", async () => {
  const Measure = command("measure", {
    schema: z.object({ text: z.string() }),
    reply: z.object({ length: z.number() }),
  });
  const { bus, counts } = await payloadHarness();
  bus.on(Measure, { consumer: "measuring" }, ({ data }) => ({ length: data.text.length }));
  await bus.run();
  const answer = await bus.request(Measure, { text: "y".repeat(2_000_000) }, { timeout: "20s" });
  expect(answer).toEqual({ length: 2_000_000 });
  expect(await counts()).toMatchObject({ blob: 1, use: 1 });
});

test("a saga can send a command that is too large for a message", async () => {
  const Print = command("print", {
    schema: z.object({ text: z.string() }),
    reply: z.object({ pages: z.number() }),
  });
  const Book = saga("book", { version: 1, input: z.object({ id: z.string() }), key: ({ id }) => id })
    .send("print", Print, () => ({ text: "z".repeat(1_500_000) }))
    .noUndo("printed is printed");
  const { bus, pool, observer } = await payloadHarness();
  bus.on(Print, { consumer: "printing" }, ({ data }) => ({ pages: data.text.length / 1_000 }));
  bus.register(Book);
  await bus.run();
  await bus.transaction((tx) => bus.start(tx, Book, { id: "b1" }));
  await expect
    .poll(async () => (await pool.query("select status from sagabox.saga_instance")).rows, {
      timeout: 15_000,
    })
    .toEqual([{ status: "completed" }]);
  expect(observer.of("payload.fetched")).toMatchObject([{ as: "payload", bytes: 1_500_011 }]);
});

test("what is larger than the claim check takes is refused before anything is written", async () => {
  const { bus, counts } = await payloadHarness({ claimCheck: { maxBytes: 2_000_000 } });
  await expect(bus.transaction((tx) => tx.publish(Drawn, large(1, 2_100_000)))).rejects.toMatchObject({
    code: "PAYLOAD_TOO_LARGE",
  });
  expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
});

test("without a claim check a large payload is refused with a way out, and a foreign reference is a dead letter", async () => {
  const { bus, open, observer } = await payloadHarness();
  const plain = open({ claimCheck: false });
  await expect(plain.transaction((tx) => tx.publish(Drawn, large()))).rejects.toThrow(/claimCheck/);
  await expect(plain.attach(Buffer.from("x"))).rejects.toMatchObject({ code: "CLAIM_STORE_UNKNOWN" });
  await expect(plain.payloads.collect()).rejects.toMatchObject({ code: "CLAIM_STORE_UNKNOWN" });
  await bus.transaction((tx) => tx.publish(Drawn, large()));
  plain.on(Drawn, { consumer: "archive" }, () => undefined);
  await plain.run();
  await observer.until("dead_letter.buried");
  expect(await plain.deadLetters.list()).toMatchObject([{ errorType: "CLAIM_STORE_UNKNOWN", attempts: 1 }]);
});
