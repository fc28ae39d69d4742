import { expect, test } from "vitest";
import { judgeReading, type TopicReading } from "./lag.ts";

const nothing: TopicReading = {
  counted: 0,
  isComplete: true,
  seen: 0,
  percent: 100,
  oldestSeconds: null,
};
const judge = (change: Partial<TopicReading>) => judgeReading({ ...nothing, ...change });
const unknown = { waiting: "unknown", oldestAgeSeconds: "unknown" };

test("a group whose lanes were read to their end is counted exactly, whatever the sample says", () => {
  expect(judge({})).toEqual({ waiting: 0, oldestAgeSeconds: 0 });
  const sparse = { counted: 3, seen: 0, percent: 0.5, oldestSeconds: 4.26 };
  expect(judge(sparse)).toEqual({ waiting: 3, oldestAgeSeconds: 4.3 });
});

test("if every message waits for a retry, none could be handled, and the age is 0", () => {
  expect(judge({ counted: 3 })).toEqual({ waiting: 3, oldestAgeSeconds: 0 });
});

test("a long lane is counted by the sample: exactly if it is the whole queue, else as an estimate", () => {
  const long = { isComplete: false, counted: 16, oldestSeconds: 60 };
  expect(judge({ ...long, seen: 400 })).toEqual({ waiting: 400, oldestAgeSeconds: 60 });
  expect(judge({ ...long, seen: 400, percent: 2 })).toEqual({
    waiting: 20_000,
    isEstimate: true,
    oldestAgeSeconds: 60,
  });
  expect(judge({ ...long, seen: 0, percent: 2 })).toMatchObject({ waiting: 16, isEstimate: true });
});

test("a topic that neither the first rows nor a partial sample show is unknown, not 0", () => {
  expect(judge({ isComplete: false, percent: 2 })).toEqual(unknown);
  expect(judge({ isComplete: false })).toEqual({ waiting: 0, oldestAgeSeconds: 0 });
});

test("the age is unknown if no due message is among the first rows of a long lane", () => {
  expect(judge({ isComplete: false, counted: 16, seen: 50 })).toEqual({
    waiting: 50,
    oldestAgeSeconds: "unknown",
  });
});
