import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { command, type Attachment, type BusOptions } from "sagabox";
import { fileStore } from "sagabox/claim-check";
import { expect, test } from "vitest";
import { z } from "zod";
import {
  checkPassports,
  filePassport,
  PassportScanned,
} from "../../examples/guides/encrypted-attachments.ts";
import { testKeyRing } from "../support/data-subjects.ts";
import {
  MAX_GROWTH_MB,
  passed,
  passLargeAttachment,
  filesIn,
  payloadHarness,
  temporaryFolder,
} from "../support/stores/payload-harness.ts";

const Scanned = command("passport.scanned", {
  schema: z.object({ country: z.string(), scan: z.custom<Attachment>() }),
});
const CANARY = "PASSPORT OF ADA LOVELACE ";
const scan = Buffer.from(CANARY.repeat(8_000)); // four chunks
const because = { reason: "request 17", actor: "clerk" };
const kinds = ["postgres", "files"] as const;

/** A harness with keys, and all the bytes in its store. */
async function createHarness(kind: (typeof kinds)[number], options: Partial<BusOptions> = {}) {
  const folder = await temporaryFolder();
  const claimCheck = kind === "files" ? { store: fileStore({ folder }) } : {};
  const made = await payloadHarness({ claimCheck, privacy: { keys: testKeyRing() }, ...options });
  const readStored = async (): Promise<Buffer> => {
    if (kind === "files")
      return Buffer.concat(await Promise.all((await filesIn(folder)).map((file) => readFile(file))));
    const { rows } = await made.pool.query<{ bytes: Buffer }>(
      "select bytes from sagabox.blob_chunk order by key, n",
    );
    return Buffer.concat(rows.map(({ bytes }) => bytes));
  };
  return { ...made, folder, stored: readStored };
}

test.each(kinds)(
  "C6: a sealed attachment is nowhere in clear in its store, and the handler reads it (%s)",
  async (kind) => {
    const { bus, observer, stored } = await createHarness(kind);
    const got: Buffer[] = [];
    bus.on(
      Scanned,
      { consumer: "desk" },
      async ({ data }, { open }) => void got.push(await buffer(open(data.scan))),
    );
    await bus.run();
    const clear = await bus.attach(scan);
    expect((await stored()).includes(CANARY)).toBe(true); // so that not finding it means something
    await bus.transaction((tx) => tx.publish(Scanned, { country: "PT", scan: clear }));
    await observer.until("consumer.processed", 1);
    const before = (await stored()).length;
    const sealed = await bus.attach(scan, { contentType: "image/png", subject: "c-17" });
    const all = await stored();
    expect(all.length - before).toBe(scan.length + 4 * 16);
    expect(all.toString("latin1").split(CANARY)).toHaveLength(8_001);
    expect(sealed.$attachment).toMatchObject({
      bytes: scan.length + 4 * 16,
      contentType: "image/png",
      sealed: { plainBytes: scan.length },
    });
    expect(JSON.stringify(sealed)).not.toContain("c-17");
    await bus.transaction((tx) => tx.publish(Scanned, { country: "PT", scan: sealed }));
    await observer.until("consumer.processed", 2);
    expect(got.map((one) => one.equals(scan))).toEqual([true, true]);
    expect((await buffer(bus.open(sealed))).equals(scan)).toBe(true);
  },
);

test.each(kinds)(
  "C6: once the person is erased it cannot be opened, and all else is as it was (%s)",
  async (kind) => {
    const { bus, observer } = await createHarness(kind);
    const reports: unknown[] = [];
    bus.on(Scanned, { consumer: "desk" }, async ({ data }, { open }) => {
      reports.push(data.country);
      await buffer(open(data.scan));
    });
    const ada = await bus.attach(scan, { subject: "c-17" });
    const bob = await bus.attach(scan, { subject: "c-18" });
    const anonymous = await bus.attach(scan);
    const report = await bus.privacy.erase("c-17", because);
    expect(report).toMatchObject({ outcome: "erased", keysDestroyed: 1 });
    const seen: unknown[] = [];
    const stream = bus.open(ada).on("data", (piece) => seen.push(piece));
    await expect(buffer(stream)).rejects.toMatchObject({ code: "PRIVACY_ERASED" });
    expect(seen).toEqual([]);
    for (const file of [bob, anonymous]) expect((await buffer(bus.open(file))).equals(scan)).toBe(true);
    await bus.run();
    await bus.transaction((tx) => tx.publish(Scanned, { country: "PT", scan: ada }));
    await observer.until("dead_letter.buried");
    expect(reports).toEqual(["PT"]);
    expect(await bus.deadLetters.list()).toMatchObject([{ errorType: "PRIVACY_ERASED", attempts: 1 }]);
    // An erased subject that returns is a new subject.
    const again = await bus.attach(scan, { subject: "c-17" });
    expect((await buffer(bus.open(again))).equals(scan)).toBe(true);
  },
);

test("the guide: a handler reads the scan, and knows what to do without it", async () => {
  const { bus, observer, folder } = await createHarness("files");
  const [source, kept] = [join(folder, "passport.png"), join(folder, "kept.png")];
  await writeFile(source, scan);
  const reports: string[] = [];
  checkPassports(bus, kept, (text) => reports.push(text));
  await bus.run();
  await filePassport(bus, "c-17", source);
  await observer.until("consumer.processed", 1);
  expect((await readFile(kept)).equals(scan)).toBe(true);
  const late = await bus.attach(scan, { subject: "c-17" });
  await bus.privacy.erase("c-17", because);
  await bus.transaction((tx) =>
    tx.publish(PassportScanned, { customerId: "c-17", country: "PT", scan: late }),
  );
  await observer.until("consumer.processed", 2);
  expect(reports).toEqual([`PT: ${scan.length} bytes`, "PT: an erased subject"]);
});

test("without a key ring nothing is attached for a person, and what others sealed stays so", async () => {
  const { bus, open, counts } = await createHarness("postgres");
  const keyless = open({ privacy: {} });
  let asked = false;
  const source = async function* (): AsyncGenerator<Uint8Array> {
    asked = true;
    yield scan;
  };
  await expect(keyless.attach(source(), { subject: "c-17" })).rejects.toMatchObject({
    code: "PRIVACY_KEYS_MISSING",
  });
  expect([asked, await counts()]).toEqual([false, { blob: 0, use: 0, chunk: 0 }]);
  const sealed = await bus.attach(scan, { subject: "c-17" });
  await expect(buffer(keyless.open(sealed))).rejects.toMatchObject({ code: "PRIVACY_SEALED" });
  const foreign = {
    $attachment: { ...sealed.$attachment, sealed: { ...sealed.$attachment.sealed, keyId: "A".repeat(22) } },
  };
  await expect(buffer(bus.open(foreign as Attachment))).rejects.toMatchObject({ code: "PRIVACY_SEALED" });
});

test("a handler gets the key through its own transaction and needs no second connection for it", async () => {
  const { bus, observer } = await createHarness("files", { privacy: { keys: testKeyRing(), cacheTtl: 0 } });
  const reports: unknown[] = [];
  const describeStream = (opened: Readable): Promise<unknown> =>
    buffer(opened).then(
      (bytes) => reports.push(bytes.equals(scan)),
      (error: { code: string }) => reports.push(error.code),
    );
  bus.on(Scanned, { consumer: "desk" }, async ({ data }, { tx, open }) => {
    await describeStream(open(data.scan));
    await tx.query("delete from sagabox.subject_key"); // seen by anonymous else until the commit
    await describeStream(open(data.scan));
    await describeStream(bus.open(data.scan));
  });
  await bus.run();
  const sealed = await bus.attach(scan, { subject: "c-17" });
  await bus.transaction((tx) => tx.publish(Scanned, { country: "PT", scan: sealed }));
  await observer.until("consumer.processed");
  expect(reports).toEqual([true, "PRIVACY_SEALED", true]);
});

test("a subject that is missing by mistake stores nothing in clear", async () => {
  const { bus, counts } = await createHarness("postgres");
  for (const subject of [undefined, "", null, 17]) {
    const options = { subject } as unknown as { subject: string };
    await expect(bus.attach(scan, options)).rejects.toMatchObject({ code: "PRIVACY_SUBJECT_INVALID" });
  }
  expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
});

test("the limit counts what was attached, and what is over it leaves nothing behind", async () => {
  const { bus, counts } = await createHarness("postgres", { claimCheck: { maxBytes: scan.length } });
  const { $attachment } = await bus.attach(scan, { subject: "c-17" });
  expect($attachment.bytes).toBeGreaterThan(scan.length);
  const more = Buffer.concat([scan, Buffer.from("x")]);
  await expect(bus.attach(more, { subject: "c-17" })).rejects.toMatchObject({ code: "PAYLOAD_TOO_LARGE" });
  expect((await counts()).blob).toBe(1);
});

test("stored bytes or a reference that were changed hand out nothing that was not sealed", async () => {
  const { bus, folder } = await createHarness("files");
  const sealed = await bus.attach(scan, { subject: "c-17" });
  const other = await bus.attach(scan, { subject: "c-17" });
  const path = (await filesIn(folder)).find((file) => file.endsWith(sealed.$attachment.key.slice(-32))) ?? "";
  const good = await readFile(path);
  const read = async (file: Attachment): Promise<string> => {
    const pieces: Buffer[] = [];
    try {
      for await (const piece of bus.open(file) as AsyncIterable<Buffer>) pieces.push(piece);
    } catch (error) {
      const got = Buffer.concat(pieces);
      return `${(error as { code: string }).code} after ${got.equals(scan.subarray(0, got.length)) ? got.length : "rubbish"}`;
    }
    return "read";
  };
  expect(await read(sealed)).toBe("read");
  const swapped = { ...sealed.$attachment, sealed: other.$attachment.sealed } as Attachment["$attachment"];
  expect(await read({ $attachment: swapped })).toBe("PRIVACY_SEAL_BROKEN after 0");
  const { sealed: _, ...stripped } = sealed.$attachment;
  expect((await buffer(bus.open({ $attachment: stripped }))).includes(CANARY)).toBe(false);
  const flipped = Buffer.from(good);
  flipped[70_000] = (flipped[70_000] ?? 0) ^ 1;
  await writeFile(path, flipped);
  expect(await read(sealed)).toMatch(/^PRIVACY_SEAL_BROKEN after (0|65536)$/); // a stream drops what anonymous took yet
  await writeFile(path, good.subarray(0, 65_552));
  expect(await read(sealed)).toBe("CLAIM_CORRUPT after 0");
  await writeFile(path, Buffer.concat([good, good]));
  expect(await read(sealed)).toMatch(/^CLAIM_CORRUPT after \d+$/);
});

test.each(kinds)("64 MB are sealed and opened in bounded memory (%s)", { timeout: 120_000 }, async (kind) => {
  const { bus } = await createHarness(kind);
  const { grownMb, ...rest } = await passLargeAttachment(bus, { subject: "c-17" });
  expect(rest).toEqual(passed);
  expect(grownMb).toBeLessThan(MAX_GROWTH_MB);
});
