import { expect, test } from "vitest";
import { command, event } from "sagabox";
import { z } from "zod";
import { saga } from "./index.ts";
import { compareStructures, hashStructure, describeStructure } from "./stored-definitions.ts";

const any = z.object({});
const Reserve = command("stock.reserve", { schema: any, reply: any });
const Release = command("stock.release", { schema: any });
const Approved = event("approvals.given", { schema: z.object({ id: z.string() }), key: (d) => d.id });
const options = { version: 1, input: z.object({ id: z.string() }), key: (i: { id: string }) => i.id };
const none = (): Record<string, never> => ({});
const nothing = (): void => undefined;
const child = saga("child", { ...options, version: 7 }).delay("pause", 10);

/** Every kind of node; the functions and options are those of the caller. */
const everything = (result: () => number, delayMs: number, reversed = false) => {
  const ways = {
    fast: (s: ReturnType<typeof start>) => s.send("fly", Reserve, none).undo(Release, none),
    slow: (s: ReturnType<typeof start>) => s.delay("sail", delayMs),
  };
  const start = () =>
    saga("order", options)
      .send("reserve", Reserve, none, { timeout: delayMs })
      .undo(Release, none)
      .run("charge", result, { retry: { maxAttempts: delayMs } })
      .undo(nothing)
      .all("both", (g) => g.run("a", result, { undo: nothing }).run("b", result, { undo: { none: "free" } }));
  return start()
    .choose("how", () => "fast", reversed ? { slow: ways.slow, fast: ways.fast } : ways)
    .repeat(
      "loop",
      (s) => s.tx("poll", result).noUndo("a question"),
      () => delayMs > 5,
      { max: delayMs },
    )
    .waitFor("approval", Approved, { timeout: delayMs })
    .child("part", child, (c) => c.input)
    .undoChild()
    .send("ship", Reserve, none)
    .pivot()
    .any("quotes", (g) => g.run("x", result).run("y", result));
};

test("the hash of a structure is the same in every release", () => {
  expect(hashStructure(describeStructure(everything(() => 1, 10).definition))).toBe(
    "16f95e378469b90696b3402498eb441a7932cfe5672b47345b1fc671de2e67b1",
  );
});

test("other functions, timeouts, retries and another order of ways have the same hash", () => {
  const hash = (definition: Parameters<typeof describeStructure>[0]) =>
    hashStructure(describeStructure(definition));
  const other = everything(() => Number("2") * 3, 99, true);
  expect(hash(other.definition)).toBe(hash(everything(() => 1, 10).definition));
});

test("names, kinds, order, undos and the pivot each change the hash", () => {
  const base = saga("order", options);
  const reserved = base.send("a", Reserve, none).undo(Release, none);
  const variants = [
    reserved,
    base.send("b", Reserve, none).undo(Release, none),
    base.run("a", none).undo(nothing),
    base.send("a", Reserve, none).undo(nothing),
    base.send("a", Reserve, none).noUndo("free"),
    base.send("a", Reserve, none).pivot(),
    reserved.delay("b", 1),
    base.delay("b", 1).send("a", Reserve, none).undo(Release, none),
    base.when(
      "w",
      () => true,
      (s) => s.send("a", Reserve, none).undo(Release, none),
    ),
  ];
  const hashes = variants.map(({ definition }) => hashStructure(describeStructure(definition)));
  expect(new Set(hashes).size).toBe(variants.length);
});

test("a comparison says what changed, and what an instance with such a record cannot continue with", () => {
  const base = saga("order", options);
  const before = base
    .send("a", Reserve, none)
    .undo(Release, none)
    .send("b", Reserve, none)
    .undo(Release, none)
    .run("c", none)
    .undo(nothing)
    .delay("d", 1)
    .send("e", Reserve, none)
    .undo(Release, none);
  const after = base
    .run("a", none)
    .undo(nothing)
    .delay("d", 1)
    .send("b", Reserve, none)
    .noUndo("free")
    .when(
      "w",
      () => true,
      (s) => s.run("c", none).undo(nothing),
    )
    .delay("f", 1);
  expect(
    compareStructures(describeStructure(before.definition), describeStructure(after.definition)),
  ).toEqual([
    { path: "a", why: "was of the kind send and is run now", isSafe: false },
    { path: "a", why: "had an undo of the kind send and has an undo of the kind run now", isSafe: true },
    { path: "b", why: "had an undo of the kind send and has no undo now", isSafe: false },
    { path: "c", why: "was at the top level and is inside branch w taken now", isSafe: false },
    { path: "e", why: "was removed or renamed (send)", isSafe: false },
    { path: "w", why: "was added (branch)", isSafe: true },
    { path: "f", why: "was added (delay)", isSafe: true },
    { path: "d", why: "has moved to another position", isSafe: true },
  ]);
  expect(compareStructures(describeStructure(after.definition), describeStructure(after.definition))).toEqual(
    [],
  );
});

test("a step that moves across the pivot loses its undo", () => {
  const base = saga("order", options);
  const before = base.send("a", Reserve, none).undo(Release, none).send("b", Reserve, none).pivot();
  const after = base.send("b", Reserve, none).pivot().send("a", Reserve, none);
  const differences = compareStructures(
    describeStructure(before.definition),
    describeStructure(after.definition),
  );
  expect(differences).toContainEqual({
    path: "a",
    why: "had an undo of the kind send and has no undo now",
    isSafe: false,
  });
});
