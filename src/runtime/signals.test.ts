import { expect, test } from "vitest";
import { silentSignals, TestSignals } from "./process.ts";

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
