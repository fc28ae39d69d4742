import fc from "fast-check";
import { expect, test } from "vitest";
import { consumerRetryPolicy, outboxRetryPolicy, retryDelay, retryPolicy } from "./index.ts";

const longest = () => 0.999_999_999;

test("the outbox waits up to 2 s, doubling, and never beyond an hour", () => {
  const bounds = [1, 2, 3, 10, 11, 12, 500].map((attempt) => retryDelay(outboxRetryPolicy, attempt, longest));
  expect(bounds).toEqual([2_000, 4_000, 8_000, 1_024_000, 2_048_000, 3_600_000, 3_600_000]);
});

test("a consumer waits up to 1 s, doubling, and never beyond a minute", () => {
  const bounds = [1, 2, 6, 7, 8].map((attempt) => retryDelay(consumerRetryPolicy, attempt, longest));
  expect(bounds).toEqual([1_000, 2_000, 32_000, 60_000, 60_000]);
});

test("the defaults are 10 attempts for the outbox and 5 retries for consumers", () => {
  expect(outboxRetryPolicy.maxAttempts).toBe(10);
  expect(consumerRetryPolicy.maxAttempts).toBe(1 + 5);
});

test("the jitter is full: delays start at zero", () => {
  expect(retryDelay(outboxRetryPolicy, 3, () => 0)).toBe(0);
  expect(retryDelay(outboxRetryPolicy, 3, () => 0.5)).toBe(4_000);
});

test("a delay is always a whole number within the bounds", () => {
  const anyDraw = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 2_000 }), anyDraw, (attempt, drawn) => {
      const delay = retryDelay(outboxRetryPolicy, attempt, () => drawn);
      return Number.isInteger(delay) && delay >= 0 && delay <= outboxRetryPolicy.maxDelayMs;
    }),
  );
});

test("options override the defaults", () => {
  expect(retryPolicy("outbox.retry", { maxAttempts: 3, firstDelay: "500ms" }, outboxRetryPolicy)).toEqual({
    ...outboxRetryPolicy,
    maxAttempts: 3,
    firstDelayMs: 500,
  });
});

test("invalid options are rejected by name", () => {
  const read = (options: object) => () => retryPolicy("outbox.retry", options, outboxRetryPolicy);
  expect(read({ maxAttempts: 0 })).toThrowError("outbox.retry.maxAttempts must be a whole number from 1");
  expect(read({ maxDelay: "long" })).toThrowError("outbox.retry.maxDelay must be a duration");
  expect(read({ attempts: 3 })).toThrowError('outbox.retry has no option "attempts"');
});
