import { expect, test } from "vitest";
import { aRow } from "../../test/support/lane-rows.ts";
import { outboxRetryPolicy } from "../retry/index.ts";
import { countByType } from "./count-by-type.ts";
import { toDeadRow, printableErrorText } from "./failures.ts";
import { retryOrDeadLetter } from "./batch-sender.ts";

const error = new TypeError("broker said no");

test("A7: a message's own failure is tried again after a wait drawn from the whole span", () => {
  const row = aRow(1, { attempts: 2 });
  const decide = (random: number) =>
    retryOrDeadLetter({ charged: [{ row, error }], refused: [] }, outboxRetryPolicy, () => random);
  expect(decide(0).failed).toEqual([{ row, delayMs: 0, error: "broker said no" }]);
  expect(decide(0.999999).failed[0]?.delayMs).toBe(8_000);
  expect(decide(0.5).dead).toEqual([]);
});

test("A7: the message's own number of attempts decides when it has had its last", () => {
  const last = aRow(1, { attempts: 2, maxAttempts: 3 });
  const { failed, dead } = retryOrDeadLetter(
    { charged: [{ row: last, error }], refused: [] },
    outboxRetryPolicy,
    () => 0,
  );
  expect(failed).toEqual([]);
  expect(dead).toMatchObject([{ row: last, charged: true, reason: "exhausted", errorType: "TypeError" }]);
});

test("A7: what can never be sent dies at once, uncharged", () => {
  const row = aRow(1);
  const { dead } = retryOrDeadLetter({ charged: [], refused: [{ row, error }] }, outboxRetryPolicy, () => 0);
  expect(dead).toMatchObject([{ row, charged: false, reason: "rejected", errorMessage: "broker said no" }]);
});

test("A19: an expired message says so", () => {
  expect(toDeadRow(aRow(1), "expired")).toMatchObject({
    charged: false,
    reason: "expired",
    errorType: "MessageExpired",
    stack: null,
  });
});

test("a failure's text is one readable line of bounded length, whatever was thrown", () => {
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
