import { expect, test } from "vitest";
import { Semaphore, Permit } from "./semaphore.ts";

function setup(count: number) {
  const heard: string[] = [];
  const places = new Semaphore({
    count,
    onFree: () => heard.push("free"),
    onQueue: () => heard.push("queue"),
  });
  const seat = (name: string): Permit => new Permit(places, () => heard.push(name));
  return { places, heard, seat };
}

test("no more than there are places are taken", () => {
  const { places, seat } = setup(2);
  expect([seat("a"), seat("b"), seat("c")].map((one) => one.acquire())).toEqual([true, true, false]);
  expect([places.free, places.queued]).toEqual([-1, 1]);
});

test("a place that is left is for whoever has waited longest, and only then for somebody new", () => {
  const { places, heard, seat } = setup(1);
  const [a, b, c] = [seat("a"), seat("b"), seat("c")];
  for (const one of [a, b, c]) one.acquire();
  a.release();
  expect([a.taken, b.taken, c.taken]).toEqual([false, true, false]);
  expect(a.acquire()).toBe(false);
  b.release();
  c.release();
  expect(a.taken).toBe(true);
  a.release();
  expect(heard).toEqual(["queue", "b", "c", "a", "free"]);
  expect(places.free).toBe(1);
});

test("whoever asks again keeps its place, in the room or in the queue", () => {
  const { places, seat } = setup(1);
  const [a, b] = [seat("a"), seat("b")];
  expect([a.acquire(), a.acquire(), b.acquire(), b.acquire()]).toEqual([true, true, false, false]);
  expect(places.queued).toBe(1);
});

test("whoever leaves the queue is not called any more, and leaving twice frees one place", () => {
  const { places, heard, seat } = setup(1);
  const [a, b] = [seat("a"), seat("b")];
  a.acquire();
  b.acquire();
  b.release();
  a.release();
  a.release();
  expect(heard).toEqual(["queue", "free"]);
  expect(places.free).toBe(1);
});

test("whoever has waited too long is told, once it has; whoever was called meanwhile has not", () => {
  let nowMs = 0;
  const heard: string[] = [];
  const nothing = (): void => undefined;
  const places = new Semaphore({ count: 1, onFree: nothing, onQueue: nothing }, () => nowMs);
  const [a, b, c] = ["a", "b", "c"].map((name) => new Permit(places, () => heard.push(name)));
  a?.acquire();
  b?.acquire();
  nowMs = 499;
  c?.acquire();
  places.expireWaiters();
  expect([b?.dismissed, c?.dismissed]).toEqual([false, false]);
  nowMs = 500;
  places.expireWaiters();
  expect([b?.dismissed, c?.dismissed]).toEqual([true, false]);
  a?.release();
  expect([b?.taken, b?.dismissed]).toEqual([true, false]);
  expect(heard).toEqual(["b", "b"]);
});
