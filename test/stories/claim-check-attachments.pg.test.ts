import { randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { attachment, command, SagaboxError, type Attachment } from "sagabox";
import { fileStore, s3Store, type ClaimCheckOptions } from "sagabox/claim-check";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { testKeyRing } from "../support/data-subjects.ts";
import {
  MAX_GROWTH_MB,
  passed,
  passLargeAttachment,
  filesIn,
  payloadHarness,
  temporaryFolder,
} from "../support/stores/payload-harness.ts";
import { s3Credentials, startS3Server } from "../support/stores/s3-server.ts";

const Filed = command("report.filed", {
  schema: z.object({
    title: z.string(),
    file: z.custom<Attachment>(),
    more: z.array(z.custom<Attachment>()),
  }),
});
const Forwarded = command("file.forwarded", { schema: attachment() });

test("C5: binary data travels as an attachment, from bytes or a stream, and is handed on by its reference", async () => {
  const folder = await temporaryFolder();
  const bytes = randomBytes(700_001);
  await writeFile(join(folder, "source"), bytes);
  const { bus, observer, pool, counts } = await payloadHarness();
  const got: Buffer[] = [];
  bus.on(Filed, { consumer: "desk" }, async ({ data }, context) => {
    for (const file of [data.file, ...data.more]) got.push(await buffer(context.open(file)));
    await context.publish(Forwarded, data.file);
  });
  bus.on(
    Forwarded,
    { consumer: "cellar" },
    async ({ data }, { open }) => void got.push(await buffer(open(data))),
  );
  await bus.run();
  const file = await bus.attach(bytes, { contentType: "application/pdf" });
  const streamed = await bus.attach(createReadStream(join(folder, "source")));
  expect(file.$attachment).toMatchObject({
    store: "postgres",
    bytes: 700_001,
    contentType: "application/pdf",
  });
  expect(streamed.$attachment.sha256).toBe(file.$attachment.sha256);
  await bus.transaction((tx) => tx.publish(Filed, { title: "a", file, more: [streamed, file] }));
  await observer.until("consumer.processed", 2);
  expect(got.map((one) => one.equals(bytes))).toEqual([true, true, true, true]);
  expect(await counts()).toMatchObject({ blob: 2, use: 3 });
  const { rows } = await pool.query<{ data: string }>(
    "select data from sagabox.message where type = 'report.filed'",
  );
  expect(JSON.parse(rows[0]?.data ?? "{}")).toMatchObject({ title: "a", file });
});

test("an attachment that was changed fails its stream at the end, and with it the handler", async () => {
  const folder = await temporaryFolder();
  const { bus, observer } = await payloadHarness({ claimCheck: { store: fileStore({ folder }) } });
  bus.on(Forwarded, { consumer: "cellar" }, async ({ data }, { open }) => void (await buffer(open(data))));
  await bus.run();
  const file = await bus.attach(Buffer.from("the truth"));
  const [path = ""] = await filesIn(folder);
  await writeFile(path, "the truly");
  await bus.transaction((tx) => tx.publish(Forwarded, file));
  await observer.until("dead_letter.buried");
  expect(await bus.deadLetters.list()).toMatchObject([{ errorType: "CLAIM_CORRUPT", attempts: 1 }]);
});

test("bad input is refused: too much, no bytes, a wrong type, something that is no attachment", async () => {
  const { bus, counts } = await payloadHarness({ claimCheck: { maxBytes: 1_000_000 } });
  const endless = async function* (): AsyncGenerator<Uint8Array> {
    for (;;) yield new Uint8Array(100_000);
  };
  await expect(bus.attach(endless())).rejects.toMatchObject({ code: "PAYLOAD_TOO_LARGE" });
  const texts = async function* (): AsyncGenerator<never> {
    yield "text" as never;
  };
  await expect(bus.attach(texts())).rejects.toMatchObject({ code: "OPTIONS_INVALID" });
  await expect(bus.attach(Buffer.from("x"), { contentType: "a\r\nb" })).rejects.toMatchObject({
    code: "OPTIONS_INVALID",
  });
  expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
  const file = await bus.attach(Buffer.from("x"));
  const bent = { $attachment: { ...file.$attachment, key: "../../etc/passwd" } };
  await expect(bus.transaction((tx) => tx.publish(Forwarded, bent))).rejects.toMatchObject({
    code: "PAYLOAD_INVALID",
  });
  expect(() => bus.open(bent)).toThrow(expect.objectContaining({ code: "CLAIM_INVALID" }));
});

// A stream fails by itself and soon, but the first trips to the database come before the first look at it.
test.each([
  { kind: "postgres", options: {} },
  { kind: "postgres", options: { subject: "c-17" } },
  { kind: "files", options: {} },
  { kind: "files", options: { subject: "c-17" } },
  { kind: "s3", options: {} },
  { kind: "s3", options: { subject: "c-17" } },
])(
  "a file that is not there fails its attach and nothing else ($kind, $options)",
  async ({ kind, options }) => {
    const folder = await temporaryFolder();
    const claimCheck = await createStore(kind, folder);
    const { bus, counts } = await payloadHarness({ claimCheck, privacy: { keys: testKeyRing() } });
    for (const _ of ["first", "again"]) {
      await expect(bus.attach(createReadStream(join(folder, "missing")), options)).rejects.toMatchObject({
        code: "CLAIM_SOURCE_FAILED",
        cause: { code: "ENOENT" },
      });
    }
    expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
  },
);

test("a stream without a reader fails nothing either: wrong options, no subject, no claim check", async () => {
  const { bus, open } = await payloadHarness();
  const without = open({ claimCheck: false });
  for (const attach of [
    (source: Readable) => bus.attach(source, { contentType: "none" }),
    (source: Readable) => bus.attach(source, { subject: "" }),
    (source: Readable) => without.attach(source),
  ]) {
    const source = createReadStream("/nowhere/at/all");
    const closed = new Promise<void>((resolve) => source.once("close", resolve));
    await expect(attach(source)).rejects.toBeInstanceOf(SagaboxError);
    await closed;
    expect(source.errored).toMatchObject({ code: "ENOENT" });
    expect(source.listenerCount("error")).toBe(0);
  }
});

async function createStore(kind: string, folder: string): Promise<ClaimCheckOptions> {
  if (kind === "postgres") return {};
  if (kind === "files") return { store: fileStore({ folder: join(folder, "store") }) };
  const server = await startS3Server();
  onTestFinished(() => server.stop());
  const { endpoint, bucket } = server;
  return { store: s3Store({ bucket, endpoint, region: "us-east-1", credentials: s3Credentials }) };
}

test.each(["postgres", "files"])(
  "64 MB pass through Postgres in bounded memory (%s)",
  { timeout: 120_000 },
  async (kind) => {
    const folder = await temporaryFolder();
    const claimCheck = kind === "files" ? { store: fileStore({ folder }) } : {};
    const { bus } = await payloadHarness({ claimCheck });
    const { grownMb, ...rest } = await passLargeAttachment(bus);
    expect(rest).toEqual(passed);
    expect(grownMb).toBeLessThan(MAX_GROWTH_MB);
  },
);
