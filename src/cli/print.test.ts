import { expect, test } from "vitest";
import { SagaboxError } from "../errors/index.ts";
import { fullErrorText, jsonText, table } from "./print.ts";

test("columns are as wide as their widest cell, and nothing is shown as a dash", () => {
  expect(
    table(
      ["id", "name"],
      [
        [1, "first"],
        [22, null],
      ],
    ),
  ).toBe(["id  name", "──  ─────", "1   first", "22  –"].join("\n"));
});

test("data with terminal escapes cannot repaint the table or forge a row", () => {
  const shown = table(["name"], [["\u001b[2J\r\nforged\u202e"]]);
  expect(shown.split("\n")).toHaveLength(3);
  // eslint-disable-next-line no-control-regex -- control characters are what this is about
  expect(shown).not.toMatch(/[\u001b\r\u202e]/);
  expect(jsonText({ a: "\u001b\u202e" })).toBe('{"a":"\\u001b\\u202e"}');
});

test("an error shows its code, and neither a password nor a stack", () => {
  const error = new SagaboxError("STORAGE_UNAVAILABLE", "postgres://app:canary@db cannot be reached.");
  expect(fullErrorText(error, false)).toBe("postgres://app:***@db cannot be reached. [STORAGE_UNAVAILABLE]");
});

test("the stack and the cause are shown when asked for", () => {
  const error = new SagaboxError("APP_MODULE_INVALID", "no", { cause: new TypeError("deep down") });
  expect(fullErrorText(error, true)).toMatch(
    /no \[APP_MODULE_INVALID\]\n.*print\.test.*Caused by: TypeError: deep down/s,
  );
});

const id = "0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11";
const sample = {
  headings: ["group", "type", "error", "sample"],
  rows: [
    ["3f9a0c21b7de", "order.placed", "TypeError: the carrier did not answer within its time", 4711],
    ["77aa0c21b7de", "order.placed", null, 4712],
  ],
};
const sampleTable = (columns?: number): string => table(sample.headings, sample.rows, columns);

test("a table that fits the terminal is printed in full", () => {
  expect(sampleTable(200)).toBe(sampleTable());
});

test("in a narrower terminal the longest sentence is cut first and everything else stays", () => {
  expect(sampleTable(52).split("\n")).toEqual([
    "group         type          error             sample",
    "────────────  ────────────  ────────────────  ──────",
    "3f9a0c21b7de  order.placed  TypeError: the …  4711",
    "77aa0c21b7de  order.placed  –                 4712",
  ]);
});

test("in a very narrow terminal sentences follow below their row, and no id is cut", () => {
  expect(sampleTable(40).split("\n")).toEqual([
    "group         type          sample",
    "────────────  ────────────  ──────",
    "3f9a0c21b7de  order.placed  4711",
    "  error: TypeError: the carrier did not…",
    "77aa0c21b7de  order.placed  4712",
  ]);
  expect(table(["at", "message"], [["now", id]], 20)).toContain(id);
});

test("lists of dead letters fit into 80 columns with whole times and ids", () => {
  const at = "2026-11-17T08:15:42Z";
  const error = "HANDLER_TIMEOUT: The handler of order.placed did not finish within 30 s";
  const groups = table(
    "group open consumer type died error first last sample replayed discarded".split(" "),
    [["3f9a0c21b7de", 6, "billing", "order.placed", "exhausted", error, at, at, "4711", 12, 3]],
    80,
  );
  expect(groups.split("\n")).toEqual([
    "group         open  consumer  type          died       first",
    "────────────  ────  ────────  ────────────  ─────────  ────────────────────",
    `3f9a0c21b7de  6     billing   order.placed  exhausted  ${at}`,
    `  error: ${error}`,
    `  last: ${at}  sample: 4711  replayed: 12  discarded: 3`,
  ]);
  const letters = table(
    "letter group consumer type message key died attempts error at closed".split(" "),
    [["4711", "3f9a0c21b7de", "billing", "order.placed", id, "k1", "exhausted", 10, error, at, null]],
    80,
  );
  expect(letters.split("\n")).toEqual([
    "letter  group         consumer  type          key  died       attempts  closed",
    "──────  ────────────  ────────  ────────────  ───  ─────────  ────────  ──────",
    "4711    3f9a0c21b7de  billing   order.placed  k1   exhausted  10        –",
    `  message: ${id}`,
    `  error: ${error}`,
    `  at: ${at}`,
  ]);
});
