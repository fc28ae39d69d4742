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
