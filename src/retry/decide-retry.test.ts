import { expect, test } from "vitest";
import { permanent, retryAfter } from "../errors/index.ts";
import { decideRetry, failureOf, outboxRetryPolicy } from "./index.ts";

const half = () => 0.5;

test("a failure with attempts left is tried again later and charged", () => {
  expect(decideRetry(outboxRetryPolicy, 1, { kind: "retryable" }, half)).toEqual({
    kind: "retry",
    delayMs: 1_000,
    charged: true,
  });
});

test("the last attempt decides", () => {
  expect(decideRetry(outboxRetryPolicy, 9, { kind: "retryable" }, half).kind).toBe("retry");
  expect(decideRetry(outboxRetryPolicy, 10, { kind: "retryable" }, half)).toEqual({
    kind: "dead",
    reason: "attempts exhausted",
  });
});

test("a permanent failure is dead at once, whatever attempts remain", () => {
  expect(decideRetry(outboxRetryPolicy, 1, { kind: "permanent" }, half)).toEqual({
    kind: "dead",
    reason: "permanent",
  });
});

test("a failure of the infrastructure is never charged and never kills", () => {
  expect(decideRetry(outboxRetryPolicy, 1_000, { kind: "infrastructure" }, half)).toMatchObject({
    kind: "retry",
    charged: false,
  });
});

test("the wait a handler asked for is kept exactly and not charged", () => {
  const failure = failureOf(retryAfter("5m", "rate limited"));
  expect(failure).toEqual({ kind: "retryable", retryAfterMs: 300_000, reason: "rate limited" });
  expect(decideRetry(outboxRetryPolicy, 10, failure, half)).toEqual({
    kind: "retry",
    delayMs: 300_000,
    charged: false,
  });
});

test("a failure carries the reason that was thrown, but not a thrown value that is no error", () => {
  expect(failureOf(permanent("card is closed"))).toEqual({ kind: "permanent", reason: "card is closed" });
  expect(failureOf(new Error("out of stock")).reason).toBe("out of stock");
  expect(failureOf({ card: "4111" }).reason).toBe("threw something that is not an error (object)");
});
