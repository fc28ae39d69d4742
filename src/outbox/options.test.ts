import { expect, test } from "vitest";
import { outboxSettings } from "./options.ts";

test("A17: the breaker has defaults, and a long cool-down raises the maximum", () => {
  expect(outboxSettings().breaker).toEqual({ failures: 3, cooldownMs: 1_000, maxCooldownMs: 30_000 });
  expect(outboxSettings({ breaker: { cooldown: "1m" } }).breaker.maxCooldownMs).toBe(60_000);
});

test.each([
  [{ failures: 0 }, "outbox.breaker.failures"],
  [{ failures: 1.5 }, "outbox.breaker.failures"],
  [{ cooldown: 1 }, "outbox.breaker.cooldown"],
  [{ cooldown: "10s", maxCooldown: "5s" }, "outbox.breaker.maxCooldown"],
  [{ cooldwon: 1 }, 'Did you mean "cooldown"'],
])("%j is refused by name", (breaker, name) => {
  expect(() => outboxSettings({ breaker: breaker as object })).toThrow(name);
});

test("A16: by default a paused topic is resumed at four fifths of its limit", () => {
  expect(outboxSettings().brokerDepth).toBeNull();
  expect(outboxSettings({ brokerDepth: { limit: 10 } }).brokerDepth).toEqual({
    limit: 10,
    resumeAt: 8,
    everyMs: 2_000,
  });
  expect(() => outboxSettings({ brokerDepth: { limit: 10, resumeAt: 10 } })).toThrow("resumeAt");
  expect(() => outboxSettings({ brokerDepth: { limit: 0 } })).toThrow("outbox.brokerDepth.limit");
});
