import { expect, test } from "vitest";
import {
  decideAdmittance,
  startTrial,
  maxIdleMs,
  CLOSED,
  recordFailure,
  isOutdated,
  cancelTrial,
  type Breaker,
} from "./destinations.ts";

const settings = { failures: 3, cooldownMs: 1_000, maxCooldownMs: 8_000 };

const fail = (breaker: Breaker, nowMs = 0, { trial = true, random = 1 } = {}): Breaker =>
  recordFailure(breaker, settings, { nowMs, trial, random: () => random });

const failTimes = (times: number): Breaker => {
  let breaker = CLOSED;
  for (let i = 0; i < times; i++) breaker = fail(breaker, breaker.untilMs);
  return breaker;
};

test("A17: it opens after the configured number of failed batches in a row", () => {
  expect([1, 2, 3].map((times) => failTimes(times).kind)).toEqual(["closed", "closed", "open"]);
});

test("A17: a destination that failed pauses briefly, then gets one batch at a time", () => {
  const once = fail(CLOSED);
  expect(once.untilMs).toBe(100);
  expect([decideAdmittance(once, 99), decideAdmittance(once, 100)]).toEqual(["none", "trial"]);
  expect(decideAdmittance(startTrial(once), 100)).toBe("none");
  expect(fail(once, 100).untilMs).toBe(300);
});

test("A17: an open breaker sends nothing during the cool-down, then one message at a time", () => {
  const open = failTimes(3);
  const endMs = open.untilMs;
  expect([decideAdmittance(open, endMs - 1), decideAdmittance(open, endMs)]).toEqual(["none", "probe"]);
  const probing = startTrial(open);
  expect([probing.kind, decideAdmittance(probing, endMs + 60_000)]).toEqual(["half-open", "none"]);
});

test("A17: each failed probe lengthens the cool-down, up to its maximum", () => {
  let breaker = failTimes(3);
  const cooldowns: number[] = [];
  for (let nowMs = 0; cooldowns.length < 6; nowMs += 60_000) {
    breaker = fail(startTrial(breaker), nowMs);
    cooldowns.push(breaker.untilMs - nowMs);
    expect(breaker.kind).toBe("open");
  }
  expect(cooldowns).toEqual([2_000, 4_000, 8_000, 8_000, 8_000, 8_000]);
});

test("the jitter covers the second half of a cool-down", () => {
  const twice = failTimes(2);
  expect([0, 0.5, 1].map((random) => fail(twice, 0, { random }).untilMs)).toEqual([500, 750, 1_000]);
});

test("a batch in flight when it opened neither lengthens the cool-down nor counts as the probe", () => {
  const open = failTimes(3);
  expect(fail(open, 5_000, { trial: false })).toBe(open);
  const probing = startTrial(open);
  expect(fail(probing, 5_000, { trial: false })).toBe(probing);
});

test("a probe that never reached the broker allows the next one", () => {
  const open = failTimes(3);
  const back = cancelTrial(startTrial(open), open.untilMs);
  expect([back.kind, decideAdmittance(back, open.untilMs)]).toEqual(["open", "probe"]);
  expect(cancelTrial(startTrial(fail(CLOSED)), 100)).toEqual(fail(CLOSED));
});

test("an open breaker is outdated if it is not tried for long after its cool-down", () => {
  const open = failTimes(3);
  const endMs = open.untilMs + maxIdleMs(settings);
  expect([isOutdated(open, settings, endMs - 1), isOutdated(open, settings, endMs)]).toEqual([false, true]);
  expect(isOutdated(startTrial(open), settings, endMs)).toBe(false);
  expect(isOutdated(fail(startTrial(open), endMs), settings, endMs)).toBe(false);
  expect(isOutdated(cancelTrial(startTrial(open), endMs), settings, endMs)).toBe(false);
  expect(isOutdated(fail(CLOSED), settings, endMs)).toBe(false);
});

test("it stays valid for longer than the poll interval and the longest cool-down", () => {
  expect(maxIdleMs(settings)).toBe(60_000);
  expect(maxIdleMs({ ...settings, maxCooldownMs: 3_600_000 })).toBe(7_200_000);
});

test("with a threshold of one the first failure opens it", () => {
  const breaker = recordFailure(
    CLOSED,
    { ...settings, failures: 1 },
    { nowMs: 0, random: () => 1, trial: false },
  );
  expect([breaker.kind, breaker.untilMs]).toEqual(["open", 1_000]);
});
