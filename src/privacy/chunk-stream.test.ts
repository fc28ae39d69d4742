import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { isSagaboxError } from "../errors/index.ts";
import { ENCRYPTED_CHUNK_BYTES, encryptedSize, decryptedSize } from "../message/index.ts";
import { seededRandom } from "../../test/support/random-data.ts";
import { decryptChunks, encryptChunks, type StreamKey } from "./vaults.ts";

const CHUNK = ENCRYPTED_CHUNK_BYTES;
const STORED = CHUNK + 16;
const stream: StreamKey = { key: randomBytes(32), bound: "salt and key" };

async function* pieces(bytes: Uint8Array, size = 50_000): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function all(source: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of source) parts.push(part);
  return Buffer.concat(parts);
}

const sealed = (plain: Uint8Array): Promise<Buffer> => all(encryptChunks(stream, pieces(plain)));

interface Outcome {
  readonly code: string;
  readonly handedOut: Buffer;
}

/** How decryption ended, and the bytes it yielded until then. */
async function opened(stored: Uint8Array, by: StreamKey = stream, size?: number): Promise<Outcome> {
  const parts: Uint8Array[] = [];
  try {
    for await (const part of decryptChunks(by, pieces(stored, size))) parts.push(part);
    return { code: "opened", handedOut: Buffer.concat(parts) };
  } catch (error) {
    return { code: isSagaboxError(error) ? error.code : String(error), handedOut: Buffer.concat(parts) };
  }
}

test.each([0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK - 7, 3 * CHUNK])(
  "%i bytes come out as they went in, however they are cut on the way",
  async (length) => {
    const plain = randomBytes(length);
    for (const size of [length < CHUNK ? 1 : 4_099, CHUNK, STORED, 1_000_000]) {
      const stored = await all(encryptChunks(stream, pieces(plain, size)));
      expect(stored.length).toBe(encryptedSize(length));
      expect(decryptedSize(stored.length)).toBe(length);
      const { code, handedOut } = await opened(stored, stream, size);
      expect([code, handedOut.equals(plain)]).toEqual(["opened", true]);
    }
  },
);

test("equal chunks are encrypted differently", async () => {
  const stored = await sealed(Buffer.alloc(3 * CHUNK, "a"));
  const chunks = [0, 1, 2].map((n) => stored.subarray(n * STORED, (n + 1) * STORED).toString("hex"));
  expect(new Set(chunks).size).toBe(3);
  expect(stored.includes("aaaaaaaa")).toBe(false);
});

const plain = randomBytes(3 * CHUNK - 1_000);
const part = (stored: Buffer, n: number): Buffer => stored.subarray(n * STORED, (n + 1) * STORED);
const flipped = (stored: Buffer, at: number): Buffer => {
  const copy = Buffer.from(stored);
  copy[at] = (copy[at] ?? 0) ^ 1;
  return copy;
};

/** A change to the stored bytes, and how many chunks may be yielded before it is detected. */
const tampered: readonly (readonly [string, number, (stored: Buffer) => Buffer])[] = [
  ["a bit of the first chunk flipped", 0, (stored) => flipped(stored, 0)],
  ["a bit of a tag in the middle flipped", 1, (stored) => flipped(stored, 2 * STORED - 1)],
  ["the last bit flipped", 2, (stored) => flipped(stored, stored.length - 1)],
  ["nothing left", 0, () => Buffer.alloc(0)],
  ["less than a tag left", 0, (stored) => stored.subarray(0, 15)],
  ["cut inside the first chunk", 0, (stored) => stored.subarray(0, 100)],
  ["cut after the first chunk", 0, (stored) => part(stored, 0)],
  ["cut after the second chunk", 1, (stored) => stored.subarray(0, 2 * STORED)],
  ["cut inside the last chunk", 2, (stored) => stored.subarray(0, stored.length - 1)],
  ["the first chunk missing", 0, (stored) => stored.subarray(STORED)],
  ["the middle chunk missing", 1, (stored) => Buffer.concat([part(stored, 0), part(stored, 2)])],
  ["two chunks swapped", 0, (stored) => Buffer.concat([part(stored, 1), part(stored, 0), part(stored, 2)])],
  ["a chunk twice", 1, (stored) => Buffer.concat([part(stored, 0), stored])],
  ["the last chunk alone", 0, (stored) => part(stored, 2)],
  ["a byte more", 2, (stored) => Buffer.concat([stored, Buffer.from("x")])],
  ["itself behind it", 2, (stored) => Buffer.concat([stored, stored])],
  ["a byte more in front", 0, (stored) => Buffer.concat([Buffer.from("x"), stored])],
];

test.each(tampered)("%s: only the chunks before it are yielded", async (_, chunks, change) => {
  const { code, handedOut } = await opened(change(await sealed(plain)));
  expect(code).toBe("PRIVACY_SEAL_BROKEN");
  expect(handedOut.equals(plain.subarray(0, chunks * CHUNK))).toBe(true);
});

test("a stream whose last chunk is full ends exactly there", async () => {
  const stored = await sealed(plain.subarray(0, 2 * CHUNK));
  const ends = await Promise.all([
    opened(stored),
    opened(part(stored, 0)),
    opened(Buffer.concat([stored, part(stored, 1)])),
  ]);
  expect(ends.map(({ code }) => code)).toEqual(["opened", "PRIVACY_SEAL_BROKEN", "PRIVACY_SEAL_BROKEN"]);
});

test("two streams cannot be joined, and chunks cannot be exchanged", async () => {
  const other = { ...stream, key: randomBytes(32) };
  const mine = await sealed(plain);
  const theirs = await all(encryptChunks(other, pieces(plain)));
  const mixed = [
    Buffer.concat([part(mine, 0), part(theirs, 1), part(mine, 2)]),
    Buffer.concat([mine, theirs]),
    theirs,
  ];
  const ends = await Promise.all(mixed.map((stored) => opened(stored)));
  expect(ends.map(({ code }) => code)).toEqual(Array(3).fill("PRIVACY_SEAL_BROKEN"));
  expect((await opened(mine, { ...stream, bound: "other salt" })).code).toBe("PRIVACY_SEAL_BROKEN");
});

test("none of 10,000 changed streams is decrypted, and no foreign byte is yielded", async () => {
  const random = seededRandom(20261117);
  const below = (n: number): number => Math.floor(random() * n);
  const originals = await Promise.all(
    [0, 1, 300, CHUNK, CHUNK + 1].map(async (length) => ({
      plain: plain.subarray(0, length),
      stored: await sealed(plain.subarray(0, length)),
    })),
  );
  const ends = new Map<string, number>();
  let strange = 0;
  for (let n = 0; n < 10_000; n++) {
    // Small streams are fast and have the same parts, so only every tenth one is large.
    const one = originals[n % 10 === 0 ? 3 + below(2) : below(3)];
    if (one === undefined) continue;
    const changed = mutate(one.stored, below);
    if (changed.equals(one.stored)) continue;
    const { code, handedOut } = await opened(changed, stream, 1 + below(2 * STORED));
    ends.set(code, (ends.get(code) ?? 0) + 1);
    if (!one.plain.subarray(0, handedOut.length).equals(handedOut)) strange += 1;
  }
  expect([[...ends.keys()], strange]).toEqual([["PRIVACY_SEAL_BROKEN"], 0]);
  expect(ends.get("PRIVACY_SEAL_BROKEN")).toBeGreaterThan(9_500);
}, 120_000);

function mutate(stored: Buffer, below: (n: number) => number): Buffer {
  const at = below(stored.length);
  const noise = Buffer.from(Array.from({ length: 1 + below(40) }, () => below(256)));
  switch (below(6)) {
    case 0:
      return stored.subarray(0, at);
    case 1:
      return stored.subarray(at);
    case 2:
      return Buffer.concat([stored.subarray(0, at), noise, stored.subarray(at)]);
    case 3:
      return Buffer.concat([stored, stored.subarray(at)]);
    case 4:
      return Buffer.concat([stored.subarray(at), stored.subarray(0, at)]);
    default: {
      const copy = Buffer.from(stored);
      copy[at] = (copy[at] ?? 0) ^ (1 << below(8));
      return copy;
    }
  }
}

test("the source is read on demand, and closed when the reader stops", async () => {
  const stored = await sealed(plain);
  let asked = 0;
  let ended = false;
  const source = async function* (): AsyncGenerator<Uint8Array> {
    try {
      for (let n = 0; n < 3; n++) {
        asked += 1;
        yield part(stored, n);
      }
    } finally {
      ended = true;
    }
  };
  for await (const chunk of decryptChunks(stream, source())) {
    expect(chunk.equals(plain.subarray(0, CHUNK))).toBe(true);
    break;
  }
  expect([asked, ended]).toEqual([2, true]);
});
