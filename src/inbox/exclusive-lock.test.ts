import { expect, test } from "vitest";
import { ExclusiveLock } from "./crash-ledger.ts";
import { TransactionPermits } from "./engine.ts";

const soon = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function isGranted(acquiring: Promise<unknown>): Promise<boolean> {
  return Promise.race([acquiring.then(() => true), soon().then(() => false)]);
}

test("a lock has many shared holders at once", async () => {
  const lock = new ExclusiveLock();
  await lock.acquireShared();
  expect(await isGranted(lock.acquireShared())).toBe(true);
});

test("an exclusive holder waits until all others have released, and blocks later ones", async () => {
  const lock = new ExclusiveLock();
  const releaseFirst = await lock.acquireShared();
  const exclusive = lock.acquireExclusive();
  const later = lock.acquireShared();
  expect([await isGranted(exclusive), await isGranted(later)]).toEqual([false, false]);
  releaseFirst();
  expect([await isGranted(exclusive), await isGranted(later)]).toEqual([true, false]);
  const releaseExclusive = await exclusive;
  releaseExclusive();
  releaseExclusive(); // a second call has no effect
  expect(await isGranted(later)).toBe(true);
});

test("two exclusive holders take turns", async () => {
  const lock = new ExclusiveLock();
  const release = await lock.acquireExclusive();
  const second = lock.acquireExclusive();
  expect(await isGranted(second)).toBe(false);
  release();
  expect(await isGranted(second)).toBe(true);
});

test("no more transaction permits are granted than the limit, and waiting ones follow in order", async () => {
  const permits = new TransactionPermits(2);
  const [release] = [await permits.acquire(), await permits.acquire()];
  const third = permits.acquire();
  expect(await isGranted(third)).toBe(false);
  release();
  release(); // a second call frees no second permit
  expect(await isGranted(third)).toBe(true);
  expect(await isGranted(permits.acquire())).toBe(false);
});
