import { expect, test } from "vitest";
import { ProcessWatch } from "./process-figures.ts";

test("a blocked event loop shows in the next read and not in the one after", async () => {
  const watch = new ProcessWatch();
  watch.start();
  const turn = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
  await turn(30);
  const until = performance.now() + 120;
  while (performance.now() < until);
  await turn(30);
  const blocked = watch.read();
  await turn(30);
  const after = watch.read();
  watch.stop();
  expect(blocked.lagMaxMs).toBeGreaterThan(60);
  expect(after.lagMaxMs).toBeLessThan(blocked.lagMaxMs);
  expect(blocked.residentBytes).toBeGreaterThan(blocked.heapBytes);
  expect(Math.abs(blocked.startedMs - (Date.now() - process.uptime() * 1_000))).toBeLessThan(1_000);
});
