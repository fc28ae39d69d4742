import { expect, test } from "vitest";
import { laneCount, laneFor, streamFor } from "./lane-hash.ts";

// The database holds these numbers. If this test fails, the change breaks every installation: undo it.
test("lanes and streams are frozen", () => {
  const keys = [
    "",
    "a",
    "b",
    "ORD-12345",
    "Straße",
    "日本語",
    "😀",
    "0190b2f4-7c00-7abc-8def-0123456789ab",
    "x".repeat(255),
  ];
  expect(keys.map((key) => [laneFor(key), streamFor("events.order.created", key)])).toEqual([
    [76, "5588957010787030170"],
    [120, "-5548870300421219507"],
    [125, "2240309934538151737"],
    [180, "8478602586172568721"],
    [6, "5355510557475561643"],
    [25, "9051396206813024437"],
    [167, "-13679025017239158"],
    [145, "-5298433022334397276"],
    [109, "4186910905181990144"],
  ]);
});

function chiSquare(keys: Iterable<string>): number {
  const counts = Array.from({ length: laneCount }, () => 0);
  let total = 0;
  for (const key of keys) {
    const lane = laneFor(key);
    counts[lane] = (counts[lane] ?? 0) + 1;
    total++;
  }
  const expected = total / laneCount;
  return counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
}

// Chi-squared with 255 degrees of freedom: the expected value is 255, and it exceeds 400 once in a hundred
// million runs.
test.each<[shape: string, key: (n: number) => string]>([
  ["numbers", (n) => String(n)],
  ["prefixed numbers", (n) => `ORD-${n}`],
  ["padded numbers", (n) => `customer/${String(n).padStart(12, "0")}`],
  [
    "time-ordered ids",
    (n) => `0190b2f4-${(n >> 8).toString(16).padStart(4, "0")}-7000-8000-${n.toString(16).padStart(12, "0")}`,
  ],
  ["non-Latin characters", (n) => `ключ-${n}`],
])("100,000 keys made of %s spread evenly over the lanes", (_, key) => {
  const spread = chiSquare(Array.from({ length: 100_000 }, (__, n) => key(n)));
  expect(spread).toBeLessThan(400);
  expect(spread).toBeGreaterThan(150);
});

test("100,000 keys have distinct streams", () => {
  const streams = new Set(Array.from({ length: 100_000 }, (_, n) => streamFor("t", `ORD-${n}`)));
  expect(streams.size).toBe(100_000);
});

test("both halves of the stream number are evenly distributed", () => {
  const numbers = Array.from({ length: 100_000 }, (_, n) =>
    BigInt.asUintN(64, BigInt(streamFor("t", `k${n}`))),
  );
  // Drawing 100,000 of 2^32 gives about one collision.
  expect(new Set(numbers.map((n) => n >> 32n)).size).toBeGreaterThan(99_985);
  expect(new Set(numbers.map((n) => n & 0xffff_ffffn)).size).toBeGreaterThan(99_985);
});

test("moving a character from topic to key changes the stream", () => {
  expect(streamFor("ab", "c")).not.toBe(streamFor("a", "bc"));
  expect(streamFor("a", "b")).not.toBe(streamFor("b", "a"));
});

test("a stream is a signed 64-bit number in decimal", () => {
  for (let n = 0; n < 1_000; n++) {
    const stream = BigInt(streamFor("t", String(n)));
    expect(BigInt.asIntN(64, stream)).toBe(stream);
  }
});
