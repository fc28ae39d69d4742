import { s3Store } from "sagabox/claim-check";
import { expect, onTestFinished, test } from "vitest";
import { MultipartServer, s3Credentials } from "../support/stores/s3-server.ts";
import { Drawn, large } from "../support/stores/payload-contracts.ts";
import { payloadHarness } from "../support/stores/payload-harness.ts";

const HOUR_MS = 3_600_000;
const PREFIX = "shared/";
/** Three parts. */
const huge = () => large(1, 12_000_000);

async function overMultipart() {
  const server = await MultipartServer.start();
  onTestFinished(() => server.stop());
  const { bucket, endpoint } = server;
  const store = s3Store({
    bucket,
    endpoint,
    prefix: PREFIX,
    region: "us-east-1",
    credentials: s3Credentials,
  });
  const harness = await payloadHarness({ claimCheck: { store, grace: "1h", timeout: 5_000 } });
  const { rows } = await harness.pool.query<{ folder: string }>(
    "select id || '/' || (made_on - 1)::text as folder from sagabox.blob_home",
  );
  const blobKey = (n: number, folder = rows[0]?.folder ?? ""): string =>
    `${PREFIX}${folder}/${n.toString(16).padStart(32, "0")}`;
  return { ...harness, server, keyOf: blobKey };
}

function hoursAgo(hours: number): Date {
  return new Date(Date.now() - hours * HOUR_MS);
}

test("C-02: unfinished multipart uploads are removed after the grace, and nothing younger or of others", async () => {
  const { bus, server, keyOf } = await overMultipart();
  for (let n = 0; n < 5; n++) server.leave(keyOf(n), hoursAgo(2));
  server.leave(keyOf(4), hoursAgo(2)); // begun once more, because the answer to the first time was lost
  server.leave(keyOf(7), hoursAgo(0.5));
  server.leave(keyOf(8, "ffffffffffff/2026-11-16"), hoursAgo(2));
  await bus.transaction((tx) => tx.publish(Drawn, huge()));
  expect(await bus.payloads.collect()).toMatchObject({ unneeded: 0, finished: true });
  expect(server.uploads.map(({ key }) => key)).toEqual([keyOf(7), keyOf(8, "ffffffffffff/2026-11-16")]);
  expect(server.objects.size).toBe(1);
});

test("what a message needs is not touched by an upload of its key that was begun twice", async () => {
  const { bus, server, pool, age } = await overMultipart();
  await bus.transaction((tx) => tx.publish(Drawn, huge()));
  const [key = ""] = server.objects.keys();
  server.leave(key, hoursAgo(2));
  expect(await bus.payloads.collect()).toEqual({ unneeded: 0, orphaned: 0, finished: true });
  expect(server.objects.has(key)).toBe(true);
  await age(100);
  await pool.query("delete from sagabox.queue; delete from sagabox.outbox; delete from sagabox.message");
  expect(await bus.payloads.collect()).toEqual({ unneeded: 1, orphaned: 0, finished: true });
  expect([server.objects.size, server.uploads]).toEqual([0, []]);
});

test("S3 that goes away in the middle of an upload fails the publish; the transaction decides, and no part stays", async () => {
  const { bus, server, pool, counts, observer } = await overMultipart();
  await pool.query("create table plan (n integer)");
  server.dieAtPart(2);
  const publish = bus.transaction(async (tx) => {
    await tx.query("insert into plan values (1)");
    await tx.publish(Drawn, huge());
  });
  await expect(publish).rejects.toMatchObject({
    code: "CLAIM_STORE_UNAVAILABLE",
    message: expect.stringContaining('Store "s3" is not available') as string,
  });
  expect((await pool.query("select from plan")).rowCount).toBe(0);
  expect((await pool.query("select from sagabox.message")).rowCount).toBe(0);
  expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
  expect(observer.of("payload.failed")).toMatchObject([
    { store: "s3", doing: "storing", code: "CLAIM_STORE_UNAVAILABLE" },
  ]);
  expect(server.uploads.map(({ parts }) => [...parts.keys()])).toEqual([[1]]);
  server.comeBack();
  expect(await bus.payloads.collect()).toEqual({ unneeded: 0, orphaned: 0, finished: true });
  server.ageUploads();
  expect(await bus.payloads.collect()).toEqual({ unneeded: 0, orphaned: 1, finished: true });
  expect([server.uploads, server.objects.size]).toEqual([[], 0]);
  await bus.transaction((tx) => tx.publish(Drawn, huge()));
  expect(server.objects.size).toBe(1);
});
