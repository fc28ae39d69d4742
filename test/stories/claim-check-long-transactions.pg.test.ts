import postgres from "postgres";
import type { Attachment } from "sagabox";
import { attachment, command } from "sagabox";
import { fileStore, postgresStore, type BlobStore } from "sagabox/claim-check";
import { buffer } from "node:stream/consumers";
import { expect, onTestFinished, test } from "vitest";
import { Drawn, large } from "../support/stores/payload-contracts.ts";
import { filesIn, payloadHarness, temporaryFolder } from "../support/stores/payload-harness.ts";

const Sent = command("file.sent.late", { schema: attachment() });

/** Files in a folder, each listed as two days old on every day. */
async function agedFiles(): Promise<{ store: BlobStore; folder: string }> {
  const folder = await temporaryFolder();
  const files = fileStore({ folder });
  const keys = new Set<string>();
  const storedAt = new Date(Date.now() - 48 * 3_600_000);
  const store: BlobStore = {
    id: files.id,
    put: (key, bytes, signal) => {
      keys.add(key);
      return files.put(key, bytes, signal);
    },
    get: (key, signal) => files.get(key, signal),
    delete: async (gone, signal) => {
      await files.delete(gone, signal);
      for (const key of gone) keys.delete(key);
    },
    list: async () => ({ blobs: [...keys].map((key) => ({ key, storedAt })), next: undefined }),
  };
  return { store, folder };
}

async function agedHarness() {
  const { store, folder } = await agedFiles();
  const harness = await payloadHarness({ claimCheck: { store, grace: "1h" } });
  const countReceived = (): Promise<number> =>
    new Promise((resolve) => {
      harness.bus.on(Drawn, { consumer: "archive" }, ({ data }) => resolve(data.text.length));
      void harness.bus.run();
    });
  return { ...harness, folder, received: countReceived };
}

test("a bus.transaction that is open for longer than the grace keeps its payload", async () => {
  const { bus, folder, received } = await agedHarness();
  await bus.transaction(async (tx) => {
    await tx.publish(Drawn, large());
    expect(await bus.payloads.collect()).toEqual({ unneeded: 0, orphaned: 0, finished: true });
  });
  expect(await filesIn(folder)).toHaveLength(1);
  expect(await received()).toBe(large().text.length);
});

test("a caller's own pg transaction that is open for longer than the grace keeps its payload", async () => {
  const { bus, pool, received } = await agedHarness();
  const client = await pool.connect();
  try {
    await client.query("begin");
    await bus.publish(client, Drawn, large());
    expect(await bus.payloads.collect()).toMatchObject({ orphaned: 0, finished: true });
    await client.query("commit");
  } finally {
    client.release();
  }
  expect(await received()).toBe(large().text.length);
});

test("a caller's own postgres.js transaction that is open for longer than the grace keeps its payload", async () => {
  const { bus, url, received } = await agedHarness();
  const sql = postgres(url, { max: 1 });
  onTestFinished(() => sql.end());
  await sql.begin(async (tx) => {
    await bus.publish(tx, Drawn, large());
    expect(await bus.payloads.collect()).toMatchObject({ orphaned: 0, finished: true });
  });
  expect(await received()).toBe(large().text.length);
});

test("the collector deletes other orphans while a transaction is open, and that one's after its rollback", async () => {
  const { bus, folder, pool } = await agedHarness();
  const rolledBack = (work: () => Promise<void>) =>
    bus.transaction(async (tx) => {
      await tx.publish(Drawn, large(1, 1_100_000));
      await work();
      throw new Error("no");
    });
  for (let n = 0; n < 9; n++) await expect(rolledBack(async () => undefined)).rejects.toThrow("no");
  const open = rolledBack(async () => {
    expect(await bus.payloads.collect()).toEqual({ unneeded: 0, orphaned: 9, finished: true });
    // A week passes, round by round: the day of the open transaction is looked through again in each of them.
    await pool.query("update sagabox.blob_home set made_on = made_on - 30");
    expect(await bus.payloads.collect()).toMatchObject({ orphaned: 0, finished: true });
  });
  await expect(open).rejects.toThrow("no");
  expect(await bus.payloads.collect()).toEqual({ unneeded: 0, orphaned: 1, finished: true });
  expect(await filesIn(folder)).toEqual([]);
});

test("a store is not marked as swept beyond a day on which a transaction is still open", async () => {
  const { bus, pool } = await agedHarness();
  await pool.query("update sagabox.blob_home set made_on = made_on - 30");
  const sweptTo = async () =>
    (
      await pool.query<{ early: boolean }>(
        "select swept_to <= made_on as early from sagabox.blob_sweep, sagabox.blob_home",
      )
    ).rows;
  await bus.transaction(async (tx) => {
    await tx.publish(Drawn, large());
    await bus.payloads.collect();
    expect(await sweptTo()).toEqual([{ early: true }]);
  });
  await bus.payloads.collect();
  expect(await sweptTo()).toEqual([{ early: false }]);
});

test("a transaction that uploads while the collector looks keeps its payload", async () => {
  const { store } = await agedFiles();
  let during: () => Promise<unknown> = async () => undefined;
  const slow: BlobStore = {
    ...store,
    put: async (key, bytes, signal) => {
      await store.put(key, bytes, signal);
      await during();
    },
  };
  const { bus, observer } = await payloadHarness({ claimCheck: { store: slow, grace: "1h" } });
  during = () => bus.payloads.collect();
  await bus.transaction((tx) => tx.publish(Drawn, large()));
  bus.on(Drawn, { consumer: "archive" }, () => undefined);
  await bus.run();
  await observer.until("consumer.processed");
});

const stores: readonly (readonly [string, () => Promise<BlobStore>])[] = [
  ["the database", async () => postgresStore()],
  ["files", async () => (await agedFiles()).store],
];

test.each(stores)("an upload to %s that lasts longer than the grace is complete", async (_, open) => {
  const { bus, pool } = await payloadHarness({ claimCheck: { store: await open(), grace: "1h" } });
  const slow = async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.alloc(300_000, 1);
    await pool.query("update sagabox.blob_home set made_on = made_on - 2");
    await pool.query("update sagabox.blob_chunk set stored_at = stored_at - interval '2 hours'");
    expect(await bus.payloads.collect()).toMatchObject({ orphaned: 0, unneeded: 0 });
    yield Buffer.alloc(300_000, 2);
  };
  const file = await bus.attach(slow());
  expect((await buffer(bus.open(file))).byteLength).toBe(600_000);
});

test.each(stores)("an upload to %s that stood still for the grace is refused, not cut", async (_, open) => {
  const { bus, pool, counts } = await payloadHarness({ claimCheck: { store: await open(), grace: "1h" } });
  const stalledSource = async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.alloc(300_000, 1);
    await pool.query("update sagabox.blob set stored_at = stored_at - interval '2 hours'");
    expect(await bus.payloads.collect()).toMatchObject({ unneeded: 1 });
    yield Buffer.alloc(300_000, 2);
  };
  await expect(bus.attach(stalledSource())).rejects.toMatchObject({
    code: "CLAIM_MISSING",
    message: expect.stringMatching(/grace/) as string,
  });
  expect(await counts()).toMatchObject({ blob: 0, use: 0 });
});

test("a message that was scheduled far ahead counts its retention from when it is due", async () => {
  const { bus, pool, age } = await payloadHarness();
  const file: Attachment = await bus.attach(Buffer.from("report"));
  await bus.transaction(async (tx) => {
    await tx.publish(Sent, file, { delay: "60d" });
    await tx.publish(Drawn, large(), { at: new Date(Date.now() + 60 * 86_400_000) });
  });
  await age(70); // it was due ten days ago, and all that is left of it is a dead letter in another service
  await pool.query("delete from sagabox.scheduled; delete from sagabox.message");
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 0 });
  await age(40);
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 2 });
});
