import { expect, onTestFinished, test, vi } from "vitest";
import { RecordingObserver } from "../../test/support/recording-observer.ts";
import { Destinations } from "./destinations.ts";

const failure = { reason: "unreachable", error: "no" } as const;

function setup(failures = 2) {
  const clock = { nowMs: 0 };
  const observer = new RecordingObserver();
  const timers: (() => void)[] = [];
  const destinations = new Destinations({
    breaker: { failures, cooldownMs: 1_000, maxCooldownMs: 10_000 },
    observer,
    clock: { monotonicMs: () => clock.nowMs, wallMs: () => 0 },
    random: () => 1,
    later: (delayMs, action) => timers.push(() => ((clock.nowMs += delayMs), action())),
  });
  return { clock, observer, destinations, timers };
}

test("only the failing destination pauses, until its time is over or it has answered", () => {
  const { clock, destinations } = setup(9);
  expect(destinations.recordFailure("slow", failure, false)).toBe(100);
  expect([destinations.listResting(), destinations.nextMs(), destinations.restMs("slow")]).toEqual([
    ["slow"],
    100,
    100,
  ]);
  expect([destinations.admit("slow"), destinations.admit("other")]).toEqual(["none", "all"]);
  clock.nowMs = 100;
  expect([destinations.listResting(), destinations.nextMs()]).toEqual([[], Infinity]);
  expect(destinations.recordFailure("slow", failure, false)).toBe(200);
  destinations.recordAnswer("slow");
  expect([destinations.listResting(), destinations.recordFailure("slow", failure, false)]).toEqual([[], 100]);
});

test("A17: opening, probing and closing emit events with the number of open breakers", () => {
  const { clock, observer, destinations } = setup();
  for (const topic of ["a", "b"])
    for (let i = 0; i < 2; i++) {
      clock.nowMs += 500;
      destinations.recordFailure(topic, failure, false);
    }
  expect(destinations.states()).toEqual({ a: "open", b: "open" });
  clock.nowMs = 3_000;
  expect([destinations.admit("a"), destinations.admit("a"), destinations.accepts("a")]).toEqual([
    "probe",
    "none",
    false,
  ]);
  expect(destinations.states()).toEqual({ a: "half-open", b: "open" });
  destinations.recordAnswer("a");
  expect(destinations.states()).toEqual({ b: "open" });
  expect(observer.emitted.filter(({ name }) => name.startsWith("breaker."))).toEqual([
    { name: "breaker.opened", fields: { topic: "a", failures: 2, delayMs: 1_000, open: 1, ...failure } },
    { name: "breaker.opened", fields: { topic: "b", failures: 2, delayMs: 1_000, open: 2, ...failure } },
    { name: "breaker.probing", fields: { topic: "a", open: 2 } },
    { name: "breaker.closed", fields: { topic: "a", durationMs: 2_000, open: 1 } },
  ]);
});

test("listeners are called when a destination recovers", () => {
  const { destinations } = setup();
  let recoveries = 0;
  destinations.onRecovery(() => (recoveries += 1));
  destinations.recordAnswer("a");
  expect(recoveries).toBe(0);
  destinations.recordFailure("a", failure, false);
  destinations.recordAnswer("a");
  expect(recoveries).toBe(1);
});

test("accepts() does not use up the probe", () => {
  const { clock, destinations } = setup(1);
  destinations.recordFailure("a", failure, false);
  expect(destinations.accepts("a")).toBe(false);
  clock.nowMs = 1_000;
  expect([destinations.accepts("a"), destinations.accepts("a"), destinations.admit("a")]).toEqual([
    true,
    true,
    "probe",
  ]);
  destinations.cancelTrial("a");
  expect(destinations.admit("a")).toBe("probe");
});

test("a breaker is removed when its lanes went to another process", () => {
  const { observer, destinations, timers } = setup(1);
  destinations.recordFailure("moved", failure, false);
  destinations.recordFailure("kept", failure, false);
  expect([destinations.states(), timers.length]).toEqual([{ moved: "open", kept: "open" }, 1]);
  timers.shift()?.(); // a minute after it opened: its cool-down of a second ended less than a minute ago
  expect(destinations.states()).toEqual({ moved: "open", kept: "open" });
  expect(destinations.admit("kept")).toBe("probe");
  destinations.recordFailure("kept", failure, true);
  timers.shift()?.();
  expect(destinations.states()).toEqual({ kept: "open" });
  expect([destinations.admit("moved"), destinations.admit("kept")]).toEqual(["all", "probe"]);
  expect(observer.of("breaker.forgotten")).toEqual([{ topic: "moved", durationMs: 120_000, open: 1 }]);
  destinations.recordAnswer("kept");
  timers.shift()?.();
  expect([timers, observer.of("breaker.forgotten").length]).toEqual([[], 1]);
});

test("a probe in flight never becomes outdated", () => {
  const { destinations, timers } = setup(1);
  destinations.recordFailure("slow", failure, false);
  timers.shift()?.();
  expect(destinations.admit("slow")).toBe("probe");
  timers.shift()?.();
  timers.shift()?.();
  expect(destinations.states()).toEqual({ slow: "half-open" });
});

test("listAnswered() keeps older answers, by which messages are judged", () => {
  const { clock, destinations } = setup();
  destinations.markSuspect("suspect");
  clock.nowMs = 1;
  destinations.recordAnswer("a");
  clock.nowMs = 100_000;
  expect(destinations.listAnswered(60_000)).toEqual([]);
  expect(destinations.hasAnsweredOthers({ topic: "a", messageId: "suspect" })).toBe(true);
});

test("a process without a relay removes outdated breakers too", () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const observer = new RecordingObserver();
  const destinations = new Destinations({
    breaker: { failures: 1, cooldownMs: 1_000, maxCooldownMs: 10_000 },
    observer,
  });
  destinations.recordFailure("moved", failure, false);
  vi.advanceTimersByTime(59_000);
  expect(destinations.states()).toEqual({ moved: "open" });
  vi.advanceTimersByTime(62_000);
  expect([destinations.states(), vi.getTimerCount()]).toEqual([{}, 0]);
});
