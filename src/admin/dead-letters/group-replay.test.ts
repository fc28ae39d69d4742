import { expect, test } from "vitest";
import { computeFingerprint, type ReplayedRow } from "../../dead-letter/index.ts";
import { streamFor } from "../../message/index.ts";
import {
  type Candidate,
  judgeOutcome,
  type OutcomeRow,
  type ReadCandidates,
  reasonToStop,
  ReplayQueue,
  type Tally,
} from "./group-replay.ts";
import { chunkSize, maxInFlight, planStages } from "./replay-options.ts";

const candidate = (n: number, key: string | null, waits = false): Candidate => ({
  id: String(n),
  message_id: `m-${n}`,
  topic: "t",
  key,
  keyOrder: String(n),
  written_at: "2026-01-01T00:00:00Z",
  waits,
});

function queueWith(candidates: readonly Candidate[]) {
  const reads: string[] = [];
  const read: ReadCandidates = async (after, limit) => {
    reads.push(after.keyOrder);
    return candidates.filter(({ keyOrder }) => Number(keyOrder) > Number(after.keyOrder)).slice(0, limit);
  };
  return { queue: new ReplayQueue(read), reads };
}

const ids = (candidates: readonly Candidate[]) => candidates.map(({ id }) => id);
const none: ReadonlySet<string> = new Set();

test("one dead letter of each key is taken, and one that waits is not overtaken in the same pass", async () => {
  const { queue } = queueWith(
    [1, 2, 3].map((n) => candidate(n, "a")).concat(candidate(4, "b"), candidate(5, null)),
  );
  expect(ids(await queue.take(2, none, false))).toEqual(["1", "4"]);
  expect(ids(await queue.take(2, none, false))).toEqual(["5"]);
  expect(await queue.take(2, none, false)).toEqual([]);
  expect(queue.isPassOver(3)).toBe(true);
  queue.restart();
  expect(ids(await queue.take(9, new Set([streamFor("t", "a")]), false))).toEqual(["4", "5"]);
});

test("consecutive dead candidates of one key are taken together, up to the first that must wait", async () => {
  const { queue } = queueWith([
    candidate(1, "a"),
    candidate(2, "a"),
    candidate(3, "a", true),
    candidate(4, "a"),
  ]);
  expect(ids(await queue.take(9, none, true))).toEqual(["1", "2"]);
});

test("a pass ends early if a hot key is in flight, and its rows are not read again", async () => {
  const { queue, reads } = queueWith(Array.from({ length: 50_000 }, (_, n) => candidate(n, "hot")));
  expect(await queue.take(5, none, true)).toHaveLength(5);
  const moving = new Set([streamFor("t", "hot")]);
  for (let n = 0; !queue.isPassOver(5) && n < 1_000; n++)
    expect(await queue.take(5, moving, true)).toEqual([]);
  expect(reads.length).toBeLessThan(8);
  queue.restart();
  expect(await queue.take(5, none, true)).toHaveLength(5);
});

const failure = {
  consumer: "billing",
  type: "order.placed",
  reason: "exhausted",
  errorType: "Error",
  errorMessage: "late by 7 ms ← socket closed",
} as const;
const replayed: ReplayedRow = {
  id: "1",
  table: "queue",
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

test("a message that left its table without a new dead letter was handled; otherwise it waits", () => {
  expect(judgeOutcome(replayed, row)).toEqual({ kind: "handled" });
  expect(judgeOutcome(replayed, { ...row, waiting: true })).toEqual({ kind: "waiting" });
});

test("an attempt with the same failure is recognised; after another failure the message waits", () => {
  const tried = { ...row, waiting: true, attempts: 1 };
  expect(judgeOutcome(replayed, { ...tried, last_error: "late by 12 ms" })).toMatchObject({
    kind: "failing",
  });
  expect(judgeOutcome(replayed, { ...tried, last_error: "busy" })).toEqual({ kind: "waiting" });
});

test("a new dead letter is compared by cause, also without a stored fingerprint", () => {
  expect(judgeOutcome(replayed, { ...row, ...again })).toMatchObject({
    kind: "died",
    letter: "2",
    same: true,
  });
  expect(judgeOutcome(replayed, { ...row, ...again, fingerprint: "0123456789ab" })).toMatchObject({
    same: false,
  });
});

const tally: Tally = { replayed: 9, handled: 9, diedSame: 0, diedOtherwise: 0, failing: 0, error: "x" };

test("the same failure stops a group at once; another failure stops a canary, and many stop a group", () => {
  expect(reasonToStop("rest", tally)).toBeUndefined();
  expect(reasonToStop("rest", { ...tally, diedSame: 1 })).toBe("the same failure came back: x");
  expect(reasonToStop("ramp", { ...tally, failing: 1, error: null })).toBe("the same failure came back");
  expect(reasonToStop("canary", { ...tally, diedOtherwise: 1 })).toContain(
    "the canary failed with another error",
  );
  expect(reasonToStop("rest", { ...tally, diedOtherwise: 3 })).toBeUndefined();
  expect(reasonToStop("rest", { ...tally, diedOtherwise: 4 })).toContain(
    "4 messages failed with another error",
  );
  expect(reasonToStop("rest", { ...tally, handled: 1_000, diedOtherwise: 40 })).toBeUndefined();
});

test("stages are the canary, 1/8, 1/4 and 1/2 of the rate, and the full rate", () => {
  expect(planStages({ canary: 3, rate: 80 })).toEqual([
    { name: "canary", perSecond: 80, count: 3 },
    { name: "ramp", perSecond: 10, count: 10 },
    { name: "ramp", perSecond: 20, count: 20 },
    { name: "ramp", perSecond: 40, count: 40 },
    { name: "rest", perSecond: 80, count: Infinity },
  ]);
});

test("a rate of 1 has no ramp, and no stage is slower than 1 per second", () => {
  expect(planStages({ canary: 1, rate: 1 }).map(({ name }) => name)).toEqual(["canary", "rest"]);
  expect(planStages({ canary: 1, rate: 4 }).every(({ perSecond }) => perSecond >= 1)).toBe(true);
});

test("a transaction takes a tenth of a second's messages, and two seconds' worth may be in flight", () => {
  const rest = { name: "rest", count: Infinity } as const;
  expect([1, 100, 10_000].map((perSecond) => chunkSize({ ...rest, perSecond }))).toEqual([1, 10, 200]);
  expect([1, 100, 10_000].map((perSecond) => maxInFlight({ ...rest, perSecond }))).toEqual([10, 200, 2_000]);
});
