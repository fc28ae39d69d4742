import { expect, test } from "vitest";
import { errorText, toError } from "./sagabox-error.ts";

class Mute extends Error {
  override get message(): string {
    throw new Error("not even that");
  }
}

test.each([
  [new Error("no seats left"), "no seats left"],
  ["no seats left", "no seats left"],
  [undefined, "undefined"],
  [Object.create(null), "a value without a text was thrown"],
  [new Mute(), "a value without a text was thrown"],
  [Symbol("seat"), "Symbol(seat)"],
])("every thrown value has a text (%#)", (thrown: unknown, text) => {
  expect(errorText(thrown)).toBe(text);
});

test("an error stays itself, anything else becomes one", () => {
  const error = new Error("no seats left");
  expect(toError(error)).toBe(error);
  expect(toError(Object.create(null))).toEqual(new Error("a value without a text was thrown"));
});
