import { expect, test, vi } from "vitest";
import { figure, report } from "./chaos-run.ts";
import { followReplayRunbook } from "../support/replay-runbook-suite.ts";

vi.setConfig({ testTimeout: 300_000 });

const deadLetterCount = figure(10_000, 2_000);

test("E4, runbook replay: thousands of letters of three causes, two repaired, one not, by the command line alone", async () => {
  const { tookMs, mostInASecond } = await followReplayRunbook({ letters: deadLetterCount, rate: 300 });
  report("replay by the runbook", {
    letters: deadLetterCount,
    replayed: deadLetterCount * 0.75 + 3,
    tookMs,
    mostInASecond,
  });
  expect(mostInASecond).toBeLessThanOrEqual(375);
});
