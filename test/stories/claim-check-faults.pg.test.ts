import { readFile, rm, truncate, writeFile } from "node:fs/promises";
import { createBus } from "sagabox";
import { fileStore, s3Store, storeFull, type BlobStore } from "sagabox/claim-check";
import { expect, onTestFinished, test } from "vitest";
import { Drawn, large } from "../support/stores/payload-contracts.ts";
import { filesIn, payloadHarness, temporaryFolder } from "../support/stores/payload-harness.ts";
import { s3Credentials, startS3Server } from "../support/stores/s3-server.ts";
import { Wire } from "../support/wire.ts";

/** Publishes one large message into a folder, and returns its file before it is read. */
async function publishOne() {
  const folder = await temporaryFolder();
  const harness = await payloadHarness({ claimCheck: { store: fileStore({ folder }) } });
  const got: string[] = [];
  harness.bus.on(Drawn, { consumer: "archive" }, ({ data }) => void got.push(data.text));
  await harness.bus.transaction((tx) => tx.publish(Drawn, large()));
  const [file = ""] = await filesIn(folder);
  return { ...harness, folder, file, got };
}

test.each([
  [
    "a flipped bit",
    "CLAIM_CORRUPT",
    async (file: string) => {
      const bytes = await readFile(file);
      bytes[777] = (bytes[777] ?? 0) ^ 1;
      await writeFile(file, bytes);
    },
  ],
  ["a lost end", "CLAIM_CORRUPT", (file: string) => truncate(file, 1_000)],
  ["too much", "CLAIM_CORRUPT", async (file: string) => writeFile(file, `${await readFile(file, "utf8")} `)],
  ["a missing object", "CLAIM_MISSING", (file: string) => rm(file)],
])("C-05: %s is found before the handler sees anything, and is given up at once", async (_, code, harm) => {
  const { bus, file, got, observer } = await publishOne();
  await harm(file);
  await bus.run();
  await observer.until("dead_letter.buried");
  expect(got).toEqual([]);
  expect(await bus.deadLetters.list()).toMatchObject([{ errorType: code, reason: "rejected", attempts: 1 }]);
  expect(observer.of("payload.failed")).toMatchObject([{ store: "files", doing: "fetching", code }]);
});

test("C-04: what came back to its place can be replayed", async () => {
  const { bus, file, got, observer } = await publishOne();
  const bytes = await readFile(file);
  await rm(file);
  await bus.run();
  await observer.until("dead_letter.buried");
  await writeFile(file, bytes);
  const [letter] = await bus.deadLetters.list();
  await bus.deadLetters.replay(letter?.id ?? "");
  await observer.until("consumer.processed");
  expect(got).toEqual([large().text]);
});

test("a disk that is full fails the publish, so that the transaction decides", async () => {
  const full: BlobStore = {
    id: "full",
    put: () => Promise.reject(storeFull("full", new Error("ENOSPC"))),
    get: () => Promise.reject(new Error("unused")),
    delete: () => Promise.resolve(),
    list: () => Promise.resolve({ blobs: [], next: undefined }),
  };
  const { bus, counts } = await payloadHarness({ claimCheck: { store: full } });
  const publish = bus.transaction((tx) => tx.publish(Drawn, large()));
  await expect(publish).rejects.toMatchObject({ code: "CLAIM_STORE_FULL" });
  expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
});

test("a reference to a store that is not configured is a dead letter at once, and is read once the store is configured", async () => {
  const folder = await temporaryFolder();
  const { bus, open, observer } = await payloadHarness({
    claimCheck: { store: fileStore({ folder, id: "theirs" }) },
  });
  await bus.transaction((tx) => tx.publish(Drawn, large()));
  const stranger = open({ claimCheck: {} });
  stranger.on(Drawn, { consumer: "archive" }, () => undefined);
  await stranger.run();
  await observer.until("dead_letter.buried");
  const [letter] = await stranger.deadLetters.list();
  expect(letter).toMatchObject({ errorType: "CLAIM_STORE_UNKNOWN" });
  await stranger.stop();
  const friend = open({ claimCheck: { stores: [fileStore({ folder, id: "theirs" })] } });
  friend.on(Drawn, { consumer: "archive" }, () => undefined);
  await friend.run();
  await friend.deadLetters.replay(letter?.id ?? "");
  await observer.until("consumer.processed");
});

async function overS3() {
  const server = await startS3Server();
  const wire = await Wire.to(server.endpoint);
  onTestFinished(async () => {
    await wire.close();
    await server.stop();
  });
  const store = s3Store({
    bucket: server.bucket,
    endpoint: `http://127.0.0.1:${wire.port}`,
    region: "us-east-1",
    credentials: s3Credentials,
  });
  const harness = await payloadHarness({ claimCheck: { store, timeout: 5_000 } });
  return { ...harness, wire, server };
}

test("C-06: with S3 away a publish fails and changes nothing; with S3 back publishing continues", async () => {
  const { bus, wire, counts, observer } = await overS3();
  const got: number[] = [];
  bus.on(Drawn, { consumer: "archive" }, ({ data }) => void got.push(data.text.length));
  await bus.run();
  wire.sever();
  await expect(bus.transaction((tx) => tx.publish(Drawn, large()))).rejects.toMatchObject({
    code: "CLAIM_STORE_UNAVAILABLE",
  });
  expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
  wire.heal();
  await bus.transaction((tx) => tx.publish(Drawn, large()));
  await observer.until("consumer.processed");
  expect(got).toEqual([1_200_000]);
});

test.each(["sever", "swallow"] as const)(
  "C-06: S3 that is lost before reading (%s) costs the message no attempt and other messages no time",
  async (how) => {
    const { bus, wire, observer } = await overS3();
    await bus.transaction((tx) => tx.publish(Drawn, large()));
    wire[how]();
    const got: number[] = [];
    bus.on(Drawn, { consumer: "archive", retry: { maxAttempts: 1 } }, ({ data }) => void got.push(data.n));
    await bus.run();
    await observer.until("consumer.retried");
    const began = Date.now();
    await bus.transaction((tx) => tx.publish(Drawn, { n: 2, text: "small" }));
    await observer.until("consumer.processed");
    expect(got).toEqual([2]);
    expect(Date.now() - began).toBeLessThan(4_500);
    wire.heal();
    wire.cut();
    await observer.until("consumer.processed", 2);
    expect(got).toEqual([2, 1]);
    expect(observer.of("consumer.retried").every(({ countsAsAttempt }) => !countsAsAttempt)).toBe(true);
    expect(await bus.deadLetters.list()).toEqual([]);
  },
);

test("S3 that is lost in the middle of reading is no corruption: it is read again", async () => {
  const { bus, wire, observer } = await overS3();
  const file = await bus.attach(Buffer.alloc(12_000_000, 7));
  const stream = bus.open(file);
  let seen = 0;
  await expect(async () => {
    for await (const piece of stream as AsyncIterable<Buffer>) {
      seen += piece.byteLength;
      wire.cut();
    }
  }).rejects.toMatchObject({ code: "CLAIM_STORE_UNAVAILABLE" });
  expect(seen).toBeLessThan(12_000_000);
  expect(observer.of("payload.failed").map(({ code }) => code)).toEqual(["CLAIM_STORE_UNAVAILABLE"]);
  let again = 0;
  for await (const piece of bus.open(file) as AsyncIterable<Buffer>) again += piece.byteLength;
  expect(again).toBe(12_000_000);
});

test("a service with a database of its own does not look for payloads of another database in its own", async () => {
  const { bus, pool } = await payloadHarness();
  const other = await payloadHarness();
  await other.pool.query("update sagabox.blob_home set id = 'ffffffffffff'"); // tests copy one database
  await bus.transaction((tx) => tx.publish(Drawn, large()));
  const { rows } = await pool.query<{ data: string }>("select data from sagabox.message");
  const theirs = createBus({ service: "other", database: other.pool, log: false });
  onTestFinished(async () => void (await theirs.stop()));
  const claim = (JSON.parse(rows[0]?.data ?? "{}") as { $claim: object }).$claim;
  const stream = theirs.open({ $attachment: { ...claim, contentType: "text/plain" } } as never);
  await expect(async () => {
    for await (const piece of stream) expect(piece).toBeUndefined();
  }).rejects.toMatchObject({ code: "CLAIM_STORE_UNKNOWN" });
});
