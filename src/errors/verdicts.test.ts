import { expect, test } from "vitest";
import { ignore, isSagaboxError, permanent, refuse, retryAfter, readVerdict } from "./index.ts";

test("a permanent verdict keeps its reason and cause", () => {
  const cause = new Error("closed");
  const thrown = permanent("card is closed", { cause });
  expect(readVerdict(thrown)).toEqual({ kind: "permanent", reason: "card is closed" });
  expect(thrown.cause).toBe(cause);
  expect(thrown).toBeInstanceOf(Error);
});

test("a delay may be a duration or milliseconds", () => {
  expect(readVerdict(retryAfter("5m", "rate limited"))).toEqual({
    kind: "retry-after",
    delayMs: 300_000,
    reason: "rate limited",
  });
  expect(readVerdict(retryAfter(1_500))).toMatchObject({ delayMs: 1_500 });
});

test("retryAfter() throws if the delay is not a duration", () => {
  expect(() => retryAfter(-1)).toThrowError(/retryAfter/);
  try {
    retryAfter(Number.NaN);
    expect.unreachable();
  } catch (error) {
    expect(isSagaboxError(error, "OPTIONS_INVALID")).toBe(true);
  }
});

test("an ignored message says why", () => {
  expect(readVerdict(ignore("order was cancelled"))).toEqual({
    kind: "ignore",
    reason: "order was cancelled",
  });
});

test("a refusal says why, and is told from a message that is ignored", () => {
  expect(readVerdict(refuse("card declined"))).toEqual({ kind: "refuse", reason: "card declined" });
  expect(refuse("card declined").message).toBe("card declined");
});

test.each([undefined, null, "permanent", new Error("permanent"), { kind: "permanent" }])(
  "%o carries no verdict",
  (value) => {
    expect(readVerdict(value)).toBeUndefined();
  },
);

test("a verdict of another copy of the package is recognised", () => {
  const foreign = Object.assign(new Error("x"), {
    [Symbol.for("sagabox.verdict")]: { kind: "ignore", reason: "x" },
  });
  expect(readVerdict(foreign)).toEqual({ kind: "ignore", reason: "x" });
});
