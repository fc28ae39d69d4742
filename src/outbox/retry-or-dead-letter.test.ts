import { expect, test } from "vitest";
import { aRow } from "../../test/support/lanes.ts";
import { outboxRetryPolicy } from "../retry/index.ts";
import { countByType, printableErrorText, toDeadRow } from "./settler.ts";
import { retryOrDeadLetter } from "./batch-sender.ts";

const error = new TypeError("broker said no");

test("A7: a rejected message is retried after a delay with full jitter", () => {
  const row = aRow(1, { attempts: 2 });
  const decide = (random: number) =>
    retryOrDeadLetter({ rejected: [{ row, error }], refused: [] }, outboxRetryPolicy, () => random);
  expect(decide(0).failed).toEqual([{ row, delayMs: 0, error: "broker said no" }]);
  expect(decide(0.999999).failed[0]?.delayMs).toBe(8_000);
  expect(decide(0.5).dead).toEqual([]);
});

test("A7: the message's own maxAttempts limits its attempts", () => {
  const last = aRow(1, { attempts: 2, maxAttempts: 3 });
  const { failed, dead } = retryOrDeadLetter(
    { rejected: [{ row: last, error }], refused: [] },
    outboxRetryPolicy,
    () => 0,
  );
  expect(failed).toEqual([]);
  expect(dead).toMatchObject([
    { row: last, countsAsAttempt: true, reason: "exhausted", errorType: "TypeError" },
  ]);
});

test("A7: a refused message is dead-lettered at once, without counting an attempt", () => {
  const row = aRow(1);
  const { dead } = retryOrDeadLetter({ rejected: [], refused: [{ row, error }] }, outboxRetryPolicy, () => 0);
  expect(dead).toMatchObject([
    { row, countsAsAttempt: false, reason: "rejected", errorMessage: "broker said no" },
  ]);
});

test("A19: an expired message has its own error type", () => {
  expect(toDeadRow(aRow(1), "expired")).toMatchObject({
    countsAsAttempt: false,
    reason: "expired",
    errorType: "MessageExpired",
    stack: null,
  });
});

test("the text of any thrown value is one line of bounded length", () => {
  expect(printableErrorText(new Error("a\u0000b\nc\u202Ed"))).toBe("a b c d");
  expect(printableErrorText("x".repeat(9_999))).toHaveLength(2_000);
  expect([printableErrorText(undefined), printableErrorText({ toString: () => "odd" })]).toEqual([
    "undefined",
    "odd",
  ]);
});

test("a stack keeps its lines, and no other control characters", () => {
  const thrown = new Error("no");
  thrown.stack = "Error: no\n    at \u001b[31mhere";
  expect(toDeadRow(aRow(1), "rejected", thrown).stack).toBe("Error: no\n    at  [31mhere");
});

test("messages are counted once per type and topic", () => {
  const rows = [aRow(1), aRow(2), aRow(3, { topic: "other" })];
  expect(countByType(rows).map(({ topic, count }) => [topic, count])).toEqual([
    ["events.order.placed", 2],
    ["other", 1],
  ]);
});
