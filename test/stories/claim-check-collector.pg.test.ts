import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { attachment, command, permanent, saga, type Attachment } from "sagabox";
import { fileStore, s3Store, type BlobStore } from "sagabox/claim-check";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { Drawn, large } from "../support/stores/payload-contracts.ts";
import { s3Credentials, startS3Server } from "../support/stores/s3-server.ts";
import {
  aDayEarlier,
  ageFiles,
  filesIn,
  payloadHarness,
  temporaryFolder,
} from "../support/stores/payload-harness.ts";

const LONG_AGO = 100;
const Sent = command("file.sent", { schema: attachment() });

/** The retention of everything else has passed: nothing but blobs is left of it. */
const forgetMessages = "delete from sagabox.queue; delete from sagabox.outbox; delete from sagabox.message";

test("nothing is collected before its retention, and nothing that a message of the archive needs", async () => {
  const { bus, counts, age, pool } = await payloadHarness();
  await bus.transaction((tx) => tx.publish(Drawn, large()));
  expect(await bus.payloads.collect()).toEqual({ unneeded: 0, orphaned: 0, finished: true });
  await age(LONG_AGO);
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 0 });
  await pool.query(forgetMessages);
  expect(await bus.payloads.collect()).toEqual({ unneeded: 1, orphaned: 0, finished: true });
  expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
});

test("what was used lately is kept, though it was stored long ago", async () => {
  const { bus, age, pool } = await payloadHarness();
  const file = await bus.attach(Buffer.from("report"));
  await age(LONG_AGO);
  await bus.transaction((tx) => tx.publish(Sent, file));
  await pool.query(forgetMessages);
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 0 });
});

test.each([
  ["a scheduled message", "scheduled"],
  ["an open dead letter", "dead letter"],
  ["a saga", "saga"],
])("%s keeps what it needs, until it is gone", async (_, holder) => {
  const { bus, age, pool, observer, counts } = await payloadHarness();
  const file = await bus.attach(Buffer.from("report"));
  if (holder === "scheduled") {
    await bus.transaction((tx) => tx.publish(Sent, file, { delay: "10d" }));
  } else if (holder === "dead letter") {
    bus.on(Sent, { consumer: "c", retry: { maxAttempts: 1 } }, () => Promise.reject(new Error("no")));
    await bus.run();
    await bus.transaction((tx) => tx.publish(Sent, file));
    await observer.until("dead_letter.buried");
  } else {
    const Keep = saga("keep", {
      version: 1,
      input: z.object({ id: z.string(), file: z.custom<Attachment>() }),
      key: ({ id }) => id,
    })
      .send("ask", Drawn, () => ({ n: 1, text: "may it go?" }))
      .noUndo("it only reads");
    bus.register(Keep);
    await bus.transaction((tx) => bus.start(tx, Keep, { id: "s1", file }));
  }
  await age(LONG_AGO);
  await pool.query(forgetMessages);
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 0 });
  expect(await counts()).toMatchObject({ blob: 1, use: 1 });
  await pool.query(
    "delete from sagabox.scheduled; update sagabox.dead_letter set closed_at = now(), closed_as = 'discarded'; delete from sagabox.saga_instance",
  );
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 1 });
});

test("an attachment unused for the whole retention cannot be published any more", async () => {
  const { bus, age } = await payloadHarness();
  const file = await bus.attach(Buffer.from("report"));
  await age(LONG_AGO);
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 1 });
  await expect(bus.transaction((tx) => tx.publish(Sent, file))).rejects.toMatchObject({
    code: "CLAIM_MISSING",
  });
});

test("an attachment that is published while the collector runs is kept", async () => {
  const { bus, age, pool } = await payloadHarness();
  const file = await bus.attach(Buffer.from("report"));
  await age(LONG_AGO);
  await bus.transaction(async (tx) => {
    await tx.publish(Sent, file);
    expect(await bus.payloads.collect()).toMatchObject({ unneeded: 0 });
  });
  await pool.query(forgetMessages);
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 0 });
});

test("two collectors at once delete everything once, and a crashed one is finished by the next", async () => {
  const folder = await temporaryFolder();
  const { bus, open, age, counts, pool } = await payloadHarness({
    claimCheck: { store: fileStore({ folder }) },
  });
  for (let n = 0; n < 40; n++) await bus.attach(Buffer.from(`file ${n}`));
  await age(LONG_AGO);
  // One died after it had doomed some, and another one after it had deleted the files of some.
  await pool.query(
    "update sagabox.blob set doomed_at = now() where key in (select key from sagabox.blob limit 7)",
  );
  const reports = await Promise.all([bus.payloads.collect(), open().payloads.collect()]);
  expect(reports.every(({ finished }) => finished)).toBe(true);
  expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
  expect(await filesIn(folder)).toEqual([]);
});

test("C-02: what rolled-back transactions left in a folder is gone after the grace, and nothing younger", async () => {
  const folder = await temporaryFolder();
  const { bus, pool } = await payloadHarness({ claimCheck: { store: fileStore({ folder }), grace: "1h" } });
  for (let n = 0; n < 20; n++) {
    await expect(
      bus.transaction(async (tx) => {
        await tx.publish(Drawn, large(n, 1_100_000));
        throw new Error("no");
      }),
    ).rejects.toThrow("no");
  }
  await bus.transaction((tx) => tx.publish(Drawn, large(1, 1_100_000)));
  expect(await bus.payloads.collect()).toMatchObject({ orphaned: 0 });
  expect(await filesIn(folder)).toHaveLength(21);
  await aDayEarlier(pool, folder);
  expect(await bus.payloads.collect()).toEqual({ unneeded: 0, orphaned: 20, finished: true });
  expect(await filesIn(folder)).toHaveLength(1);
});

test(
  "C-02: S3 keeps payloads that are still needed, and loses rolled-back ones after the grace",
  { timeout: 60_000 },
  async () => {
    const server = await startS3Server();
    onTestFinished(() => server.stop());
    const { bucket, endpoint, folder } = server;
    const store = s3Store({ bucket, endpoint, region: "us-east-1", credentials: s3Credentials });
    const { bus, age, pool } = await payloadHarness({ claimCheck: { store, grace: "1h" } });
    const rolledBack = bus.transaction(async (tx) => {
      await tx.publish(Drawn, large());
      throw new Error("no");
    });
    await expect(rolledBack).rejects.toThrow("no");
    await bus.transaction((tx) => tx.publish(Drawn, large()));
    expect(await bus.payloads.collect()).toMatchObject({ orphaned: 0 });
    await aDayEarlier(pool, folder);
    expect(await bus.payloads.collect()).toEqual({ unneeded: 0, orphaned: 1, finished: true });
    await age(LONG_AGO);
    await pool.query(forgetMessages);
    expect(await bus.payloads.collect()).toEqual({ unneeded: 1, orphaned: 0, finished: true });
  },
);

test(
  "C-01: a process that is killed between upload and commit leaves nothing for ever",
  { timeout: 60_000 },
  async () => {
    const folder = await temporaryFolder();
    const { bus, pool, url, counts } = await payloadHarness({
      claimCheck: { store: fileStore({ folder }), grace: "1h" },
    });
    const worker = fileURLToPath(new URL("./killed-publisher.ts", import.meta.url));
    const args = ["--conditions=sagabox:source", "--import", import.meta.resolve("tsx"), worker, url, folder];
    const child = spawn(process.execPath, args, { stdio: "inherit" });
    const [, signal] = (await once(child, "exit")) as [number | null, string | null];
    expect(signal).toBe("SIGKILL");
    expect(await filesIn(folder)).toHaveLength(1);
    expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
    await aDayEarlier(pool, folder);
    expect(await bus.payloads.collect()).toMatchObject({ orphaned: 1 });
    expect(await filesIn(folder)).toEqual([]);
  },
);

test("each store is swept from where its own last round ended, however far others are", async () => {
  const [near, far] = [await temporaryFolder(), await temporaryFolder()];
  const { bus, open, pool } = await payloadHarness({ claimCheck: { store: fileStore({ folder: near }) } });
  const other = open({ claimCheck: { store: fileStore({ folder: far, id: "far" }) } });
  const { rows } = await pool.query<{ day: string }>(
    `update sagabox.blob_home set made_on = made_on - 30 returning id || '/' || (made_on + 10)::text as day`,
  );
  await mkdir(join(far, rows[0]?.day ?? ""), { recursive: true });
  await writeFile(join(far, rows[0]?.day ?? "", "0".repeat(32)), "left by a process that died");
  await ageFiles(far, 480);
  expect(await bus.payloads.collect()).toMatchObject({ orphaned: 0, finished: true });
  expect(await other.payloads.collect()).toMatchObject({ orphaned: 1, finished: true });
  const swept = await pool.query<{ store: string }>("select store from sagabox.blob_sweep order by store");
  expect(swept.rows).toEqual([{ store: "far" }, { store: "files" }]);
});

test("what was left in a store that is no longer written to is gone after the grace, as long as it is known", async () => {
  const [before, after] = [await temporaryFolder(), await temporaryFolder()];
  const old = fileStore({ folder: before, id: "old" });
  const { bus, open, pool } = await payloadHarness({ claimCheck: { store: old, grace: "1h" } });
  const rolledBack = bus.transaction(async (tx) => {
    await tx.publish(Drawn, large());
    throw new Error("no");
  });
  await expect(rolledBack).rejects.toThrow("no");
  await bus.transaction((tx) => tx.publish(Drawn, large()));
  await aDayEarlier(pool, before);
  const broken: BlobStore = {
    id: "broken",
    put: () => Promise.reject(new Error("unused")),
    get: () => Promise.reject(new Error("unused")),
    delete: () => Promise.reject(new Error("unused")),
    list: () => Promise.reject(new Error("it is down")),
  };
  const store = fileStore({ folder: after });
  const moved = open({ claimCheck: { store, stores: [broken, old], grace: "1h" } });
  expect(await moved.payloads.collect()).toEqual({ unneeded: 0, orphaned: 1, finished: false });
  expect(await filesIn(before)).toHaveLength(1);
});

test("a source that fails is not taken for a store that is down, however often", async () => {
  const store = fileStore({ folder: await temporaryFolder() });
  const { bus, observer } = await payloadHarness({ claimCheck: { store } });
  const broken = async function* (error: unknown): AsyncGenerator<Uint8Array> {
    yield randomBytes(10);
    throw error;
  };
  for (let n = 0; n < 8; n++) {
    const reset = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
    await expect(bus.attach(broken(reset))).rejects.toMatchObject({
      code: "CLAIM_SOURCE_FAILED",
      message: expect.stringContaining("The store did not fail"),
      cause: reset,
    });
  }
  const verdict = permanent("no such scan");
  await expect(bus.attach(broken(verdict))).rejects.toBe(verdict);
  expect(observer.of("payload.failed")).toEqual([]);
  expect((await bus.attach(Buffer.from("x"))).$attachment.bytes).toBe(1);
});

test("an upload that broke off leaves nothing in the database", async () => {
  const { bus, counts } = await payloadHarness();
  const broken = async function* (): AsyncGenerator<Uint8Array> {
    yield randomBytes(600_000);
    throw new Error("the client hung up");
  };
  await expect(bus.attach(broken())).rejects.toMatchObject({
    code: "CLAIM_SOURCE_FAILED",
    cause: { message: "the client hung up" },
  });
  expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
});

test("a store that fails while collecting is reported, and the rest is collected next time", async () => {
  const folder = await temporaryFolder();
  const files = fileStore({ folder });
  let broken = true;
  const store = {
    id: "files",
    put: files.put.bind(files),
    get: files.get.bind(files),
    list: files.list.bind(files),
    delete: (keys: readonly string[], signal: AbortSignal) =>
      broken ? Promise.reject(new Error("read-only")) : files.delete(keys, signal),
  };
  const { bus, age, observer } = await payloadHarness({ claimCheck: { store } });
  const kept: Attachment = await bus.attach(Buffer.from("x"));
  expect(kept.$attachment.bytes).toBe(1);
  await age(LONG_AGO);
  expect(await bus.payloads.collect()).toEqual({ unneeded: 0, orphaned: 0, finished: false });
  expect(observer.of("payload.failed")).toMatchObject([{ doing: "collecting" }]);
  broken = false;
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 1, finished: true });
});
