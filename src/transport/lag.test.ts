import { expect, test } from "vitest";
import { addParkedLags, combineMeasured, completeLags, type Lag } from "./lag.ts";
import type { PlannedGroup } from "./transport.ts";

const group = (name: string, ...topics: string[]): PlannedGroup => ({
  service: "shop",
  group: name,
  ordered: true,
  topics: topics.map((topic) => ({ topic, kind: "event" })),
});
const lag = (topic: string | null, waiting: Lag["waiting"], oldestAgeSeconds: Lag["waiting"]): Lag => ({
  group: "mail",
  topic,
  waiting,
  oldestAgeSeconds,
});

test("a topic that the transport did not report is unknown, not 0", () => {
  const reported = [lag("a", 3, 7)];
  expect(completeLags([group("mail", "a", "b"), group("stock", "a")], reported)).toEqual([
    lag("a", 3, 7),
    lag("b", "unknown", "unknown"),
    { ...lag("a", "unknown", "unknown"), group: "stock" },
  ]);
});

test("an entry for all topics together covers each of them", () => {
  const reported = [lag(null, 3, "unknown")];
  expect(completeLags([group("mail", "a", "b")], reported)).toEqual(reported);
});

test("parked messages are added to their topic; a sum with an unknown value is unknown", () => {
  const broker = [lag("a", 3, 7), lag("b", "unknown", "unknown"), lag("c", 0, 0)];
  const parked = [lag("a", 2, 90), lag("b", 5, 60), lag("c", 0, 0), lag("gone", 1, 5)];
  expect(addParkedLags(broker, parked)).toEqual([
    lag("a", 5, 90),
    lag("b", "unknown", "unknown"),
    lag("c", 0, 0),
    lag("gone", 1, 5),
  ]);
});

test("parked messages are added to the entry of all topics, and estimates stay estimates", () => {
  const parked = [{ ...lag("a", 2, 90), isEstimate: true }, lag("b", 1, 10)];
  expect(addParkedLags([lag(null, 4, 0)], parked)).toEqual([{ ...lag(null, 7, 90), isEstimate: true }]);
});

test("a topic with an entry of its own gets its parked messages, before the entry of all topics", () => {
  const broker = [lag(null, 4, 0), lag("streams.a", "unknown", "unknown")];
  const parked = [lag("streams.a", 2, 90), lag("b", 1, 10)];
  expect(addParkedLags(broker, parked)).toEqual([lag(null, 5, 10), lag("streams.a", "unknown", "unknown")]);
});

test("values are combined only if all are known", () => {
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  expect(combineMeasured([1, 2], sum)).toBe(3);
  expect(combineMeasured([1, "unknown"], sum)).toBe("unknown");
  expect(combineMeasured([], sum)).toBe(0);
});
