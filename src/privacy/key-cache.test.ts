import { expect, test } from "vitest";
import { KeyCache } from "./key-cache.ts";

const key = (keyId: string, subject = "s") => ({ keyId, subject, bytes: new Uint8Array(32) });

function setup(size = 10) {
  const clock = { now: 0, wallMs: () => 0, monotonicMs: () => clock.now };
  return { clock, cache: new KeyCache({ ttlMs: 1_000, size, clock }) };
}

test("C-08: a key expires after its time to live, counted from before it was read, even if it is used", () => {
  const { clock, cache } = setup();
  clock.now = 500;
  cache.keep(key("a"), 100);
  cache.makeCurrent(key("a"));
  clock.now = 1_099;
  expect([cache.get("a")?.keyId, cache.getCurrent("s")?.keyId]).toEqual(["a", "a"]);
  cache.keep(key("a"), 1_000); // read again meanwhile by somebody else
  clock.now = 1_100;
  expect([cache.get("a"), cache.getCurrent("s")]).toEqual([undefined, undefined]);
});

test("C-08: the keys of an erased subject are removed at once", () => {
  const { cache } = setup();
  for (const [id, subject] of [
    ["a", "s"],
    ["b", "s"],
    ["c", "t"],
  ] as const)
    cache.keep(key(id, subject), 0);
  cache.makeCurrent(key("b"));
  cache.forget("s");
  expect([cache.get("a"), cache.get("b"), cache.getCurrent("s"), cache.get("c")?.keyId]).toEqual([
    undefined,
    undefined,
    undefined,
    "c",
  ]);
});

test("C6: the cache is limited, and the least recently used key is removed first", () => {
  const { cache } = setup(2);
  cache.keep(key("a"), 0);
  cache.keep(key("b"), 0);
  cache.get("a");
  cache.keep(key("c"), 0);
  expect([cache.get("a")?.keyId, cache.get("b"), cache.get("c")?.keyId]).toEqual(["a", undefined, "c"]);
});
