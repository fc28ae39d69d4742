import { createHash, randomBytes } from "node:crypto";
import { blobMissing, type BlobStore } from "sagabox/claim-check";
import { expect, test } from "vitest";

const never = new AbortController().signal;
const HOME = randomBytes(6).toString("hex");

export function newKey(day = "2026-11-16", home = HOME): string {
  return `${home}/${day}/${randomBytes(16).toString("hex")}`;
}

export async function* pieces(...some: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* some;
}

export async function computeHash(
  source: AsyncIterable<Uint8Array>,
): Promise<{ bytes: number; sha256: string }> {
  const hash = createHash("sha256");
  let bytes = 0;
  for await (const piece of source) {
    hash.update(piece);
    bytes += piece.byteLength;
  }
  return { bytes, sha256: hash.digest("hex") };
}

export async function read(store: BlobStore, key: string): Promise<Buffer> {
  const found: Uint8Array[] = [];
  for await (const piece of await store.get(key, never)) found.push(piece);
  return Buffer.concat(found);
}

async function listKeys(store: BlobStore, prefix: string): Promise<string[]> {
  const keys: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await store.list(prefix, cursor, never);
    keys.push(...page.blobs.map(({ key }) => key));
    cursor = page.next;
  } while (cursor !== undefined);
  return keys.toSorted();
}

/** The promises that every store must keep. */
export function exerciseStore(name: string, open: () => Promise<BlobStore>): void {
  test(`${name}: what was put can be read again, byte by byte`, async () => {
    const store = await open();
    const every = Buffer.from(Array.from({ length: 1_024 }, (_, n) => n % 256));
    const key = newKey();
    await store.put(key, pieces(every.subarray(0, 1), every.subarray(1, 500), every.subarray(500)), never);
    expect((await read(store, key)).equals(every)).toBe(true);
  });

  test(`${name}: nothing at all is something that can be stored`, async () => {
    const store = await open();
    const key = newKey();
    await store.put(key, pieces(), never);
    expect((await read(store, key)).byteLength).toBe(0);
  });

  test.each([262_144, 262_145, 8 * 1_048_576, 20_000_001])(
    `${name}: %d bytes in uneven pieces arrive whole`,
    async (size) => {
      const store = await open();
      const key = newKey();
      const bytes = randomBytes(size);
      const uneven = async function* (): AsyncGenerator<Uint8Array> {
        for (let at = 0, n = 1; at < size; at += n * 7_919, n += 1) yield bytes.subarray(at, at + n * 7_919);
      };
      await store.put(key, uneven(), never);
      expect(await computeHash(await store.get(key, never))).toEqual(await computeHash(pieces(bytes)));
    },
  );

  test(`${name}: a missing payload is reported as missing`, async () => {
    const store = await open();
    const key = newKey();
    await expect(async () => read(store, key)).rejects.toMatchObject({
      code: "CLAIM_MISSING",
      message: blobMissing(key).message,
    });
  });

  test(`${name}: deleting takes what is there, and what is not there is no failure`, async () => {
    const store = await open();
    const [first, second, other] = [newKey(), newKey(), newKey()];
    for (const key of [first, second, other]) await store.put(key, pieces(Buffer.from(key)), never);
    await store.delete([first, newKey(), second], never);
    await store.delete([first], never);
    await expect(async () => read(store, first)).rejects.toMatchObject({ code: "CLAIM_MISSING" });
    await expect(async () => read(store, second)).rejects.toMatchObject({ code: "CLAIM_MISSING" });
    expect((await read(store, other)).toString()).toBe(other);
  });

  test(`${name}: a list has everything of its day, each once, and nothing else`, async () => {
    const store = await open();
    const home = randomBytes(6).toString("hex");
    const keys = Array.from({ length: 25 }, () => newKey("2026-11-15", home));
    const others = [newKey("2026-11-14", home), newKey("2026-11-15", randomBytes(6).toString("hex"))];
    const begin = Date.now();
    for (const key of [...keys, ...others]) await store.put(key, pieces(Buffer.from("x")), never);
    expect(await listKeys(store, `${home}/2026-11-15/`)).toEqual(keys.toSorted());
    expect(await listKeys(store, `${home}/2026-11-13/`)).toEqual([]);
    const [first] = (await store.list(`${home}/2026-11-15/`, undefined, never)).blobs;
    expect(Math.abs((first?.storedAt.getTime() ?? 0) - begin)).toBeLessThan(60_000);
  });

  test(`${name}: a source that fails in the middle leaves nothing to read`, async () => {
    const store = await open();
    const key = newKey();
    const broken = async function* (): AsyncGenerator<Uint8Array> {
      yield randomBytes(9 * 1_048_576);
      throw new Error("the source broke");
    };
    await expect(store.put(key, broken(), never)).rejects.toThrow("the source broke");
    await store.delete([key], never); // as the claim check does
    await expect(async () => read(store, key)).rejects.toMatchObject({ code: "CLAIM_MISSING" });
  });
}
