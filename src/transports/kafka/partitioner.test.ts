import { expect, test } from "vitest";
import { murmur2, partitionFor } from "./publisher.ts";

test.each([
  ["21", -973932308],
  ["foobar", -790332482],
  ["a-little-bit-long-string", -985981536],
  ["a-little-bit-longer-string", -1486304829],
  ["lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971],
  ["abc", 479470107],
])("P-16: %s has the hash that Kafka's own tests give it", (key, hash) => {
  expect(murmur2(Buffer.from(key))).toBe(hash);
});

test("a negative hash maps to a valid partition", () => {
  expect(partitionFor(Buffer.from("foobar"), 12)).toBe((-790332482 & 0x7fffffff) % 12);
  expect(partitionFor(Buffer.alloc(0), 12)).toBeGreaterThanOrEqual(0);
});
