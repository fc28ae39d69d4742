import { expect, test, vi } from "vitest";
import { followReplayRunbook } from "../support/replay-runbook-story.ts";

vi.setConfig({ testTimeout: 300_000 });

const letters = process.env["SAGABOX_PROOF"] === "full" ? 10_000 : 2_000;

test("E4, runbook replay: thousands of letters of three causes, two repaired, one not, by the command line alone", async () => {
  const { tookMs, mostInASecond } = await followReplayRunbook({ letters, rate: 300 });
  console.log(
    `${letters * 0.75 + 3} of ${letters} letters replayed in ${tookMs} ms, at most ${mostInASecond} in a second`,
  );
  expect(mostInASecond).toBeLessThanOrEqual(375);
});
