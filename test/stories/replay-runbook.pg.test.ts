import { expect, test, vi } from "vitest";
import { followReplayRunbook } from "../support/replay-runbook-suite.ts";

vi.setConfig({ testTimeout: 120_000 });

test("E4, runbook replay: letters of three causes, two repaired, one not, by the command line alone", async () => {
  // 10,000 of them are in the proof (test/chaos/replay-runbook.chaos.ts).
  const { mostInASecond } = await followReplayRunbook({ letters: 1_000, rate: 200 });
  expect(mostInASecond).toBeLessThanOrEqual(250);
});
