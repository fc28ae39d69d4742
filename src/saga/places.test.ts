import { expect, test } from "vitest";
import { Places, Seat } from "./places.ts";

function setup(count: number) {
  const heard: string[] = [];
  const places = new Places({
    count,
    onFree: () => heard.push("free"),
    onQueue: () => heard.push("queue"),
  });
  const seat = (name: string): Seat => new Seat(places, () => heard.push(name));
  return { places, heard, seat };
}

test("no more than there are places are taken", () => {
  const { places, seat } = setup(2);
  expect([seat("a"), seat("b"), seat("c")].map((one) => one.take())).toEqual([true, true, false]);
  expect([places.free, places.queued]).toEqual([-1, 1]);
});

test("a place that is left is for whoever has waited longest, and only then for somebody new", () => {
  const { places, heard, seat } = setup(1);
  const [a, b, c] = [seat("a"), seat("b"), seat("c")];
  for (const one of [a, b, c]) one.take();
  a.leave();
  expect([a.taken, b.taken, c.taken]).toEqual([false, true, false]);
  expect(a.take()).toBe(false);
  b.leave();
  c.leave();
  expect(a.taken).toBe(true);
  a.leave();
  expect(heard).toEqual(["queue", "b", "c", "a", "free"]);
  expect(places.free).toBe(1);
});

test("whoever asks again keeps its place, in the room or in the queue", () => {
  const { places, seat } = setup(1);
  const [a, b] = [seat("a"), seat("b")];
  expect([a.take(), a.take(), b.take(), b.take()]).toEqual([true, true, false, false]);
  expect(places.queued).toBe(1);
});

test("whoever leaves the queue is not called any more, and leaving twice frees one place", () => {
  const { places, heard, seat } = setup(1);
  const [a, b] = [seat("a"), seat("b")];
  a.take();
  b.take();
  b.leave();
  a.leave();
  a.leave();
  expect(heard).toEqual(["queue", "free"]);
  expect(places.free).toBe(1);
});

test("whoever has waited too long is told, once it has; whoever was called meanwhile has not", () => {
  let nowMs = 0;
  const heard: string[] = [];
  const nothing = (): void => undefined;
  const places = new Places({ count: 1, onFree: nothing, onQueue: nothing }, () => nowMs);
  const [a, b, c] = ["a", "b", "c"].map((name) => new Seat(places, () => heard.push(name)));
  a?.take();
  b?.take();
  nowMs = 499;
  c?.take();
  places.dismissLate();
  expect([b?.dismissed, c?.dismissed]).toEqual([false, false]);
  nowMs = 500;
  places.dismissLate();
  expect([b?.dismissed, c?.dismissed]).toEqual([true, false]);
  a?.leave();
  expect([b?.taken, b?.dismissed]).toEqual([true, false]);
  expect(heard).toEqual(["b", "b"]);
});
