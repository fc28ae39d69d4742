import { expect, test } from "vitest";
import { RecordingObserver } from "../../test/support/recording-observer.ts";
import { Destinations } from "./destinations.ts";

const failure = { reason: "unreachable", error: "no" } as const;

function setup(failures = 2) {
  const clock = { nowMs: 0 };
  const observer = new RecordingObserver();
  const destinations = new Destinations({
    breaker: { failures, cooldownMs: 1_000, maxCooldownMs: 10_000 },
    observer,
    clock: { monotonicMs: () => clock.nowMs, wallMs: () => 0 },
    random: () => 1,
  });
  return { clock, observer, destinations };
}

test("only the failing destination rests, until its time is over or it has answered", () => {
  const { clock, destinations } = setup(9);
  expect(destinations.failed("slow", failure, false)).toBe(100);
  expect([destinations.resting(), destinations.nextMs(), destinations.restMs("slow")]).toEqual([
    ["slow"],
    100,
    100,
  ]);
  expect([destinations.admit("slow"), destinations.admit("other")]).toEqual(["none", "all"]);
  clock.nowMs = 100;
  expect([destinations.resting(), destinations.nextMs()]).toEqual([[], Infinity]);
  expect(destinations.failed("slow", failure, false)).toBe(200);
  destinations.answered("slow");
  expect([destinations.resting(), destinations.failed("slow", failure, false)]).toEqual([[], 100]);
});

test("A17: opening, probing and closing are told, with how many are open", () => {
  const { clock, observer, destinations } = setup();
  for (const topic of ["a", "b"])
    for (let i = 0; i < 2; i++) {
      clock.nowMs += 500;
      destinations.failed(topic, failure, false);
    }
  expect(destinations.states()).toEqual({ a: "open", b: "open" });
  clock.nowMs = 3_000;
  expect([destinations.admit("a"), destinations.admit("a"), destinations.accepts("a")]).toEqual([
    "probe",
    "none",
    false,
  ]);
  expect(destinations.states()).toEqual({ a: "half-open", b: "open" });
  destinations.answered("a");
  expect(destinations.states()).toEqual({ b: "open" });
  expect(observer.told.filter(({ name }) => name.startsWith("breaker."))).toEqual([
    { name: "breaker.opened", fields: { topic: "a", failures: 2, delayMs: 1_000, open: 1, ...failure } },
    { name: "breaker.opened", fields: { topic: "b", failures: 2, delayMs: 1_000, open: 2, ...failure } },
    { name: "breaker.probing", fields: { topic: "a", open: 2 } },
    { name: "breaker.closed", fields: { topic: "a", durationMs: 2_000, open: 1 } },
  ]);
});

test("whoever waits hears at once that a destination flows again", () => {
  const { destinations } = setup();
  let recoveries = 0;
  destinations.onRecovery(() => (recoveries += 1));
  destinations.answered("a");
  expect(recoveries).toBe(0);
  destinations.failed("a", failure, false);
  destinations.answered("a");
  expect(recoveries).toBe(1);
});

test("asking whether a topic is accepted does not use up its probe", () => {
  const { clock, destinations } = setup(1);
  destinations.failed("a", failure, false);
  expect(destinations.accepts("a")).toBe(false);
  clock.nowMs = 1_000;
  expect([destinations.accepts("a"), destinations.accepts("a"), destinations.admit("a")]).toEqual([
    true,
    true,
    "probe",
  ]);
  destinations.undecided("a");
  expect(destinations.admit("a")).toBe("probe");
});
