import { expect, test } from "vitest";
import {
  admittance,
  begun,
  believedMs,
  CLOSED,
  failed,
  isOutdated,
  undecided,
  type Breaker,
} from "./breaker.ts";

const settings = { failures: 3, cooldownMs: 1_000, maxCooldownMs: 8_000 };

const fail = (breaker: Breaker, nowMs = 0, { trial = true, random = 1 } = {}): Breaker =>
  failed(breaker, settings, { nowMs, trial, random: () => random });

const failTimes = (times: number): Breaker => {
  let breaker = CLOSED;
  for (let i = 0; i < times; i++) breaker = fail(breaker, breaker.untilMs);
  return breaker;
};

test("A17: it opens after as many failed batches in a row as the settings say, not before", () => {
  expect([1, 2, 3].map((times) => failTimes(times).kind)).toEqual(["closed", "closed", "open"]);
});

test("A17: a destination that failed rests for a moment, then goes by one batch at a time", () => {
  const once = fail(CLOSED);
  expect(once.untilMs).toBe(100);
  expect([admittance(once, 99), admittance(once, 100)]).toEqual(["none", "trial"]);
  expect(admittance(begun(once), 100)).toBe("none");
  expect(fail(once, 100).untilMs).toBe(300);
});

test("A17: open lets nothing through until the cool-down is over, then one message, then nothing until it is back", () => {
  const open = failTimes(3);
  const endMs = open.untilMs;
  expect([admittance(open, endMs - 1), admittance(open, endMs)]).toEqual(["none", "probe"]);
  const probing = begun(open);
  expect([probing.kind, admittance(probing, endMs + 60_000)]).toEqual(["half-open", "none"]);
});

test("A17: each failed probe opens it for longer, up to the longest cool-down", () => {
  let breaker = failTimes(3);
  const cooldowns: number[] = [];
  for (let nowMs = 0; cooldowns.length < 6; nowMs += 60_000) {
    breaker = fail(begun(breaker), nowMs);
    cooldowns.push(breaker.untilMs - nowMs);
    expect(breaker.kind).toBe("open");
  }
  expect(cooldowns).toEqual([2_000, 4_000, 8_000, 8_000, 8_000, 8_000]);
});

test("cool-downs are spread over their second half", () => {
  const twice = failTimes(2);
  expect([0, 0.5, 1].map((random) => fail(twice, 0, { random }).untilMs)).toEqual([500, 750, 1_000]);
});

test("a batch that was under way when it opened neither lengthens the cool-down nor answers for the probe", () => {
  const open = failTimes(3);
  expect(fail(open, 5_000, { trial: false })).toBe(open);
  const probing = begun(open);
  expect(fail(probing, 5_000, { trial: false })).toBe(probing);
});

test("a probe that never reached the broker leaves the place to the next one", () => {
  const open = failTimes(3);
  const back = undecided(begun(open), open.untilMs);
  expect([back.kind, admittance(back, open.untilMs)]).toEqual(["open", "probe"]);
  expect(undecided(begun(fail(CLOSED)), 100)).toEqual(fail(CLOSED));
});

test("an open breaker that nobody has tried for long after its rest is outdated, one that is tried is not", () => {
  const open = failTimes(3);
  const endMs = open.untilMs + believedMs(settings);
  expect([isOutdated(open, settings, endMs - 1), isOutdated(open, settings, endMs)]).toEqual([false, true]);
  expect(isOutdated(begun(open), settings, endMs)).toBe(false);
  expect(isOutdated(fail(begun(open), endMs), settings, endMs)).toBe(false);
  expect(isOutdated(undecided(begun(open), endMs), settings, endMs)).toBe(false);
  expect(isOutdated(fail(CLOSED), settings, endMs)).toBe(false);
});

test("it is believed for longer than any relay waits between two looks, and than any message is put aside", () => {
  expect(believedMs(settings)).toBe(60_000);
  expect(believedMs({ ...settings, maxCooldownMs: 3_600_000 })).toBe(7_200_000);
});

test("with a threshold of one the first failure opens it", () => {
  const breaker = failed(CLOSED, { ...settings, failures: 1 }, { nowMs: 0, random: () => 1, trial: false });
  expect([breaker.kind, breaker.untilMs]).toEqual(["open", 1_000]);
});
