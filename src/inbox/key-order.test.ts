import { expect, test } from "vitest";
import { KeyOrder } from "./in-flight-delivery.ts";

interface Item {
  readonly id: string;
  readonly key: string | null;
}

const item = (id: string, key: string | null = id.slice(0, 1)): Item => ({ id, key });
const order = (...items: Item[]): KeyOrder<Item> => {
  const created = new KeyOrder<Item>((entry) => entry.key);
  for (const entry of items) created.push(entry);
  return created;
};
const single = (): number => 1;
const never = (): boolean => false;
const always = (): boolean => true;
const ids = (items: readonly Item[]): string[] => items.map((entry) => entry.id);

test("items of different keys run at once; the second of a key waits for the first", () => {
  const waiting = order(item("a1"), item("a2"), item("b1"));
  const [a1] = waiting.take(single, never);
  expect([a1?.id, ids(waiting.take(single, never)), waiting.ready]).toEqual(["a1", ["b1"], 0]);
  waiting.finish([item("a1")]);
  expect(ids(waiting.take(single, never))).toEqual(["a2"]);
});

test("items without a key never wait for each other", () => {
  const waiting = order(item("x", null), item("y", null));
  expect([...ids(waiting.take(single, never)), ...ids(waiting.take(single, never))]).toEqual(["x", "y"]);
});

test("a batch includes successors of its keys, in order, up to its size", () => {
  const waiting = order(item("a1"), item("b1"), item("a2"), item("a3"), item("b2"), item("c1"));
  const taken = ids(waiting.take(() => 5, always));
  expect(taken).toEqual(["a1", "a2", "a3", "b1", "b2"]);
  expect(ids(waiting.take(single, never))).toEqual(["c1"]);
});

test("a successor that does not belong to the batch blocks its key", () => {
  const waiting = order(item("a1"), item("a2!"), item("a3"));
  const taken = waiting.take(
    () => 9,
    (_, other) => !other.id.endsWith("!"),
  );
  expect(ids(taken)).toEqual(["a1"]);
  waiting.finish(taken);
  expect(waiting.first?.id).toBe("a2!");
});

test("items that wait behind a taken item can be removed, and later arrivals still wait", () => {
  const waiting = order(item("a1"), item("a2"), item("a3"));
  const taken = waiting.take(single, never);
  expect(ids(waiting.takeWaiting(item("a1")))).toEqual(["a2", "a3"]);
  waiting.push(item("a4"));
  expect(waiting.ready).toBe(0);
  waiting.finish(taken);
  expect(ids(waiting.take(single, never))).toEqual(["a4"]);
});

test("returned items become ready before all others, in the order of their keys", () => {
  const waiting = order(
    item("a1"),
    item("a2"),
    item("b1"),
    item("x", null),
    item("a3"),
    item("b2"),
    item("c1"),
  );
  const taken = waiting.take(() => 4, always);
  expect(ids(taken)).toEqual(["a1", "a2", "a3", "b1"]);
  const [a1, a2, a3, b1] = taken as [Item, Item, Item, Item];
  waiting.finish([a1], [a2, a3, b1]);
  expect(ids(waiting.take(single, never))).toEqual(["a2"]);
  expect([...ids(waiting.take(single, never)), ...ids(waiting.take(single, never))]).toEqual(["b1", "x"]);
  waiting.finish([a2]);
  waiting.finish([b1]);
  expect([1, 2, 3].flatMap(() => ids(waiting.take(single, never)))).toEqual(["c1", "a3", "b2"]);
});

test("draining keeps taken items and leaves their keys usable", () => {
  const waiting = order(item("a1"), item("a2"), item("b1"), item("c", null));
  const taken = waiting.take(single, never);
  expect(ids(waiting.drain()).sort()).toEqual(["a2", "b1", "c"]);
  waiting.finish(taken);
  waiting.push(item("a9"));
  waiting.push(item("b9"));
  expect(waiting.ready).toBe(2);
});
