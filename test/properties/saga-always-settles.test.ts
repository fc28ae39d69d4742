// Generated sagas in a simulation where replies are late, doubled, out of order or lost, processes die and operators interfere:
// each one ends, and what was done is kept once or undone once (I-09, I-13 to I-17, I-30 without a database).
import { expect, test } from "vitest";
import { Choices } from "./saga-simulation/generate-saga.ts";
import { planted } from "./saga-simulation/planted.ts";
import { explain, classifyComplaint, simulate } from "./saga-simulation/simulation.ts";

const SAGAS = Number(process.env["TEST_SAGAS"] ?? 5_000);
const FIRST = Number(process.env["TEST_SAGA_SEED"] ?? 1);

/** What has to come to pass at least once, or the rest proves nothing. */
const mustHappen = [
  "a late success",
  "a do after its undo",
  "a repeated do",
  "the step was done after this undo",
  "it was known to be done",
  "it was known to be undone",
  "a newer try has taken its place",
  "retry by ann: test",
  "skip by ann: test",
  "settle by ann: test",
  "its deadline has passed",

  "another one of its group was first",
  "another one of its group failed",
  "5 workers died while running it",
  "its pivot has begun, and its outcome is not known yet",
  "its parent took it back",
  "not taken",
  "it is past its pivot and can only go forward",
  '"sim.a" came before it was waited for',
  "no step of it waits for that",
  "running → failed",
  "completing → failed",
  "compensating → failed",
  "compensated → compensating",
  "failed → running",
  "failed → completing",
  "failed → compensating",
  "completed → compensating",
];

test(`I-13…I-17, G23: ${SAGAS} generated sagas settle`, { timeout: 600_000 }, () => {
  const [reached, ends] = [new Set<string>(), new Map<string, number>()];
  for (let seed = FIRST; seed < FIRST + SAGAS; seed += 1) {
    const run = simulate(Choices.fromSeed(seed));
    if (run.violations.length > 0) expect.fail(explain(seed));
    for (const one of run.reached) reached.add(one);
    const [end = "none"] = run.statuses;
    ends.set(end, (ends.get(end) ?? 0) + 1);
  }
  if (SAGAS < 5_000) return;
  expect(mustHappen.filter((one) => !reached.has(one))).toEqual([]);
  for (const end of ["completed", "compensated", "failed"]) expect(ends.get(end)).toBeGreaterThan(SAGAS / 50);
});

test("I-30: the same seed gives the same run", () => {
  const story = (seed: number): string => simulate(Choices.fromSeed(seed), undefined, true).trace.join("\n");
  for (const seed of [11, 42, 137]) expect(story(seed)).toBe(story(seed));
});

type Planted = keyof typeof planted;

/** Each mistake, and by what it is known. */
const tells: Readonly<Record<Planted, RegExp>> = {
  "a step of unknown outcome is not undone": /done and not undone/,
  "the first is undone first": /was undone before .*, which came after it/,
  "a late success is ignored": /done and not undone|lost, but was not undone/,
  "an undo that came too early counts": /done and not undone|lost, but was not undone/,
  "an undo does not say what it undoes": /not undone|was undone, not done/,
  "a second try does not say what it stands for": /was done 2 times|not undone/,
  "an event goes to every step that waits for its name": /went on with an event of another key/,
  "a cancellation is obeyed past the pivot": /I-09|S-22/,
  "a pivot of unknown outcome is taken for not done": /S-22/,
  "no incident is opened": /0 open incidents/,
  "a command is forgotten": /I-15/,
  "the parent gets no outcome": /it rests as|no operator can end it/,
  "a step begins before it is written down": /I-15/,
  "the state holds what JSON does not": /I-30/,
  "a timeout wins after the reply": /I-16/,
  "a version leaves no line": /I-14/,
};

const firstFound = (name: Planted): { readonly seed: number; readonly violations: readonly string[] } => {
  for (let seed = 1; seed <= 4_000; seed += 1) {
    const { violations } = simulate(Choices.fromSeed(seed), planted[name]);
    if (violations.length > 0) return { seed, violations };
  }
  return { seed: 0, violations: [] };
};

test.each(Object.entries(tells) as [Planted, RegExp][])(
  "the checks find it when %s",
  { timeout: 60_000 },
  (name, tell) => {
    expect(firstFound(name).violations.join()).toMatch(tell);
  },
);

test("a failure is reported with its seed, as short as possible", () => {
  const engine = planted["a late success is ignored"];
  const { seed, violations } = firstFound("a late success is ignored");
  const { trace } = simulate(Choices.fromSeed(seed), engine, true);
  const [first = "", second = "", ...story] = explain(seed, engine).split("\n");
  expect(first).toContain(`seed ${seed}: ${violations[0]}`);
  expect(classifyComplaint([second.replace("shrunk: ", "").split(" · ")[0] ?? ""])).toBe(
    classifyComplaint(violations),
  );
  expect(story.length).toBeLessThan(trace.length);
});
