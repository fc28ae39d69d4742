import { expect, test } from "vitest";
import { judgeOverview } from "./judge-overview.ts";
import type { ConsumerOverview, Facts } from "./overview.ts";
import { ageText } from "./unread-lanes.ts";

const exactly = (count: number) => ({ count, exact: true });
const well: Facts = {
  at: "2026-11-16T08:00:00.000Z",
  schema: { name: "sagabox", version: 9, migration: "roles" },
  hasRun: true,
  outbox: {
    waiting: exactly(12),
    failed: 1,
    stubborn: 0,
    oldestDueSeconds: 2,
    scheduled: exactly(4),
    scheduleLateSeconds: null,
    heldKeys: 0,
  },
  deadLetters: exactly(0),
  lanes: { total: 256, unowned: 0 },
  unreadLanes: [],
  workers: [],
  consumers: [],
  sagas: { running: 5, compensating: 1, failed: 0 },
};
const consumer: ConsumerOverview = {
  name: "mail",
  topics: 1,
  waiting: exactly(7),
  failed: 0,
  oldestAgeSeconds: 3,
  ownedLanes: 256,
  lags: [],
};
const problems = (change: Partial<Facts>) =>
  judgeOverview({ ...well, ...change }).problems.map(({ what, command }) => `${what} → ${command}`);

test("a system that sends what it is given is healthy, also with messages under way", () => {
  expect(judgeOverview(well)).toEqual({ healthy: true, problems: [] });
  expect(problems({ consumers: [consumer] })).toEqual([]);
});

test("without a relay nothing is healthy, whether something waits or not", () => {
  const lanes = { total: 256, unowned: 256 };
  const idle = { ...well.outbox, waiting: exactly(0) };
  const start = "sagabox worker --app <your module>";
  expect(problems({ lanes })).toEqual([
    `no lane is owned by a running worker, and 12 message(s) wait to be sent → ${start}`,
  ]);
  expect(problems({ lanes, outbox: idle })).toEqual([
    `no lane is owned by a running worker, and published messages wait to be sent → ${start}`,
  ]);
  expect(problems({ lanes, outbox: idle, hasRun: false })).toEqual([
    "no lane is owned by a running worker, and published messages wait to be sent; " +
      `no worker has run on this database yet → ${start}`,
  ]);
});

test("some lanes that nobody owns are a problem only while something waits", () => {
  const lanes = { total: 256, unowned: 64 };
  expect(problems({ lanes, outbox: { ...well.outbox, waiting: exactly(0) } })).toEqual([]);
  expect(problems({ lanes })).toEqual([
    "64 of 256 lanes are not owned by a running worker, and 12 message(s) wait to be sent → sagabox doctor",
  ]);
});

test("lanes that their owner passes over are told by worker and consumer", () => {
  const mail = { lane: 263, worker: "w1", consumer: "mail", waitingSeconds: 300 };
  const outbox = { lane: 9, worker: "w2", consumer: null, waitingSeconds: 121 };
  expect(problems({ unreadLanes: [mail, { ...mail, lane: 264, waitingSeconds: 200 }, outbox] })).toEqual([
    "lane 7, 8 of consumer mail at worker w1 has had a message due for 5 min: owned, but not read → restart worker w1",
    "lane 9 of the outbox at worker w2 has had a message due for 2 min: owned, but not read → restart worker w2",
  ]);
});

test("each problem names the command that shows more of it", () => {
  const outbox = {
    ...well.outbox,
    oldestDueSeconds: 90,
    stubborn: 2,
    scheduleLateSeconds: 7_200,
    heldKeys: 1,
  };
  const told = problems({
    outbox,
    deadLetters: { count: 100_000, exact: false },
    sagas: { ...well.sagas, failed: 3 },
    consumers: [
      { ...consumer, ownedLanes: 0 },
      { ...consumer, name: "stock", oldestAgeSeconds: 400 },
    ],
  });
  expect(told).toEqual([
    "the oldest message that is due waits for 90 s → sagabox outbox list",
    "2 message(s) could not be sent three times or more → sagabox outbox list --state failed",
    "scheduled messages are late by 2 h: no relay runs → sagabox outbox list --state scheduled",
    "7 message(s) wait for consumer mail, which runs nowhere → sagabox doctor",
    "consumer stock is behind by 7 min, 7 wait → sagabox inbox stats",
    "100000 or more dead letter(s) are open; 1 key(s) stand still behind one → sagabox dlq list",
    "3 saga(s) wait for a person's decision → sagabox saga stuck",
  ]);
});

test("a consumer whose lag is unknown is no problem, unless what is known of it is one", () => {
  const unknown = { ...consumer, waiting: "unknown", oldestAgeSeconds: "unknown" } as const;
  expect(problems({ consumers: [unknown, { ...unknown, ownedLanes: 0 }] })).toEqual([]);
  expect(problems({ consumers: [{ ...unknown, waiting: exactly(10_000) }] })).toEqual([]);
  expect(problems({ consumers: [{ ...unknown, waiting: exactly(10_001) }] })).toEqual([
    "consumer mail is behind: 10001 wait, the oldest for an unknown time → sagabox inbox stats",
  ]);
  expect(problems({ consumers: [{ ...unknown, oldestAgeSeconds: 400 }] })).toEqual([
    "consumer mail is behind by 7 min → sagabox inbox stats",
  ]);
});

test("a consumer without lanes here is not said to run nowhere", () => {
  expect(problems({ consumers: [{ ...consumer, ownedLanes: null }] })).toEqual([]);
});

test.each([
  [0.4, "0 s"],
  [119, "119 s"],
  [3_600, "60 min"],
  [86_400, "24 h"],
  [1_000_000, "12 d"],
])("%d seconds are told as %s", (seconds, text) => {
  expect(ageText(seconds)).toBe(text);
});
