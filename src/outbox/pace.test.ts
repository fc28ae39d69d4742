import { expect, test } from "vitest";
import { Pace } from "./polling-relay.ts";

const setup = () => new Pace({ pollMs: 1_000, batchSize: 500 });

test("an idle relay polls less and less often, up to the poll interval", () => {
  const pace = setup();
  const waits = Array.from({ length: 9 }, () => pace.nextPollMs());
  expect(waits).toEqual([25, 50, 100, 200, 400, 800, 1_000, 1_000, 1_000]);
});

test("rows found without a hint restart the short waits", () => {
  const pace = setup();
  for (let i = 0; i < 9; i++) pace.nextPollMs();
  expect([pace.restartPolling(), pace.nextPollMs()]).toEqual([25, 50]);
});

test("rows found through hints do not shorten the poll interval", () => {
  const pace = setup();
  for (let i = 0; i < 9; i++) pace.nextPollMs();
  pace.recordRead(3);
  expect(pace.nextPollMs()).toBe(1_000);
});

test("a poll interval shorter than the first wait applies from the second poll", () => {
  const pace = new Pace({ pollMs: 10, batchSize: 500 });
  pace.nextPollMs();
  expect(pace.nextPollMs()).toBe(10);
});

test("the delay grows up to 20 ms under steady load, and shrinks when batches are full or nearly empty", () => {
  const pace = setup();
  const lingers = Array.from({ length: 30 }, () => pace.recordRead(50));
  expect([lingers[0], Math.max(...lingers)]).toEqual([1, 20]);
  expect([pace.recordRead(500), pace.recordRead(500), pace.recordRead(1)]).toEqual([10, 5, 2]);
  expect([setup().recordRead(1), setup().recordRead(500)]).toEqual([0, 0]);
});
