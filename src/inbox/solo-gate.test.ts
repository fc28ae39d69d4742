import { expect, test } from "vitest";
import { TransactionPermits } from "./engine.ts";
import { SoloGate } from "./crash-ledger.ts";

const soon = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function isOpen(entering: Promise<unknown>): Promise<boolean> {
  return Promise.race([entering.then(() => true), soon().then(() => false)]);
}

test("many are inside together", async () => {
  const gate = new SoloGate();
  await gate.enter();
  expect(await isOpen(gate.enter())).toBe(true);
});

test("one who wants to be alone waits until all have left, and keeps all others out", async () => {
  const gate = new SoloGate();
  const leaveFirst = await gate.enter();
  const alone = gate.enterAlone();
  const later = gate.enter();
  expect([await isOpen(alone), await isOpen(later)]).toEqual([false, false]);
  leaveFirst();
  expect([await isOpen(alone), await isOpen(later)]).toEqual([true, false]);
  const leaveAlone = await alone;
  leaveAlone();
  leaveAlone(); // leaving twice is leaving once
  expect(await isOpen(later)).toBe(true);
});

test("two who want to be alone take turns", async () => {
  const gate = new SoloGate();
  const leave = await gate.enterAlone();
  const second = gate.enterAlone();
  expect(await isOpen(second)).toBe(false);
  leave();
  expect(await isOpen(second)).toBe(true);
});

test("slots: no more than the limit at once, the rest in turn", async () => {
  const slots = new TransactionPermits(2);
  const [first] = [await slots.acquire(), await slots.acquire()];
  const third = slots.acquire();
  expect(await isOpen(third)).toBe(false);
  first();
  first(); // giving back twice frees one place only
  expect(await isOpen(third)).toBe(true);
  expect(await isOpen(slots.acquire())).toBe(false);
});
