import { expect, test } from "vitest";
import type { LoadedInstance } from "./saga-store.ts";
import { newState } from "./state.ts";
import { MAX_CLAIM_AHEAD_MS, ClaimAheadBuffer } from "./claim-ahead-buffer.ts";

function setup(capacity = 8) {
  let nowMs = 1_000;
  const room = new ClaimAheadBuffer(capacity, () => nowMs);
  const instance = (id: string): LoadedInstance => ({
    id,
    type: "order",
    definitionVersion: 1,
    key: id,
    input: {},
    status: "running",
    state: newState(),
    version: 1,
    traceparent: "",
    correlationId: id,
    parent: null,
    claims: 1,
    nowMs: 5_000,
  });
  const add = (...ids: readonly string[]): void => {
    for (const id of ids) room.add({ instance: instance(id), mayHaveInput: false, startedHere: false });
  };
  const leave = (times: number): void => {
    for (let n = 0; n < times; n++) room.countRelease();
  };
  return { room, add, leave, pass: (ms: number) => void (nowMs += ms) };
}

test("nothing is claimed ahead before an instance has finished", () => {
  const { room, pass } = setup();
  pass(1_000);
  expect(room.room).toBe(0);
});

test("the buffer holds as many as finished in a quarter of a second lately", () => {
  const { room, leave, pass, add } = setup();
  leave(20);
  pass(500);
  expect(room.room).toBe(10);
  add("a", "b");
  expect(room.room).toBe(8);
});

test("nothing is claimed ahead when no instance finishes any more", () => {
  const { room, leave, pass } = setup();
  leave(20);
  pass(250);
  expect(room.room).toBe(20);
  pass(250);
  expect(room.room).toBe(0);
});

test("the buffer has a limit at any rate", () => {
  const few = setup(2);
  few.leave(10_000);
  few.pass(250);
  const many = setup(1_000);
  many.leave(10_000);
  many.pass(250);
  expect([few.room.room, many.room.room]).toEqual([16, 200]);
});

test("the first instance leaves first, with the time of its departure", () => {
  const { room, add, pass } = setup();
  add("a");
  pass(30);
  add("b");
  pass(10);
  const called = [room.next(), room.next()].map((one) => [one?.instance.id, one?.instance.nowMs]);
  expect(called).toEqual([
    ["a", 5_040],
    ["b", 5_010],
  ]);
  expect(room.next()).toBeUndefined();
});

test("input for a buffered instance is known when the instance leaves", () => {
  const { room, add } = setup();
  add("a");
  expect([room.poke("a"), room.poke("b")]).toEqual([true, false]);
  expect(room.next()?.mayHaveInput).toBe(true);
});

test("only instances that have waited too long expire", () => {
  const { room, add, pass } = setup();
  add("a");
  pass(MAX_CLAIM_AHEAD_MS - 1);
  add("b");
  expect(room.removeExpired()).toEqual([]);
  pass(1);
  expect([room.removeExpired(), room.ids]).toEqual([["a"], ["b"]]);
  expect([room.removeAll(), room.size]).toEqual([["b"], 0]);
});
