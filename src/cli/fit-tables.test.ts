import { expect, test } from "vitest";
import { fitTables } from "./fit-tables.ts";
import { table } from "./print.ts";
import { CLEAR } from "./watch.ts";

const id = "0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11";
const wide = table(
  ["group", "type", "error", "sample"],
  [
    ["3f9a0c21b7de", "order.placed", "TypeError: the carrier did not answer within its time", 4711],
    ["77aa0c21b7de", "order.placed", null, 4712],
  ],
);

test("a table that fits the screen, and text that is no table, are left as they are", () => {
  expect(fitTables(wide, 200)).toBe(wide);
  const prose = `A sentence that is longer than the screen.\n\n${"x".repeat(50)}`;
  expect(fitTables(prose, 20)).toBe(prose);
});

test("the longest sentence is cut first, everything else stays", () => {
  expect(
    fitTables(`Open:\n\n${wide}\n\nLook at one: sagabox dlq show 4711, which says it all`, 52).split("\n"),
  ).toEqual([
    "Open:",
    "",
    "group         type          error             sample",
    "────────────  ────────────  ────────────────  ──────",
    "3f9a0c21b7de  order.placed  TypeError: the …  4711",
    "77aa0c21b7de  order.placed  –                 4712",
    "",
    "Look at one: sagabox dlq show 4711, which says it all",
  ]);
});

test("on a narrow screen names are cut too, but never what people copy", () => {
  const lines = fitTables(wide, 40).split("\n");
  expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(40);
  expect(lines[2]).toMatch(/^3f9a0c21b7de {2}order.*… {2}TypeErr… {2}4711$/);
  expect(fitTables(table(["at", "message"], [["now", id]]), 20)).toContain(id);
});

test("two tables are fitted each, also behind the sequence that clears the screen", () => {
  const lines = fitTables(`${CLEAR}${wide}\n\n${wide}`, 52).split("\n");
  expect(lines[0]?.startsWith(`${CLEAR}group  `)).toBe(true);
  expect(lines.filter((line) => line.includes("TypeError: the …"))).toHaveLength(2);
});
