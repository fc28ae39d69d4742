import { expect, test } from "vitest";
import { silentObserver } from "../telemetry/index.ts";
import { Destinations } from "./destinations.ts";
import { learn, lotsOf } from "./lots.ts";
import type { SendOutcome } from "./publish-batch.ts";

const failure = { reason: "unreachable", error: "no" } as const;
const unreachable: SendOutcome = { kind: "unreachable", error: new Error("no") };
const row = (topic: string, seq: number): { topic: string; seq: number } => ({ topic, seq });

function setup(failures = 2) {
  const clock = { nowMs: 0 };
  const destinations = new Destinations({
    breaker: { failures, cooldownMs: 1_000, maxCooldownMs: 1_000 },
    observer: silentObserver,
    clock: { monotonicMs: () => clock.nowMs, wallMs: () => 0 },
    random: () => 1,
  });
  return { clock, destinations };
}

test("while nothing has failed everything is one lot, untouched", () => {
  const rows = [row("a", 1), row("b", 2)];
  const { lots, waiting } = lotsOf(rows, setup().destinations);
  expect([lots.length, lots[0]?.rows, waiting]).toEqual([1, rows, []]);
  expect(lots[0]?.rows).toBe(rows);
});

test("a topic that failed goes by itself, an open one sends its first message, a resting one waits", () => {
  const { clock, destinations } = setup();
  destinations.failed("shaky", failure, false);
  for (let i = 0; i < 2; i++) destinations.failed("open", failure, false);
  clock.nowMs = 1_000;
  destinations.failed("resting", failure, false);
  const rows = [
    row("open", 1),
    row("ok", 2),
    row("shaky", 3),
    row("open", 4),
    row("resting", 5),
    row("shaky", 6),
  ];
  expect(lotsOf(rows, destinations)).toEqual({
    lots: [
      { rows: [row("ok", 2)] },
      { rows: [row("open", 1)], trial: "open" },
      { rows: [row("shaky", 3), row("shaky", 6)], trial: "shaky" },
    ],
    waiting: [row("open", 4), row("resting", 5)],
  });
});

test("a failed batch counts once, whatever its size, and tells how long its messages wait", () => {
  const { destinations } = setup();
  const rows = [row("a", 1), row("a", 2), row("b", 3)];
  const waits = learn(destinations, { rows }, [unreachable, unreachable, { kind: "published" }]);
  expect([...waits]).toEqual([["a", 100]]);
  expect(destinations.states()).toEqual({});
});

test.each<SendOutcome>([
  { kind: "rejected", error: new Error("full") },
  { kind: "refused", error: new Error("never") },
  { kind: "published" },
])("$kind is an answer: it closes the breaker", (outcome) => {
  const { clock, destinations } = setup(1);
  destinations.failed("a", failure, false);
  clock.nowMs = 1_000;
  const { lots } = lotsOf([row("a", 1)], destinations);
  expect(lots[0]?.trial).toBe("a");
  learn(destinations, lots[0] ?? { rows: [] }, [outcome]);
  expect([destinations.states(), destinations.admit("a")]).toEqual([{}, "all"]);
});

test("a probe that was never sent leaves its place to the next one", () => {
  const { clock, destinations } = setup(1);
  destinations.failed("a", failure, false);
  clock.nowMs = 1_000;
  const { lots } = lotsOf([row("a", 1)], destinations);
  learn(destinations, lots[0] ?? { rows: [] }, [{ kind: "skipped" }]);
  expect([destinations.states(), destinations.admit("a")]).toEqual([{ a: "open" }, "probe"]);
});
