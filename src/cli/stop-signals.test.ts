import { EventEmitter } from "node:events";
import { expect, test } from "vitest";
import { listenForStop } from "./stop-signals.ts";

function setup() {
  const source = new EventEmitter();
  const exits: number[] = [];
  const time = { ms: 0 };
  const clock = { wallMs: () => 0, monotonicMs: () => time.ms };
  const stop = listenForStop(source, (code) => exits.push(code), clock);
  return { source, exits, time, stop };
}

test.each(["SIGTERM", "SIGINT"] as const)(
  "the first %s asks for a clean stop and ends nothing",
  async (signal) => {
    const { source, exits, stop } = setup();
    source.emit(signal);
    expect(await stop.requested).toBe(signal);
    expect(exits).toEqual([]);
  },
);

test.each([
  ["SIGTERM", "SIGTERM", 143],
  ["SIGTERM", "SIGINT", 130],
  ["SIGINT", "SIGTERM", 143],
])("%s and then %s ends at once with %i", (first, second, code) => {
  const { source, exits } = setup();
  source.emit(first);
  source.emit(second);
  expect(exits).toEqual([code]);
});

test("one press of Ctrl-C that a wrapper passes on again does not count as two", () => {
  const { source, exits, time } = setup();
  source.emit("SIGINT");
  time.ms = 100;
  source.emit("SIGINT");
  expect(exits).toEqual([]);
  time.ms = 300;
  source.emit("SIGINT");
  expect(exits).toEqual([130]);
});

test("after dispose nothing listens any more", () => {
  const { source, stop } = setup();
  stop.dispose();
  expect(source.listenerCount("SIGTERM") + source.listenerCount("SIGINT")).toBe(0);
});
