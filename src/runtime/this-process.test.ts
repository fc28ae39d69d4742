import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import { hasEnded, locateProcess, thisProcess } from "./this-process.ts";

const onLinux = test.skipIf(process.platform !== "linux");

function child() {
  const running = spawn(process.execPath, ["-e", "setInterval(() => undefined, 1000)"]);
  onTestFinished(() => void running.kill("SIGKILL"));
  return running;
}

onLinux("a process that was killed has ended, and one that runs or is frozen has not", async () => {
  const victim = child();
  const place = locateProcess(victim.pid ?? 0);
  expect([hasEnded(place), hasEnded(thisProcess.place)]).toEqual([false, false]);
  victim.kill("SIGSTOP");
  expect(hasEnded(place)).toBe(false);
  const died = once(victim, "exit");
  victim.kill("SIGKILL");
  await died;
  expect(hasEnded(place)).toBe(true);
});

onLinux("a number that another process has by now is not taken for the one that had it before", () => {
  expect(hasEnded(thisProcess.place?.replace(/\d+$/, "1") ?? null)).toBe(true);
});

test.each([
  ["no location", null],
  ["an unreadable location", "x"],
  ["another machine", "c9f0f895-fb98-4e8c-8a1a-000000000000/pid:[1]/999999999/1"],
  ["a location without a machine", "/999999999/1"],
])("hasEnded is false for %s", (_, place) => {
  expect(hasEnded(place)).toBe(false);
});
