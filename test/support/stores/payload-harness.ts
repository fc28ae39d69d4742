import { createHash } from "node:crypto";
import { mkdtemp, readdir, rename, rm, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type pg from "pg";
import { createBus, type BusOptions, type Transport, attachment, command, type Bus } from "sagabox";
import { fileStore } from "sagabox/claim-check";
import { onTestFinished, expect, test } from "vitest";
import { temporaryDatabase } from "../database.ts";
import { RecordingObserver } from "../recording-observer.ts";
import { Drawn } from "./payload-contracts.ts";

/** A bus with a database of its own, and what tests of large payloads look at. */
export async function payloadHarness(options: Partial<BusOptions> = {}) {
  const { pool, url } = await temporaryDatabase({ migrated: true });
  const observer = new RecordingObserver();
  const open = (more: Partial<BusOptions> = {}) => {
    const bus = createBus({
      service: "plans",
      database: pool,
      log: false,
      observers: [observer],
      ...options,
      ...more,
    });
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  const count = async (table: string): Promise<number> =>
    Number((await pool.query<{ n: string }>(`select count(*) as n from sagabox.${table}`)).rows[0]?.n);
  const counts = async () => ({
    blob: await count("blob"),
    use: await count("blob_use"),
    chunk: await count("blob_chunk"),
  });
  /** Moves all timestamps this many days back: archive, dead letters and sagas have expired by then. */
  const age = async (days: number): Promise<void> => {
    await pool.query(`update sagabox.blob set stored_at = stored_at - interval '${days} days'`);
    await pool.query(`update sagabox.blob_use set used_at = used_at - interval '${days} days'`);
  };
  return { pool, url, observer, open, bus: open(), counts, age };
}

export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "sagabox-payloads-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** The files below a folder, by their paths. */
export async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
}

/** As if the files had been written so long ago. */
export async function ageFiles(folder: string, hours: number): Promise<void> {
  const then = new Date(Date.now() - hours * 3_600_000);
  for (const file of await filesIn(folder)) await utimes(file, then, then);
}

/** As if all in a folder had been stored a day earlier: the day is part of each key, and after midnight it is another one. */
export async function aDayEarlier(pool: pg.Pool, folder: string): Promise<void> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const days = entries.filter((entry) => entry.isDirectory() && /^\d{4}-\d\d-\d\d$/.test(entry.name));
  for (const { parentPath, name } of days) {
    const before = new Date(Date.parse(name) - 86_400_000).toISOString().slice(0, 10);
    await rename(join(parentPath, name), join(parentPath, before));
    // What refers to a key is renamed with it, which no constraint could follow.
    await pool.query(
      `begin;
       set local session_replication_role = replica;
       update sagabox.blob set key = replace(key, '/${name}/', '/${before}/');
       update sagabox.blob_use set key = replace(key, '/${name}/', '/${before}/');
       commit`,
    );
  }
  await ageFiles(folder, 24);
}

/** What must be true of large payloads over any broker. */
export function payloadSuite(transport: () => Transport): void {
  test("64 MB pass through in bounded memory", { timeout: 180_000 }, async () => {
    const folder = await temporaryFolder();
    const { bus } = await payloadHarness({
      transport: transport(),
      claimCheck: { store: fileStore({ folder }) },
    });
    const { grownMb, ...rest } = await passLargeAttachment(bus);
    expect(rest).toEqual(passed);
    expect(grownMb).toBeLessThan(MAX_GROWTH_MB);
  });

  test(
    "data that the broker could not carry arrives, for every threshold",
    { timeout: 120_000 },
    async () => {
      const carrying = transport();
      const folder = await temporaryFolder();
      const { bus, observer } = await payloadHarness({
        transport: carrying,
        claimCheck: { store: fileStore({ folder }), threshold: 60 * 1_048_576 },
      });
      const got: number[] = [];
      bus.on(Drawn, { consumer: "archive" }, ({ data }) => void got.push(data.text.length));
      await bus.run();
      const size = Math.min(carrying.capabilities.maxBytes + 1_000, 30 * 1_048_576);
      const limit = carrying.capabilities.maxBytes - 20_000;
      await bus.transaction(async (tx) => {
        await tx.publish(Drawn, { n: 1, text: "x".repeat(size) });
        await tx.publish(Drawn, { n: 2, text: "x".repeat(limit) });
      });
      await observer.until("consumer.processed", 2);
      expect(got.toSorted((a, b) => a - b)).toEqual([limit, size]);
      expect(observer.of("payload.stored")).toHaveLength(1);
    },
  );

  test("without a store it is refused, with the way out", async () => {
    const { bus } = await payloadHarness({ transport: transport() });
    const publish = bus.transaction((tx) => tx.publish(Drawn, { n: 1, text: "x".repeat(2_000_000) }));
    await expect(publish).rejects.toMatchObject({
      code: "PAYLOAD_TOO_LARGE",
      message: expect.stringContaining("`claimCheck` of createBus") as string,
    });
  });
}

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** What a process really holds while something large passes through it: garbage does not count. */
export class LiveMemory {
  readonly #before = LiveMemory.#now();
  #max = this.#before;

  look(): void {
    this.#max = Math.max(this.#max, LiveMemory.#now());
  }

  /** How much more it was at most, in megabytes. */
  get grownMb(): number {
    return (this.#max - this.#before) / 1_048_576;
  }

  static #now(): number {
    collectGarbage();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  }
}

const MB = 1_048_576;
const SIZE = 64 * MB;
const PIECE = 64 * 1_024;

const Uploaded = command("file.uploaded", { schema: attachment() });

export interface Passed {
  readonly bytes: number;
  readonly sameBytes: boolean;
  readonly grownMb: number;
}

/** Sends 64 MB through a bus that is not running yet, and returns what arrived and what it cost in memory. */
export async function passLargeAttachment(
  bus: Bus,
  options: { readonly subject?: string } = {},
): Promise<Passed> {
  const sent = createHash("sha256");
  const source = async function* (): AsyncGenerator<Uint8Array> {
    for (let n = 0; n < SIZE / PIECE; n++) {
      const piece = Buffer.alloc(PIECE, n % 251);
      sent.update(piece);
      if (n % 128 === 0) memory.look();
      yield piece;
    }
  };
  let resolve: (what: { bytes: number; sha256: string }) => void = () => undefined;
  const arrived = new Promise<{ bytes: number; sha256: string }>((settle) => (resolve = settle));
  bus.on(Uploaded, { consumer: "files", deadline: "60s" }, async ({ data }, { open }) => {
    const hash = createHash("sha256");
    let bytes = 0;
    let looked = 0;
    for await (const piece of open(data) as AsyncIterable<Buffer>) {
      hash.update(piece);
      bytes += piece.byteLength;
      if (bytes - looked < 8 * MB) continue;
      looked = bytes;
      memory.look();
    }
    resolve({ bytes, sha256: hash.digest("hex") });
  });
  await bus.run();
  const memory = new LiveMemory(); // what the bus itself needs does not count
  const file = await bus.attach(source(), { contentType: "video/mp4", ...options });
  await bus.transaction((tx) => tx.publish(Uploaded, file));
  const { bytes, sha256 } = await arrived;
  return { bytes, sameBytes: sha256 === sent.digest("hex"), grownMb: memory.grownMb };
}

export const passed = { bytes: SIZE, sameBytes: true };
/** Far below the 64 MB, and above what pieces in flight, a broker's client and its buffers take. */
export const MAX_GROWTH_MB = 40;
