import { expect, test } from "vitest";
import { Pace } from "./polling-relay.ts";

const setup = () => new Pace({ pollMs: 1_000, batchSize: 500 });

test("an idle relay looks everywhere less and less often, up to the poll interval", () => {
  const pace = setup();
  const waits = Array.from({ length: 9 }, () => pace.nextPollMs());
  expect(waits).toEqual([25, 50, 100, 200, 400, 800, 1_000, 1_000, 1_000]);
});

test("a find that no hint had named opens a new window of short waits", () => {
  const pace = setup();
  for (let i = 0; i < 9; i++) pace.nextPollMs();
  expect([pace.restartPolling(), pace.nextPollMs()]).toEqual([25, 50]);
});

test("what hints lead to does not make it look everywhere more often", () => {
  const pace = setup();
  for (let i = 0; i < 9; i++) pace.nextPollMs();
  pace.recordRead(3);
  expect(pace.nextPollMs()).toBe(1_000);
});

test("a poll interval shorter than the first wait is never exceeded for long", () => {
  const pace = new Pace({ pollMs: 10, batchSize: 500 });
  pace.nextPollMs();
  expect(pace.nextPollMs()).toBe(10);
});

test("the linger grows with a steady load up to 20 ms, and goes when batches are full or nearly empty", () => {
  const pace = setup();
  const lingers = Array.from({ length: 30 }, () => pace.recordRead(50));
  expect([lingers[0], Math.max(...lingers)]).toEqual([1, 20]);
  expect([pace.recordRead(500), pace.recordRead(500), pace.recordRead(1)]).toEqual([10, 5, 2]);
  expect([setup().recordRead(1), setup().recordRead(500)]).toEqual([0, 0]);
});
