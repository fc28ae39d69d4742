import { expect, onTestFinished, test, vi } from "vitest";
import { defineStatement, type Rows } from "../storage/index.ts";
import { idleLimit, keepSessionActive } from "./attempt.ts";

const stay = defineStatement("stay", "select 1");
const rows: Rows<never> = { rows: [], rowCount: 0, command: "SELECT" };

test.each([
  [30_000, 30_000, { idleTimeoutMs: 30_000, keepActiveEveryMs: null }],
  [30_000, Infinity, { idleTimeoutMs: 30_000, keepActiveEveryMs: null }],
  [30_000, 5_000, { idleTimeoutMs: 5_000, keepActiveEveryMs: 1_250 }],
  [3_600_000, 30_000, { idleTimeoutMs: 30_000, keepActiveEveryMs: 7_500 }],
])(
  "rule 13: with a deadline of %d ms and a lease of %d ms nobody idles longer than either",
  (deadline, lease, limit) => {
    expect(idleLimit(deadline, lease)).toEqual(limit);
  },
);

test("a live process runs empty statements repeatedly, one at a time, and none after the end", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const answers: (() => void)[] = [];
  const tx = {
    open: true,
    run: () => new Promise<Rows<never>>((resolve) => void answers.push(() => resolve(rows))),
  };
  const leave = keepSessionActive(tx, stay, 100);
  await vi.advanceTimersByTimeAsync(350);
  expect(answers).toHaveLength(1);
  answers[0]?.();
  await vi.advanceTimersByTimeAsync(100);
  expect(answers).toHaveLength(2);
  answers[1]?.();
  tx.open = false;
  await vi.advanceTimersByTimeAsync(200);
  tx.open = true;
  leave();
  await vi.advanceTimersByTimeAsync(200);
  expect(answers).toHaveLength(2);
});

test("a failed empty statement is not reported", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  let words = 0;
  const run = () => {
    words += 1;
    return Promise.reject(new Error("the transaction is aborted"));
  };
  onTestFinished(keepSessionActive({ open: true, run }, stay, 100));
  await vi.advanceTimersByTimeAsync(250);
  expect(words).toBe(2);
});
