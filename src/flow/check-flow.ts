import { type Flow, type Outcome, publishedBy, type Reaction, reactionsTo } from "./flow.ts";

/** Upper bound for the scenarios to enumerate. Checks that need no scenarios run regardless. */
const MAX_SCENARIOS = 20_000;

/**
 * Checks a flow for missing compensations, loops, dead ends, unreachable events and invalid undos. Returns one finding
 * per problem, or an empty array. The function is pure, so call it in a unit test.
 */
export function checkFlow(flow: Flow): readonly FlowFinding[] {
  const found = [
    ...checkReachability(flow),
    ...checkLoops(flow),
    ...checkEnds(flow),
    ...checkScenarios(flow),
  ];
  return [
    ...new Map(found.toReversed().map((one) => [`${one.code} ${one.what}`, one])).values(),
  ].toReversed();
}

function checkReachability(flow: Flow): FlowFinding[] {
  const reached = findReachable(flow);
  return flow.events
    .filter(({ name }) => !reached.has(name))
    .map(({ name }) =>
      finding({
        code: "unreachable",
        event: name,
        where: [name],
        what: `"${name}" never happens: no path from the beginning leads to it.`,
        remedy: "Add a reaction that leads to it, add it to begins(), or remove it.",
      }),
    );
}

function checkLoops(flow: Flow): FlowFinding[] {
  return findLoops(flow).map((loop) =>
    finding({
      code: "loop",
      event: loop[0] ?? "",
      where: loop,
      what: `The events form a loop: ${loop.join(" → ")}.`,
      remedy:
        "Publish a different event for the last attempt, or use the retries of the handler instead of a loop.",
    }),
  );
}

function checkEnds(flow: Flow): FlowFinding[] {
  const reached = findReachable(flow);
  return flow.events.flatMap(({ name }) => {
    const hasReactions = reactionsTo(flow, name).length > 0;
    const end = flow.ends.includes(name);
    if (hasReactions && end) {
      return finding({
        code: "end-goes-on",
        event: name,
        where: [name],
        what: `"${name}" is declared as an end, but a service reacts to it.`,
        remedy: "Remove it from ends(), and add the events that follow from it.",
      });
    }
    if (hasReactions || end || !reached.has(name)) return [];
    return finding({
      code: "dead-end",
      event: name,
      where: [name],
      what: `No service reacts to "${name}", and it is not a declared end.`,
      remedy: "Add the missing reaction, or add the event to ends().",
    });
  });
}

function checkScenarios(flow: Flow): FlowFinding[] {
  const found = new Map<string, FlowFinding>();
  let count = 0;
  for (const scenario of listScenarios(flow)) {
    if (++count > MAX_SCENARIOS) return [...found.values(), tooMany(flow)];
    for (const one of checkScenario(flow, scenario)) {
      const known = found.get(`${one.code} ${one.what}`);
      if (known === undefined || known.where.length > one.where.length)
        found.set(`${one.code} ${one.what}`, one);
    }
  }
  return [...found.values()];
}

function tooMany(flow: Flow): FlowFinding {
  return finding({
    code: "not-all-checked",
    event: flow.begins[0] ?? "",
    where: [],
    what: `The flow has more than ${MAX_SCENARIOS} scenarios; the rest were not checked.`,
    remedy: "Split the flow into several flows that follow each other.",
  });
}

/** Returns the events that a reaction to this event may publish. */
function findFollowing(flow: Flow, event: string): readonly string[] {
  return [...new Set(reactionsTo(flow, event).flatMap(publishedBy))];
}

/** Returns all events that can be reached from a beginning. */
function findReachable(flow: Flow): ReadonlySet<string> {
  const reached = new Set(flow.begins);
  for (const event of reached) for (const next of findFollowing(flow, event)) reached.add(next);
  return reached;
}

/** Finds loops by depth-first search. Each loop is a list whose first and last event are equal. */
function findLoops(flow: Flow): readonly (readonly string[])[] {
  const loops: string[][] = [];
  const done = new Set<string>();
  const follow = (event: string, line: readonly string[]): void => {
    const start = line.indexOf(event);
    if (start !== -1) loops.push([...line.slice(start), event]);
    if (start !== -1 || done.has(event)) return;
    for (const next of findFollowing(flow, event)) follow(next, [...line, event]);
    done.add(event);
  };
  for (const { name } of flow.events) follow(name, []);
  return loops;
}

function checkScenario(flow: Flow, scenario: Scenario): FlowFinding[] {
  return [...checkCompensations(flow, scenario), ...checkUndos(scenario), ...checkPublishedTwice(scenario)];
}

/** After a failure, every effect must be undone, except effects that follow from the failure. */
function checkCompensations(flow: Flow, scenario: Scenario): FlowFinding[] {
  const failure = scenario.made.find((made) => made.failure);
  if (failure === undefined) return [];
  const undone = new Set(listUndos(scenario).map(({ effect }) => effect));
  return scenario.made.flatMap(({ event, reaction, failure: failed }, index) => {
    const isEffect = reaction !== undefined && !failed && reaction.undoes.length === 0;
    const needsNone = undone.has(event) || Object.hasOwn(flow.noUndo, event);
    if (!isEffect || needsNone || findCauses(scenario, index).some((made) => made.failure)) return [];
    return finding({
      code: "missing-compensation",
      event,
      where: listEventNames(scenario),
      what: `When "${failure.event}" happens, nothing undoes "${event}".`,
      remedy: `Let ${reaction.by} react to the failure with { undoes: … }, or say noUndo() with the reason.`,
    });
  });
}

function checkUndos(scenario: Scenario): FlowFinding[] {
  const where = listEventNames(scenario);
  const all = listUndos(scenario);
  return all.flatMap(({ effect, by, on, cause }, index) => {
    const found: FlowFinding[] = [];
    const about = `"${by}" undoes "${effect}" on "${on}"`;
    if (!where.includes(effect)) {
      found.push(
        finding({
          code: "undo-of-nothing",
          event: effect,
          where,
          what: `${about}, but in one scenario that event has not happened.`,
          remedy:
            "React to an event that only follows it, or use different failure events before and after it.",
        }),
      );
    } else if (!findCauses(scenario, cause).some(({ event }) => event === effect)) {
      found.push(
        finding({
          code: "undo-in-a-race",
          event: effect,
          where,
          what: `${about}, but the undo may run before that event has happened.`,
          remedy: `Let ${by} record the undo request, so that it skips the effect if that arrives later.`,
        }),
      );
    }
    if (all.findIndex((other) => other.effect === effect) !== index) {
      found.push(
        finding({
          code: "undone-twice",
          event: effect,
          where,
          what: `"${effect}" is undone more than once in one scenario.`,
          remedy: "Keep one of the reactions, or let the second follow only from the failure of the first.",
        }),
      );
    }
    return found;
  });
}

function checkPublishedTwice(scenario: Scenario): FlowFinding[] {
  return scenario.made.flatMap(({ event }, index) => {
    const earlier = scenario.made.findIndex((made) => made.event === event);
    const isLoop = findCauses(scenario, index).includes(scenario.made[earlier] as Scenario["made"][number]);
    if (earlier === index || isLoop) return [];
    return finding({
      code: "made-twice",
      event,
      where: listEventNames(scenario),
      what: `"${event}" is published by two reactions in one scenario.`,
      remedy: "Give each reaction its own event, or let only one of them publish it.",
    });
  });
}

/** Lists the undone effects with the reaction that undid each. A failed compensation undoes nothing. */
function listUndos(scenario: Scenario) {
  return scenario.fired
    .filter(({ outcome }) => !outcome.failure)
    .flatMap(({ reaction, cause }) =>
      reaction.undoes.map((effect) => ({ effect, by: reaction.by, on: reaction.on, cause })),
    );
}

function listEventNames(scenario: Scenario): readonly string[] {
  return scenario.made.map(({ event }) => event);
}

/** An event of a scenario and its cause. */
interface ScenarioEvent {
  readonly event: string;
  /** Index of the causing event in `Scenario.made`; undefined for the first event. */
  readonly cause: number | undefined;
  readonly reaction: Reaction | undefined;
  readonly failure: boolean;
}

/** A reaction to the event at index `cause`, with the outcome it had. */
interface ScenarioReaction {
  readonly reaction: Reaction;
  readonly outcome: Outcome;
  readonly cause: number;
}

/** One possible run of the flow: one outcome is chosen for every reaction that is reached. */
interface Scenario {
  readonly made: readonly ScenarioEvent[];
  readonly fired: readonly ScenarioReaction[];
}

interface PartialScenario extends Scenario {
  readonly open: readonly { readonly reaction: Reaction; readonly cause: number }[];
}

/** Enumerates the scenarios of a flow. A repeated event triggers no reactions, so loops end. */
function* listScenarios(flow: Flow): Generator<Scenario> {
  for (const event of flow.begins) {
    const made = [{ event, cause: undefined, reaction: undefined, failure: false }];
    yield* growScenario(flow, { made, fired: [], open: listOpenReactions(flow, event, 0) });
  }
}

function* growScenario(flow: Flow, scenario: PartialScenario): Generator<Scenario> {
  const [next, ...later] = scenario.open;
  if (next === undefined) {
    yield { made: scenario.made, fired: scenario.fired };
    return;
  }
  for (const outcome of next.reaction.outcomes)
    yield* growScenario(flow, applyOutcome(flow, { ...scenario, open: later }, next, outcome));
}

function applyOutcome(
  flow: Flow,
  scenario: PartialScenario,
  { reaction, cause }: PartialScenario["open"][number],
  outcome: Outcome,
): PartialScenario {
  const made = [...scenario.made];
  const open = [...scenario.open];
  for (const event of outcome.events) {
    const again = made.some((earlier) => earlier.event === event);
    made.push({ event, cause, reaction, failure: outcome.failure });
    if (!again) open.push(...listOpenReactions(flow, event, made.length - 1));
  }
  return { made, fired: [...scenario.fired, { reaction, outcome, cause }], open };
}

function listOpenReactions(flow: Flow, event: string, cause: number): PartialScenario["open"] {
  return reactionsTo(flow, event).map((reaction) => ({ reaction, cause }));
}

/** Returns the event at `index` and the chain of events that caused it, nearest first. */
function findCauses(scenario: Scenario, index: number): readonly ScenarioEvent[] {
  const line: ScenarioEvent[] = [];
  let at: number | undefined = index;
  while (at !== undefined) {
    const made: ScenarioEvent | undefined = scenario.made[at];
    if (made === undefined) break;
    line.push(made);
    at = made.cause;
  }
  return line;
}

const levels = {
  "missing-compensation": "error",
  loop: "error",
  unreachable: "error",
  "dead-end": "error",
  "end-goes-on": "error",
  "undo-of-nothing": "error",
  "undone-twice": "error",
  "undo-in-a-race": "warning",
  "made-twice": "warning",
  "not-all-checked": "warning",
} as const;

export type FlowFindingCode = keyof typeof levels;

export interface FlowFinding {
  readonly code: FlowFindingCode;
  /** A warning may be acceptable when the services handle the case. */
  readonly level: "error" | "warning";
  /** The event that the finding is about. */
  readonly event: string;
  /** The events of the scenario in which the problem occurs. */
  readonly where: readonly string[];
  readonly what: string;
  readonly remedy: string;
}

export function finding(one: Omit<FlowFinding, "level">): FlowFinding {
  return Object.freeze({ ...one, level: levels[one.code] });
}
