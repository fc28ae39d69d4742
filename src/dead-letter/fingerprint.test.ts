import { expect, test } from "vitest";
import {
  failureLabel,
  computeFingerprint,
  isSameFailure,
  normalizeError,
  significantPart,
  type Failure,
} from "./fingerprint.ts";

const failure: Failure = {
  consumer: "billing",
  type: "order.placed",
  reason: "exhausted",
  errorType: "TypeError",
  errorMessage: "no price for article 17",
};

test.each([
  ["no price for article 17", "no price for article 4711"],
  [
    "order 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 is closed",
    "order 0297f3a2-6c1e-7d5b-9f62-1f6a8f3d2c12 is closed",
  ],
  ['card "4111 1111" declined', 'card "x" declined'],
  ["card '4111' declined", "card 'abc' declined"],
  ["cannot reach 10.0.0.7:5432", "cannot reach 10.0.0.12:5433"],
  ["at 2026-11-16T08:00:00.123Z late", "at 2025-01-01T00:00:00.000Z late"],
  ["mail to a.b@example.org bounced", "mail to c@example.com bounced"],
  ["bad pointer 0xdeadBEEF", "bad pointer 0x1"],
  ["customer ord-17 and ord-18 differ", "customer ord-19 and ord-2000 differ"],
  ["lost:\n  3 rows", "lost: 4 rows"],
])("%s and %s are one failure", (one, other) => {
  expect(normalizeError(one)).toBe(normalizeError(other));
  expect(computeFingerprint({ ...failure, errorMessage: one })).toBe(
    computeFingerprint({ ...failure, errorMessage: other }),
  );
});

test.each([
  ["no price for article 17", "no stock for article 17"],
  ["can't open the ledger, doesn't exist", "can't close the ledger, doesn't exist"],
  ["connection refused", "connection reset"],
])("%s and %s are two", (one, other) => {
  expect(normalizeError(one)).not.toBe(normalizeError(other));
});

test("consumer, type, reason and error each change the fingerprint", () => {
  const others: Failure[] = [
    { ...failure, consumer: "mail" },
    { ...failure, consumer: null },
    { ...failure, type: "order.paid" },
    { ...failure, reason: "rejected" },
    { ...failure, errorType: "RangeError" },
  ];
  const all = [failure, ...others].map(computeFingerprint);
  expect(new Set(all).size).toBe(all.length);
});

test("the fingerprint is stable, because it is stored in the database", () => {
  expect(computeFingerprint(failure)).toBe("b61e22334366");
  expect(failureLabel(failure)).toBe("billing · order.placed · TypeError: no price for article #");
  expect(failureLabel({ ...failure, consumer: null })).toMatch(/^outbox · /);
});

test("only the beginning of a long text is processed", () => {
  const long = "a1 ".repeat(1_000_000);
  expect(normalizeError(long).length).toBeLessThanOrEqual(300);
  expect(computeFingerprint({ ...failure, errorMessage: long })).toHaveLength(12);
});

test.each([["x"], ["a/"], ["7"], ["'"], ["«"], ["“"], ["@"], ["a@"], ["# "], ["a.b@"], ["+-"]])(
  "200 kB of %s are cut before matching",
  (piece) => {
    const hostile = piece.repeat(200_000 / piece.length);
    expect(significantPart(hostile)).toHaveLength(1_200);
    expect(normalizeError(hostile)).toBe(normalizeError(significantPart(hostile)));
  },
);

test("unclosed quotes are kept, and closed quotes after them are replaced", () => {
  expect(normalizeError("««« «one» left")).toBe("««« … left");
  expect(normalizeError("a/b/c:d-e no digit, x/y-7 has")).toBe("a/b/c:d-e no digit, # has");
  expect(normalizeError("a@b@c@example.org bounced")).toBe("a@b@… bounced");
});

test("the text of an attempt matches the dead letter, with or without causes", () => {
  const letter = { errorMessage: "charge 17 failed ← socket 4 closed" };
  expect(isSameFailure(letter, "charge 18 failed")).toBe(true);
  expect(isSameFailure(letter, "charge 18 failed ← socket 9 closed")).toBe(true);
  expect(isSameFailure(letter, "refund 18 failed")).toBe(false);
  expect(isSameFailure(letter, "")).toBe(false);
});
