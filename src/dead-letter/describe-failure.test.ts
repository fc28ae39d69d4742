import { expect, test } from "vitest";
import { permanent, SagaboxError } from "../errors/index.ts";
import { describeFailure } from "./describe-failure.ts";

test("a SagaboxError is named by its code, a verdict by its kind", () => {
  expect(describeFailure(new SagaboxError("PAYLOAD_INVALID", "no")).errorType).toBe("PAYLOAD_INVALID");
  expect(describeFailure(permanent("card is closed"))).toMatchObject({
    errorType: "Permanent",
    errorMessage: "card is closed",
  });
});

test("an error named error is named by its class", () => {
  class CardDeclined extends Error {}
  expect(describeFailure(new CardDeclined("no")).errorType).toBe("CardDeclined");
});

test("causes are listed, also when they form a cycle", () => {
  const inner = new Error("socket closed");
  const outer = new Error("charge failed", { cause: inner });
  inner.cause = outer;
  const described = describeFailure(outer);
  expect(described.errorMessage).toBe("charge failed ← socket closed");
  expect(described.stackTrace).toContain("caused by: Error: socket closed");
});

test("R-12: a stack of megabytes is cut to 8 kB and control characters are replaced", () => {
  const error = new Error("a\u0000b\u001b[31mc");
  error.stack = "é".repeat(5_000_000);
  const described = describeFailure(error);
  expect(described.errorMessage).toBe("a\uFFFDb\uFFFD[31mc");
  expect(Buffer.byteLength(described.stackTrace ?? "")).toBeLessThanOrEqual(8_195);
});

test.each([
  [undefined, "thrown undefined", "undefined"],
  [null, "thrown null", "null"],
  ["late", "thrown string", "late"],
])("%s can be described although it is not an error", (thrown, errorType, errorMessage) => {
  expect(describeFailure(thrown)).toEqual({ errorType, errorMessage, stackTrace: null });
});

test("a thrown value that resists being read is still described", () => {
  const hostile = Object.create(null) as object;
  expect(describeFailure(hostile).errorMessage).toBe("a value without a text was thrown");
  const nameless = Object.defineProperty(new Error("late"), "name", { get: () => never() });
  expect(describeFailure(nameless).errorMessage).toBe("The failure could not be described.");
});

function never(): never {
  throw new Error("not even a name");
}
