import { expect, test } from "vitest";
import { check } from "./checker.ts";
import type { Evidence } from "./evidence.ts";

const BEGAN_MS = 1_000_000;

/** Two keys, two messages each, seen and handled once and in order, by workers that handed a lane over. */
function flawless(): { -readonly [Field in keyof Evidence]: Evidence[Field][number][] } {
  const committed = ["a1", "a2", "b1", "b2"].map((id) => ({
    id,
    key: id.charAt(0),
    kseq: Number(id.charAt(1)),
  }));
  const groups = ["1", "2"];
  const handlers = ["billing", "mail"];
  return {
    handlers,
    groups,
    committed,
    wire: groups.flatMap((group) =>
      committed.map(({ id }, i) => ({ id, group, worker: "w1", atMs: BEGAN_MS + i * 10_000 })),
    ),
    effects: handlers.flatMap((handler) =>
      committed.map((message) => ({ ...message, handler, worker: "w1" })),
    ),
    laneMoves: [
      { lane: 0, fromOwner: null, toOwner: "w1/x", fromFence: 0, toFence: 1, robbed: false },
      { lane: 0, fromOwner: "w1/x", toOwner: null, fromFence: 1, toFence: 1, robbed: false },
      { lane: 0, fromOwner: null, toOwner: "w2/y", fromFence: 1, toFence: 2, robbed: false },
    ],
    settles: [
      { lane: 0, seq: "1", worker: "w1", owner: "w1/x", writer: null },
      { lane: 0, seq: "2", worker: "l1", owner: "w1/x", writer: "l1" },
    ],
    faults: [],
  } as ReturnType<typeof flawless>;
}

type History = ReturnType<typeof flawless>;

const copy = (worker: string, atMs: number) => ({ id: "a1", group: "1", worker, atMs });

test("a flawless history breaks no promise", () => {
  expect(check(flawless())).toEqual({ violations: [], duplicates: 0 });
});

test.each<[string, string, (history: History) => unknown]>([
  ["a message that never reached one of its groups", "I-01", (h) => h.wire.splice(3, 1)],
  [
    "a message on the wire whose transaction rolled back",
    "I-02",
    (h) => h.wire.push({ ...copy("w1", BEGAN_MS), id: "ghost" }),
  ],
  [
    "an effect of a message that was never committed",
    "I-02",
    (h) => h.effects.push({ ...effect(h, 0), id: "ghost", key: "z" }),
  ],
  ["an effect that happened twice", "I-03", (h) => h.effects.splice(1, 0, effect(h, 0))],
  ["an effect that never happened", "I-03", (h) => h.effects.splice(7, 1)],
  [
    "an effect with another message's content",
    "I-04",
    (h) => h.effects.splice(3, 1, { ...effect(h, 3), kseq: 9 }),
  ],
  ["two messages of a key swapped on the wire", "I-05", (h) => h.wire.reverse()],
  ["two effects of a key swapped", "I-06", (h) => h.effects.splice(0, 2, effect(h, 1), effect(h, 0))],
  [
    "a row settled by a worker that lost its lane",
    "I-10",
    (h) => h.settles.push({ lane: 0, seq: "3", worker: "w1", owner: "w2/y", writer: null }),
  ],
  [
    "a row settled while its lane had no owner",
    "I-10",
    (h) => h.settles.push({ lane: 0, seq: "3", worker: "w1", owner: null, writer: null }),
  ],
  [
    "a row settled by a worker whose name only begins alike",
    "I-10",
    (h) => h.settles.push({ lane: 0, seq: "3", worker: "w1", owner: "w11/z", writer: null }),
  ],
  [
    "a row leased to its writer and settled by a stranger",
    "I-10",
    (h) => h.settles.push({ lane: 0, seq: "3", worker: "l2", owner: "w2/y", writer: "l1" }),
  ],
  [
    "a fence that did not grow",
    "I-10",
    (h) =>
      h.laneMoves.push({
        lane: 0,
        fromOwner: null,
        toOwner: "w3/z",
        fromFence: 2,
        toFence: 2,
        robbed: false,
      }),
  ],
  [
    "a lane taken while its owner's lease ran",
    "I-11",
    (h) =>
      h.laneMoves.push({
        lane: 0,
        fromOwner: "w2/y",
        toOwner: "w3/z",
        fromFence: 2,
        toFence: 3,
        robbed: true,
      }),
  ],
  ["a second copy without any fault", "I-28", (h) => h.wire.push(copy("w2", BEGAN_MS + 500))],
])("it finds %s", (_, invariant, plant) => {
  const history = flawless();
  plant(history);
  const found = check(history).violations.map((violation) => violation.invariant.split(" ")[0]);
  expect(found).toContain(invariant);
});

test("a worker that joined again may take back its own lanes", () => {
  const history = flawless();
  const move = { lane: 0, fromFence: 2, toFence: 3, robbed: true };
  history.laneMoves.push({ ...move, fromOwner: "w2/y", toOwner: "w2/z" });
  expect(check(history).violations).toEqual([]);
});

test("a second copy is explained by a fault of its sender at that time, and by no other", () => {
  const countViolations = (worker: string, fromMs: number): number => {
    const history = flawless();
    history.wire.push(copy("w2", BEGAN_MS + 500));
    history.faults.push({ worker, fromMs, toMs: fromMs });
    return check(history).violations.length;
  };
  expect(countViolations("w1", BEGAN_MS + 100)).toBe(0);
  expect(countViolations("*", BEGAN_MS + 100)).toBe(0);
  expect(countViolations("w3", BEGAN_MS + 100)).toBe(1);
  expect(countViolations("w1", BEGAN_MS + 60_000)).toBe(1);
  expect(check({ ...flawless(), wire: [...flawless().wire, copy("w1", BEGAN_MS)] }).duplicates).toBe(1);
});

function effect(history: History, index: number): History["effects"][number] {
  const found = history.effects[index];
  if (found === undefined) throw new Error(`There is no effect ${index}.`);
  return found;
}
