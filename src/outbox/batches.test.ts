import { expect, test } from "vitest";
import { silentObserver } from "../telemetry/index.ts";
import { Destinations } from "./destinations.ts";
import { planBatches, recordOutcomes, type SendOutcome } from "./batches.ts";

const failure = { reason: "unreachable", error: "no" } as const;
const unreachable: SendOutcome = { kind: "unreachable", error: new Error("no") };
const row = (topic: string, seq: number, stream: string | null = null) => ({
  topic,
  messageId: `${topic}-${seq}`,
  stream,
});

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

test("without failures all rows are one batch, untouched", () => {
  const rows = [row("a", 1), row("b", 2)];
  const { batches, waiting } = planBatches(rows, setup().destinations);
  expect([batches.length, batches[0]?.rows, waiting]).toEqual([1, rows, []]);
  expect(batches[0]?.rows).toBe(rows);
});

test("a failed topic gets its own batch, an open one sends one message, a resting one waits", () => {
  const { clock, destinations } = setup();
  destinations.recordFailure("shaky", failure, false);
  for (let i = 0; i < 2; i++) destinations.recordFailure("open", failure, false);
  clock.nowMs = 1_000;
  destinations.recordFailure("resting", failure, false);
  const rows = [
    row("open", 1),
    row("ok", 2),
    row("shaky", 3),
    row("open", 4),
    row("resting", 5),
    row("shaky", 6),
  ];
  expect(planBatches(rows, destinations)).toEqual({
    batches: [
      { rows: [row("ok", 2)] },
      { rows: [row("open", 1)], trial: "open" },
      { rows: [row("shaky", 3), row("shaky", 6)], trial: "shaky" },
    ],
    waiting: [row("open", 4), row("resting", 5)],
  });
});

test("a failed batch counts as one failure and returns how long its messages wait", () => {
  const { destinations } = setup();
  const rows = [row("a", 1), row("a", 2), row("b", 3)];
  const { waitMs } = recordOutcomes(destinations, { rows }, [
    unreachable,
    unreachable,
    { kind: "published" },
  ]);
  expect([waitMs({ topic: "a" }), waitMs({ topic: "b" })]).toEqual([100, 0]);
  expect(destinations.states()).toEqual({});
});

test.each<SendOutcome>([
  { kind: "rejected", error: new Error("full") },
  { kind: "refused", error: new Error("never") },
  { kind: "published" },
])("$kind is an answer: it closes the breaker", (outcome) => {
  const { clock, destinations } = setup(1);
  destinations.recordFailure("a", failure, false);
  clock.nowMs = 1_000;
  const { batches } = planBatches([row("a", 1)], destinations);
  expect(batches[0]?.trial).toBe("a");
  recordOutcomes(destinations, batches[0] ?? { rows: [] }, [outcome]);
  expect([destinations.states(), destinations.admit("a")]).toEqual([{}, "all"]);
});

test("a probe that was never sent allows the next one", () => {
  const { clock, destinations } = setup(1);
  destinations.recordFailure("a", failure, false);
  clock.nowMs = 1_000;
  const { batches } = planBatches([row("a", 1)], destinations);
  recordOutcomes(destinations, batches[0] ?? { rows: [] }, [{ kind: "skipped" }]);
  expect([destinations.states(), destinations.admit("a")]).toEqual([{ a: "open" }, "probe"]);
});

/** Sends until nothing is left. The broker fails every batch that contains one of the bad messages. */
function send(bad: readonly string[], count: number) {
  const { clock, destinations } = setup(3);
  let left = Array.from({ length: count }, (_, n) => row("a", n, n % 5 === 0 ? `stream-${n % 25}` : null));
  const attempted: string[] = [];
  const sizes: number[] = [];
  for (let round = 0; left.length > bad.length && round < 200; round++) {
    clock.nowMs += 1_000;
    const sent = new Set<string>();
    for (const batch of planBatches(left, destinations).batches) {
      sizes.push(batch.rows.length);
      const failing = batch.rows.some(({ messageId }) => bad.includes(messageId));
      const { outcomes } = recordOutcomes(
        destinations,
        batch,
        batch.rows.map(() => (failing ? unreachable : { kind: "published" as const })),
      );
      for (const [i, { kind }] of outcomes.entries()) {
        const id = batch.rows[i]?.messageId ?? "";
        if (kind === "published") sent.add(id);
        if (kind === "rejected") attempted.push(id);
      }
      clock.nowMs += 1;
    }
    left = left.filter(({ messageId }) => !sent.has(messageId));
  }
  return { left: left.map(({ messageId }) => messageId), attempted, sizes, destinations };
}

test("A17: a message that fails every batch it is in holds back neither its topic nor other messages", () => {
  const { left, attempted, destinations } = send(["a-0"], 500);
  expect(left.filter((id) => id !== "a-0")).toEqual(
    // Later messages of its key have to wait for it.
    Array.from({ length: 19 }, (_, n) => `a-${(n + 1) * 25}`),
  );
  expect(new Set(attempted)).toEqual(new Set(["a-0"]));
  expect(destinations.states()).toEqual({});
});

test("A17: several such messages are all found, and others lose no attempts", () => {
  const bad = ["a-1", "a-77", "a-78", "a-499"];
  const { left, attempted } = send(bad, 500);
  expect(left).toEqual(bad);
  for (const id of attempted) expect(bad).toContain(id);
});

test("A17: a confirmed bad message never pauses its topic, and loses attempts only if others are answered", () => {
  const { clock, destinations } = setup(1);
  const fail = () => {
    clock.nowMs += 10;
    return recordOutcomes(destinations, { rows: [row("a", 1)] }, [unreachable]);
  };
  const succeed = () => {
    clock.nowMs += 10;
    recordOutcomes(destinations, { rows: [row("a", 2)] }, [{ kind: "published" }]);
  };
  expect([fail().outcomes[0]?.kind, destinations.states()]).toEqual(["unreachable", { a: "open" }]);
  succeed();
  expect([fail().outcomes[0]?.kind, destinations.states()]).toEqual(["rejected", {}]);
  const again = fail();
  expect([again.outcomes[0]?.kind, destinations.states()]).toEqual(["unreachable", {}]);
  expect(again.waitMs({ topic: "a" })).toBeGreaterThanOrEqual(1_000);
  succeed();
  expect(fail().outcomes[0]?.kind).toBe("rejected");
});

test("A17: with the broker down no message loses attempts", () => {
  const { attempted } = send(
    Array.from({ length: 50 }, (_, n) => `a-${n}`),
    51,
  );
  expect(attempted).toEqual([]);
});
