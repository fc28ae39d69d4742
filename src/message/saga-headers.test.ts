import { expect, test } from "vitest";
import {
  checkHeaders,
  formatReferences,
  parseReferences,
  supersedesHeader,
  undoesHeader,
} from "./headers.ts";

test.each([
  [["a"], "stock.reserve a"],
  [["a", "b", "a"], "stock.reserve a,b"],
  [["saga-7:reserve:1"], "stock.reserve saga-7:reserve:1"],
  [["a,b", "100 %", "ü\u00a0x"], "stock.reserve a%2Cb,100%20%25,ü%C2%A0x"],
])("references to %j read %s, and back", (ids, value) => {
  expect(formatReferences("stock.reserve", ids)).toBe(value);
  expect(parseReferences(value)).toEqual({ type: "stock.reserve", ids: [...new Set(ids)] });
});

test.each([
  "",
  "stock.reserve",
  "stock.reserve ",
  " a",
  "stock.reserve a b",
  "stock.reserve  a",
  "stock.reserve a,",
  "stock.reserve a,,b",
  "stock.reserve a%",
  "stock.reserve %20",
  "stock.reserve a%00",
  `stock.reserve ${"x".repeat(256)}`,
])("the value %j is refused, not guessed at", (value) => {
  expect(() => parseReferences(value)).toThrowError(
    expect.objectContaining({
      code: "HEADER_INVALID",
      message: expect.stringContaining("refers to earlier"),
    }),
  );
});

test("values that could not be parsed again are refused", () => {
  expect(() => formatReferences("stock reserve", ["a"])).toThrowError(/not a contract name/);
  expect(() => formatReferences("stock.reserve", [])).toThrowError(/lists no message id/);
  expect(() => formatReferences("stock.reserve", ["a", "  "])).toThrowError(/an id must be/);
  const many = Array.from({ length: 1_000 }, (_, n) => `message-${n}`);
  expect(() => formatReferences("stock.reserve", many)).toThrowError(/longer than 8192 bytes/);
});

test.each([undoesHeader, supersedesHeader])("no caller can set %s by hand", (name) => {
  expect(() => checkHeaders({ [name]: "stock.reserve a" })).toThrowError(/is reserved/);
});
