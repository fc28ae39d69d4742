import { expect, test } from "vitest";
import { computeFingerprint } from "../../dead-letter/index.ts";
import { judgeOutcome, reasonToStop, type InFlightReplay, type OutcomeRow, type Tally } from "./outcome.ts";

const failure = {
  consumer: "billing",
  type: "order.placed",
  reason: "exhausted",
  errorType: "Error",
  errorMessage: "late by 7 ms ← socket closed",
} as const;
const flight: InFlightReplay = {
  id: "1",
  line: "queue",
  lane: 256,
  seq: "9",
  stream: null,
  fingerprint: computeFingerprint(failure),
  errorMessage: failure.errorMessage,
};
const row: OutcomeRow = {
  id: "1",
  waiting: false,
  attempts: 0,
  last_error: null,
  letter: null,
  fingerprint: null,
  consumer: null,
  type: null,
  reason: null,
  error_type: null,
  error_message: null,
};
const again = {
  letter: "2",
  consumer: "billing",
  type: "order.placed",
  reason: "exhausted",
  error_type: "Error",
  error_message: "late by 9 ms ← socket closed",
} as const;

test("gone from its line without a letter means handled; in its line it waits", () => {
  expect(judgeOutcome(flight, row)).toEqual({ kind: "handled" });
  expect(judgeOutcome(flight, { ...row, waiting: true })).toEqual({ kind: "waiting" });
});

test("an attempt that failed like before is recognised, one that failed otherwise is still waited for", () => {
  const tried = { ...row, waiting: true, attempts: 1 };
  expect(judgeOutcome(flight, { ...tried, last_error: "late by 12 ms" })).toMatchObject({ kind: "failing" });
  expect(judgeOutcome(flight, { ...tried, last_error: "busy" })).toEqual({ kind: "waiting" });
});

test("a new letter is the same failure or another, also when an older version wrote it without a fingerprint", () => {
  expect(judgeOutcome(flight, { ...row, ...again })).toMatchObject({ kind: "died", letter: "2", same: true });
  expect(judgeOutcome(flight, { ...row, ...again, fingerprint: "0123456789ab" })).toMatchObject({
    same: false,
  });
});

const tally: Tally = { replayed: 9, handled: 9, diedSame: 0, diedOtherwise: 0, failing: 0, error: "x" };

test("the same failure stops a group at once; another one stops a canary, or many do", () => {
  expect(reasonToStop("rest", tally)).toBeUndefined();
  expect(reasonToStop("rest", { ...tally, diedSame: 1 })).toBe("the same failure came back: x");
  expect(reasonToStop("ramp", { ...tally, failing: 1, error: null })).toBe("the same failure came back");
  expect(reasonToStop("canary", { ...tally, diedOtherwise: 1 })).toContain(
    "the canary died of another failure",
  );
  expect(reasonToStop("rest", { ...tally, diedOtherwise: 3 })).toBeUndefined();
  expect(reasonToStop("rest", { ...tally, diedOtherwise: 4 })).toContain("4 letters died of another failure");
  expect(reasonToStop("rest", { ...tally, handled: 1_000, diedOtherwise: 40 })).toBeUndefined();
});
