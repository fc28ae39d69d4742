import { expect, test } from "vitest";
import { findFieldPaths, replaceAt, valueAt } from "./field-paths.ts";

const data = { a: { b: 1, c: null }, list: [{ n: 1 }, { m: 2 }, { n: 3 }], gone: undefined, "x.y": 1 };

test.each([
  [["a.b"], [["a", "b"]]],
  [["a"], [["a"]]],
  [["a", "a.b"], [["a"]]],
  [["a.c"], [["a", "c"]]],
  [
    ["list.*.n"],
    [
      ["list", 0, "n"],
      ["list", 2, "n"],
    ],
  ],
  [
    ["list.*"],
    [
      ["list", 0],
      ["list", 1],
      ["list", 2],
    ],
  ],
  [["list.1"], [["list", 1]]],
  [
    ["list.*", "list.0.n"],
    [
      ["list", 0],
      ["list", 1],
      ["list", 2],
    ],
  ],
  [
    ["a.*"],
    [
      ["a", "b"],
      ["a", "c"],
    ],
  ],
  [["gone", "none", "a.b.c", "list.9", "list.x", "__proto__", "a.constructor"], []],
])("C6: %j names %j", (patterns, places) => {
  expect(findFieldPaths(data, patterns)).toEqual(places);
});

test("C6: values are replaced at their paths, and the original is not changed", () => {
  const places = findFieldPaths(data, ["a.b", "list.*.n"]) ?? [];
  const changed = replaceAt(
    data,
    new Map(places.map((place) => [place, `was ${String(valueAt(data, place))}`])),
  );
  expect(changed).toEqual({
    ...data,
    a: { b: "was 1", c: null },
    list: [{ n: "was 1" }, { m: 2 }, { n: "was 3" }],
  });
  expect(data.a.b).toBe(1);
});

test("C6: the number of paths in one message is limited", () => {
  expect(findFieldPaths({ list: Array.from({ length: 20_000 }, () => 1) }, ["list.*"])).toBeUndefined();
});
