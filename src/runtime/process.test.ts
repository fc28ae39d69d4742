import { expect, onTestFinished, test } from "vitest";
import { once } from "node:events";
import { spawn } from "node:child_process";
import { hasEnded, locateProcess, ProcessWatch, thisProcess } from "./process.ts";

const onLinux = test.skipIf(process.platform !== "linux");

function child() {
  const running = spawn(process.execPath, ["-e", "setInterval(() => undefined, 1000)"]);
  onTestFinished(() => void running.kill("SIGKILL"));
  return running;
}

onLinux("a process that was killed has ended, and one that runs or is frozen has not", async () => {
  const victim = child();
  const location = locateProcess(victim.pid ?? 0);
  expect([hasEnded(location), hasEnded(thisProcess.location)]).toEqual([false, false]);
  victim.kill("SIGSTOP");
  expect(hasEnded(location)).toBe(false);
  const died = once(victim, "exit");
  victim.kill("SIGKILL");
  await died;
  expect(hasEnded(location)).toBe(true);
});

onLinux("hasEnded is true when another process has reused the id", () => {
  expect(hasEnded(thisProcess.location?.replace(/\d+$/, "1") ?? null)).toBe(true);
});

test.each([
  ["no location", null],
  ["an unreadable location", "x"],
  ["another machine", "c9f0f895-fb98-4e8c-8a1a-000000000000/pid:[1]/999999999/1"],
  ["a location without a machine", "/999999999/1"],
])("hasEnded is false for %s", (_, location) => {
  expect(hasEnded(location)).toBe(false);
});

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
