import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import { hasEnded, locateProcess, ProcessWatch, silentSignals, TestSignals, thisProcess } from "./process.ts";

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

test("a wait ends with the detail of the signal", async () => {
  const signals = new TestSignals<"sent">();
  const waiting = signals.waitFor("sent");
  signals.emit("sent", { id: 1 });
  expect(await waiting).toEqual({ id: 1 });
});

test("a signal emitted before the wait is not lost, and satisfies one wait only", async () => {
  const signals = new TestSignals();
  signals.emit("sent", 1);
  expect(await signals.waitFor("sent")).toBe(1);
  await expect(signals.waitFor("sent", { timeoutMs: 1 })).rejects.toThrow('No signal "sent" within 1 ms');
});

test("a condition selects the signal, and the other signals stay for later waits", async () => {
  const signals = new TestSignals();
  signals.emit("sent", 1);
  signals.emit("sent", 2);
  expect(await signals.waitFor("sent", { where: (detail) => detail === 2 })).toBe(2);
  expect(await signals.waitFor("sent")).toBe(1);
});

test("a wait that times out names the signals that were seen", async () => {
  const signals = new TestSignals();
  signals.emit("failed");
  await expect(signals.waitFor("sent", { timeoutMs: 1 })).rejects.toThrow("failed × 1");
});

test("counts survive clear()", async () => {
  const signals = new TestSignals();
  signals.emit("sent");
  signals.clear();
  signals.emit("sent");
  expect(signals.count("sent")).toBe(2);
  expect(signals.count("never")).toBe(0);
});

test("silentSignals ignores signals", () => {
  expect(silentSignals.emit("sent", { id: 1 })).toBeUndefined();
});
