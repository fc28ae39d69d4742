import { expect, test } from "vitest";
import type { StoredLags } from "../../inbox/index.ts";
import { chooseLags, summarizeLags, waitingText } from "./consumer-lag.ts";

const queued = [{ topic: "a", waiting: 2, oldestAgeSeconds: 5 }] as const;
const stored: StoredLags = {
  consumer: "mail",
  transport: "kafka",
  ageMs: 10_000,
  lags: [{ topic: "a", waiting: 40, oldestAgeSeconds: "unknown" }],
};
const unknown = { topic: null, waiting: "unknown", oldestAgeSeconds: "unknown" };

test("with PostgreSQL as the transport the queue is read, also if no worker measures", () => {
  expect(chooseLags(queued, undefined)).toEqual(queued);
  expect(chooseLags(queued, { ...stored, transport: "postgres", ageMs: 1e9 })).toEqual(queued);
});

test("with a broker the last measurement holds for a minute; after that, or before the first, all is unknown", () => {
  expect(chooseLags(queued, stored)).toEqual(stored.lags);
  expect(chooseLags(queued, { ...stored, ageMs: 60_000 })).toEqual(stored.lags);
  expect(chooseLags(queued, { ...stored, ageMs: 60_001 })).toEqual([unknown]);
  expect(chooseLags([], { ...stored, ageMs: null })).toEqual([unknown]);
});

test("topics are added up, the oldest message counts, and one unknown topic makes the sum unknown", () => {
  const b = { topic: "b", waiting: 3, isEstimate: true, oldestAgeSeconds: 90 };
  expect(summarizeLags([...queued, b])).toMatchObject({
    waiting: { count: 5, exact: false },
    oldestAgeSeconds: 90,
    lags: [
      { topic: "a", waiting: { count: 2, exact: true } },
      { topic: "b", waiting: { exact: false } },
    ],
  });
  const [{ topic }] = queued;
  const sum = summarizeLags([b, { topic, waiting: "unknown", oldestAgeSeconds: "unknown" }]);
  expect(sum).toMatchObject({ waiting: "unknown", oldestAgeSeconds: "unknown" });
  expect(summarizeLags([])).toEqual({ waiting: { count: 0, exact: true }, oldestAgeSeconds: 0, lags: [] });
});

test("unknown is spelled out, and an estimate is called one", () => {
  expect(waitingText("unknown")).toBe("unknown");
  expect(waitingText({ count: 0, exact: true })).toBe("0");
  expect(waitingText({ count: 120_000, exact: false })).toBe("about 120000");
});
