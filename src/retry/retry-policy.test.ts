import fc from "fast-check";
import { expect, test } from "vitest";
import { permanent, retryAfter, SagaboxError } from "../errors/index.ts";
import {
  consumerRetryPolicy,
  decideRetry,
  MAX_FREE_CONFLICTS,
  outboxRetryPolicy,
  retryDelay,
  retryPolicy,
  toFailure,
} from "./index.ts";

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

const half = () => 0.5;
const at = (attempt: number, uncountedBefore = 0) => ({ attempt, uncountedBefore });

test("a failure with attempts left is retried later and counts", () => {
  expect(decideRetry(outboxRetryPolicy, at(1), { kind: "retryable" }, half)).toEqual({
    kind: "retry",
    delayMs: 1_000,
    countsAsAttempt: true,
  });
});

test("the last attempt ends in a dead letter", () => {
  expect(decideRetry(outboxRetryPolicy, at(9), { kind: "retryable" }, half).kind).toBe("retry");
  expect(decideRetry(outboxRetryPolicy, at(10), { kind: "retryable" }, half)).toEqual({
    kind: "dead",
    reason: "attempts exhausted",
  });
});

test("a permanent failure is dead at once, even with attempts left", () => {
  expect(decideRetry(outboxRetryPolicy, at(1), { kind: "permanent" }, half)).toEqual({
    kind: "dead",
    reason: "permanent",
  });
});

test("an infrastructure failure never counts and never kills the message", () => {
  expect(decideRetry(outboxRetryPolicy, at(1_000), { kind: "infrastructure" }, half)).toMatchObject({
    kind: "retry",
    countsAsAttempt: false,
  });
});

test.each([
  ["a conflict", "40P01"],
  ["a refused write", "25006"],
])("%s that the server reports again and again counts as an attempt after a while", (_, code) => {
  const conflict = toFailure(Object.assign(new Error("no"), { code }));
  expect(conflict).toMatchObject({ kind: "infrastructure", mayNeverPass: true });
  const decide = (attempt: number, before: number) =>
    decideRetry(outboxRetryPolicy, at(attempt, before), conflict, half);
  expect(decide(1, MAX_FREE_CONFLICTS - 1)).toMatchObject({ countsAsAttempt: false });
  expect(decide(1, MAX_FREE_CONFLICTS)).toMatchObject({ kind: "retry", countsAsAttempt: true });
  expect(decide(10, MAX_FREE_CONFLICTS)).toMatchObject({ kind: "dead", reason: "attempts exhausted" });
});

test.each(["25P03", "25P04"])(
  "a session that the server ended for its limit (%s) counts after a while",
  (code) => {
    const cause = Object.assign(new Error("terminating connection"), { code });
    const failure = toFailure(new SagaboxError("STORAGE_UNAVAILABLE", "x", { cause }));
    const decide = (before: number) => decideRetry(outboxRetryPolicy, at(1, before), failure, half);
    expect(decide(MAX_FREE_CONFLICTS - 1)).toMatchObject({ countsAsAttempt: false });
    expect(decide(MAX_FREE_CONFLICTS)).toMatchObject({ kind: "retry", countsAsAttempt: true });
  },
);

test.each([
  ["a full disk", toFailure(Object.assign(new Error("no space left"), { code: "53100" }))],
  ["an unreachable database", toFailure(new SagaboxError("STORAGE_UNAVAILABLE", "x"))],
  [
    "an error that the user's classifier calls infrastructure",
    toFailure(Object.assign(new Error("x"), { code: "40001" }), () => "infrastructure"),
  ],
])("%s never counts as an attempt", (_, failure) => {
  expect(decideRetry(outboxRetryPolicy, at(1, 1_000), failure, half)).toMatchObject({
    countsAsAttempt: false,
  });
});

test("infrastructure failures in a row wait longer each time, up to the policy's maximum", () => {
  const infrastructure = { kind: "infrastructure" } as const;
  const waits = [0, 1, 2, 3, 50, 5_000].map((before) =>
    decideRetry(consumerRetryPolicy, at(1, before), infrastructure, () => 1 - 2 ** -53),
  );
  expect(waits).toEqual(
    [1_000, 2_000, 4_000, 8_000, 60_000, 60_000].map((delayMs) => ({
      kind: "retry",
      delayMs,
      countsAsAttempt: false,
    })),
  );
});

test("uncounted failures affect neither the wait after an own failure nor the number of attempts", () => {
  const own = { kind: "retryable" } as const;
  expect(decideRetry(outboxRetryPolicy, at(1, 30), own, half)).toEqual(
    decideRetry(outboxRetryPolicy, at(1), own, half),
  );
  expect(decideRetry(outboxRetryPolicy, at(10, 30), own, half).kind).toBe("dead");
});

test("the wait of retryAfter is kept exactly and does not count", () => {
  const failure = toFailure(retryAfter("5m", "rate limited"));
  expect(failure).toEqual({ kind: "retryable", retryAfterMs: 300_000, reason: "rate limited" });
  expect(decideRetry(outboxRetryPolicy, at(10), failure, half)).toEqual({
    kind: "retry",
    delayMs: 300_000,
    countsAsAttempt: false,
  });
});

test("a failure carries the message of a thrown error, but not a thrown value that is no error", () => {
  expect(toFailure(permanent("card is closed"))).toEqual({ kind: "permanent", reason: "card is closed" });
  expect(toFailure(new Error("out of stock")).reason).toBe("out of stock");
  expect(toFailure({ card: "4111" }).reason).toBe("threw something that is not an error (object)");
});
