import { expect, test } from "vitest";
import { createIdSource, isValidId, parseIdTime } from "./message-id.ts";

function counting(): (size: number) => Uint8Array {
  let next = 0;
  return (size) => Uint8Array.from({ length: size }, () => (next = (next * 5 + 17) % 256));
}

const always = (byte: number) => (size: number) => new Uint8Array(size).fill(byte);

test("an id is a UUID of version 7 that begins with the time", () => {
  const id = createIdSource({ wallMs: () => 0x0190_1234_5678, randomBytes: counting() })();
  expect(id).toMatch(/^01901234-5678-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

test("ids of one millisecond are different and in order", () => {
  const next = createIdSource({ wallMs: () => 1_700_000_000_000, randomBytes: counting() });
  const ids = Array.from({ length: 100_000 }, next);
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids).toEqual([...ids].sort());
});

test("ids stay in order while the clock jumps back", () => {
  const times = [5_000, 4_000, 1, 5_000, 5_001, 0];
  let step = 0;
  const next = createIdSource({ wallMs: () => times[step++ % times.length] ?? 0, randomBytes: counting() });
  const ids = Array.from({ length: 600 }, next);
  expect(ids).toEqual([...ids].sort());
});

test("ids stay in order and valid when the counter overflows", () => {
  const next = createIdSource({ wallMs: () => 1_000, randomBytes: always(0xff) });
  const ids = Array.from({ length: 200_000 }, next);
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids).toEqual([...ids].sort());
  expect(ids.at(-1)).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

test("two processes that start in the same millisecond give different ids", () => {
  const first = createIdSource({ wallMs: () => 1_000, randomBytes: always(1) });
  const second = createIdSource({ wallMs: () => 1_000, randomBytes: always(2) });
  expect(first()).not.toBe(second());
});

test.each(["a", "ORD-12345", "0190b2f4-0000-7000-8000-000000000000", "ключ", "x".repeat(255)])(
  "%s can be an id",
  (id) => {
    expect(isValidId(id)).toBe(true);
  },
);

test.each(["", " ", "\t", "a\nb", "a\u0000", "a\u007f", "\ud83d", "x".repeat(256), 1, null, undefined, {}])(
  "%j cannot be an id",
  (id) => {
    expect(isValidId(id)).toBe(false);
  },
);

test("a generated id contains its creation time; other ids do not", () => {
  const next = createIdSource({ wallMs: () => 1_794_000_000_123, randomBytes: always(7) });
  expect(parseIdTime(next())).toBe(1_794_000_000_123);
  expect(["d1", "0190b2f4-0000-4000-8000-000000000000"].map(parseIdTime)).toEqual([undefined, undefined]);
});
