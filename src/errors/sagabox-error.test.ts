import { inspect } from "node:util";
import { expect, test } from "vitest";
import { isSagaboxError, NotInTransactionError, PayloadError, SagaboxError } from "./index.ts";
import { errorText, toError } from "./sagabox-error.ts";

test("an error keeps its code, its text and its cause", () => {
  const cause = new Error("socket closed");
  const error = new SagaboxError("STORAGE_UNAVAILABLE", "The database does not answer.", { cause });
  expect(error).toMatchObject({
    code: "STORAGE_UNAVAILABLE",
    message: "The database does not answer.",
    cause,
  });
  expect(inspect(error)).toContain("SagaboxError: The database does not answer.");
});

test("an error without a cause has no cause property", () => {
  expect("cause" in new SagaboxError("BUS_STOPPED", "stopped")).toBe(false);
  expect("cause" in new PayloadError("PAYLOAD_NUL", "nul")).toBe(false);
});

test("errors are recognised by code", () => {
  const error: unknown = new SagaboxError("OUTBOX_FULL", "full");
  expect(isSagaboxError(error)).toBe(true);
  expect(isSagaboxError(error, "OUTBOX_FULL")).toBe(true);
  expect(isSagaboxError(error, "BUS_STOPPED")).toBe(false);
});

test.each([undefined, null, "OUTBOX_FULL", new Error("x"), { code: "OUTBOX_FULL" }])(
  "%o is not an error of ours",
  (value) => {
    expect(isSagaboxError(value)).toBe(false);
  },
);

test("an error of another copy of the package is recognised", () => {
  const foreign = Object.assign(new Error("full"), {
    code: "OUTBOX_FULL",
    [Symbol.for("sagabox.error")]: true,
  });
  expect(isSagaboxError(foreign, "OUTBOX_FULL")).toBe(true);
});

test("subclasses can be caught by name", () => {
  const error = new NotInTransactionError("no transaction");
  expect(error).toBeInstanceOf(NotInTransactionError);
  expect(error).toBeInstanceOf(SagaboxError);
  expect(error.name).toBe("NotInTransactionError");
  expect(isSagaboxError(error, "NOT_IN_TRANSACTION")).toBe(true);
});

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
