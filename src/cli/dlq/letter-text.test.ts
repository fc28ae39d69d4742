import { expect, test } from "vitest";
import { stackLines } from "./letter-text.ts";

const at = "    at ship (/app/ship.js:7:9)\n    at run (/app/run.js:1:1)";
const frames = ["", "  at ship (/app/ship.js:7:9)", "  at run (/app/run.js:1:1)"];

test("a stack is shown without the error it begins with, however long that is", () => {
  expect(stackLines(`TypeError: no carrier\n${at}`, "no carrier")).toEqual(frames);
  const long = `refused:\n${"x".repeat(3_000)}`;
  expect(stackLines(`Error: ${long}\n${at}`, long)).toEqual(frames);
});

test("what a stack says besides is shown, and one that says nothing more is not", () => {
  expect(stackLines(`Error: another text\n${at}`, "no carrier")[1]).toBe("  Error: another text");
  expect(stackLines("TypeError: no carrier", "no carrier")).toEqual([]);
  expect(stackLines(null, "no carrier")).toEqual([]);
});
