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

test("on a narrow screen sentences stand below their row, and nothing that people copy is cut", () => {
  expect(fitTables(wide, 40).split("\n")).toEqual([
    "group         type          sample",
    "────────────  ────────────  ──────",
    "3f9a0c21b7de  order.placed  4711",
    "  error: TypeError: the carrier did not…",
    "77aa0c21b7de  order.placed  4712",
  ]);
  expect(fitTables(table(["at", "message"], [["now", id]]), 20)).toContain(id);
});

test("the lists of dead letters are read on 80 columns: no line wraps, times and ids are whole", () => {
  const at = "2026-11-17T08:15:42Z";
  const error = "HANDLER_TIMEOUT: The handler of order.placed did not finish within 30 s";
  const groups = table(
    "group open consumer type died error first last sample replayed discarded".split(" "),
    [["3f9a0c21b7de", 6, "billing", "order.placed", "exhausted", error, at, at, "4711", 12, 3]],
  );
  const letters = table("letter group consumer type message key died attempts error at closed".split(" "), [
    ["4711", "3f9a0c21b7de", "billing", "order.placed", id, "k1", "exhausted", 10, error, at, null],
  ]);
  expect(fitTables(`${groups}\n\n${letters}`, 80).split("\n")).toEqual([
    "group         open  consumer  type          died       first",
    "────────────  ────  ────────  ────────────  ─────────  ────────────────────",
    `3f9a0c21b7de  6     billing   order.placed  exhausted  ${at}`,
    `  error: ${error}`,
    `  last: ${at}  sample: 4711  replayed: 12  discarded: 3`,
    "",
    "letter  group         consumer  type          key  died       attempts  closed",
    "──────  ────────────  ────────  ────────────  ───  ─────────  ────────  ──────",
    "4711    3f9a0c21b7de  billing   order.placed  k1   exhausted  10        –",
    `  message: ${id}`,
    `  error: ${error}`,
    `  at: ${at}`,
  ]);
});

test("two tables are fitted each, also behind the sequence that clears the screen", () => {
  const lines = fitTables(`${CLEAR}${wide}\n\n${wide}`, 52).split("\n");
  expect(lines[0]?.startsWith(`${CLEAR}group  `)).toBe(true);
  expect(lines.filter((line) => line.includes("TypeError: the …"))).toHaveLength(2);
});
