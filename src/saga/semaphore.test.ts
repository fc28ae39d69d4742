import { expect, test } from "vitest";
import { Semaphore, Permit } from "./semaphore.ts";

function setup(count: number) {
  const calls: string[] = [];
  const semaphore = new Semaphore({
    count,
    onFree: () => calls.push("free"),
    onQueue: () => calls.push("queue"),
  });
  const newPermit = (name: string): Permit => new Permit(semaphore, () => calls.push(name));
  return { semaphore, calls, newPermit };
}

test("no more permits are held than there are", () => {
  const { semaphore, newPermit } = setup(2);
  expect([newPermit("a"), newPermit("b"), newPermit("c")].map((one) => one.acquire())).toEqual([
    true,
    true,
    false,
  ]);
  expect([semaphore.free, semaphore.queued]).toEqual([-1, 1]);
});

test("a released permit goes to the longest waiter, then to newcomers", () => {
  const { semaphore, calls, newPermit } = setup(1);
  const [a, b, c] = [newPermit("a"), newPermit("b"), newPermit("c")];
  for (const one of [a, b, c]) one.acquire();
  a.release();
  expect([a.taken, b.taken, c.taken]).toEqual([false, true, false]);
  expect(a.acquire()).toBe(false);
  b.release();
  c.release();
  expect(a.taken).toBe(true);
  a.release();
  expect(calls).toEqual(["queue", "b", "c", "a", "free"]);
  expect(semaphore.free).toBe(1);
});

test("asking again keeps the permit or the position in the queue", () => {
  const { semaphore, newPermit } = setup(1);
  const [a, b] = [newPermit("a"), newPermit("b")];
  expect([a.acquire(), a.acquire(), b.acquire(), b.acquire()]).toEqual([true, true, false, false]);
  expect(semaphore.queued).toBe(1);
});

test("a waiter that leaves is not called, and releasing twice frees one permit", () => {
  const { semaphore, calls, newPermit } = setup(1);
  const [a, b] = [newPermit("a"), newPermit("b")];
  a.acquire();
  b.acquire();
  b.release();
  a.release();
  a.release();
  expect(calls).toEqual(["queue", "free"]);
  expect(semaphore.free).toBe(1);
});

test("a waiter expires after its limit, unless it got a permit before", () => {
  let nowMs = 0;
  const calls: string[] = [];
  const nothing = (): void => undefined;
  const semaphore = new Semaphore({ count: 1, onFree: nothing, onQueue: nothing }, () => nowMs);
  const [a, b, c] = ["a", "b", "c"].map((name) => new Permit(semaphore, () => calls.push(name)));
  a?.acquire();
  b?.acquire();
  nowMs = 499;
  c?.acquire();
  semaphore.expireWaiters();
  expect([b?.dismissed, c?.dismissed]).toEqual([false, false]);
  nowMs = 500;
  semaphore.expireWaiters();
  expect([b?.dismissed, c?.dismissed]).toEqual([true, false]);
  a?.release();
  expect([b?.taken, b?.dismissed]).toEqual([true, false]);
  expect(calls).toEqual(["b", "b"]);
});
