import { finding, type FlowFinding } from "./finding.ts";
import { type Flow, type Outcome, publishedBy, type Reaction, reactionsTo } from "./flow.ts";

/** More ways than this are not followed; what can be said without them still is. */
const MAX_SCENARIOS = 20_000;

/**
 * What a careful colleague would ask about the flow: forgotten compensations, loops, events that lead nowhere or never
 * happen, undoing what was not done. Pure; an empty list means that nothing was found. Best called in a test.
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
        what: `"${name}" never happens: no way from the beginning leads to it.`,
        remedy: "Add the reaction that leads to it, begin with it, or leave it out.",
      }),
    );
}

function checkLoops(flow: Flow): FlowFinding[] {
  return findLoops(flow).map((loop) =>
    finding({
      code: "loop",
      event: loop[0] ?? "",
      where: loop,
      what: `The events go round in a circle: ${loop.join(" → ")}.`,
      remedy:
        "Give it an end: another event for the last try, or leave the repetition to the retries of a handler.",
    }),
  );
}

function checkEnds(flow: Flow): FlowFinding[] {
  const reached = findReachable(flow);
  return flow.events.flatMap(({ name }) => {
    const goesOn = reactionsTo(flow, name).length > 0;
    const end = flow.ends.includes(name);
    if (goesOn && end) {
      return finding({
        code: "end-goes-on",
        event: name,
        where: [name],
        what: `"${name}" is declared as an end, but somebody reacts to it.`,
        remedy: "Take it out of ends(), and name the events that follow from it.",
      });
    }
    if (goesOn || end || !reached.has(name)) return [];
    return finding({
      code: "dead-end",
      event: name,
      where: [name],
      what: `Nobody reacts to "${name}", and it is no declared end.`,
      remedy: "Add the reaction that is missing, or name it in ends().",
    });
  });
}

function checkScenarios(flow: Flow): FlowFinding[] {
  const found = new Map<string, FlowFinding>();
  let count = 0;
  for (const way of listScenarios(flow)) {
    if (++count > MAX_SCENARIOS) return [...found.values(), tooMany(flow)];
    for (const one of checkScenario(flow, way)) {
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
    what: `There are more than ${MAX_SCENARIOS} ways through the flow; the others were not looked at.`,
    remedy: "Split it into flows that follow each other.",
  });
}

/** The events that follow directly from this one. */
function findFollowing(flow: Flow, event: string): readonly string[] {
  return [...new Set(reactionsTo(flow, event).flatMap(publishedBy))];
}

/** Every event that some way from a beginning leads to. */
function findReachable(flow: Flow): ReadonlySet<string> {
  const reached = new Set(flow.begins);
  for (const event of reached) for (const next of findFollowing(flow, event)) reached.add(next);
  return reached;
}

/** Circles of events, one for each event that closes one; first and last are the same. */
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

/** What is wrong on one way through the flow. */
function checkScenario(flow: Flow, way: Scenario): FlowFinding[] {
  return [...checkCompensations(flow, way), ...checkUndos(way), ...checkPublishedTwice(way)];
}

/** Where something fails, everything done must be undone, except what came of the failure itself. */
function checkCompensations(flow: Flow, way: Scenario): FlowFinding[] {
  const failure = way.made.find((made) => made.failure);
  if (failure === undefined) return [];
  const undone = new Set(listUndos(way).map(({ effect }) => effect));
  return way.made.flatMap(({ event, reaction, failure: failed }, place) => {
    const isEffect = reaction !== undefined && !failed && reaction.undoes.length === 0;
    const needsNone = undone.has(event) || Object.hasOwn(flow.noUndo, event);
    if (!isEffect || needsNone || findCauses(way, place).some((made) => made.failure)) return [];
    return finding({
      code: "missing-compensation",
      event,
      where: listEventNames(way),
      what: `When "${failure.event}" happens, nothing undoes "${event}".`,
      remedy: `Let ${reaction.by} react to the failure with { undoes: … }, or say noUndo() with the reason.`,
    });
  });
}

function checkUndos(way: Scenario): FlowFinding[] {
  const where = listEventNames(way);
  const all = listUndos(way);
  return all.flatMap(({ effect, by, on, cause }, index) => {
    const found: FlowFinding[] = [];
    const about = `"${by}" undoes "${effect}" on "${on}"`;
    if (!where.includes(effect)) {
      found.push(
        finding({
          code: "undo-of-nothing",
          event: effect,
          where,
          what: `${about}, but there is a way on which that has not happened.`,
          remedy:
            "React to an event that only comes after it, or fail with another event before and after it.",
        }),
      );
    } else if (!findCauses(way, cause).some(({ event }) => event === effect)) {
      found.push(
        finding({
          code: "undo-in-a-race",
          event: effect,
          where,
          what: `${about}, which may come before that has happened.`,
          remedy: `Let ${by} remember what it was asked to undo, so that the late effect is not made.`,
        }),
      );
    }
    if (all.findIndex((other) => other.effect === effect) !== index) {
      found.push(
        finding({
          code: "undone-twice",
          event: effect,
          where,
          what: `"${effect}" is undone more than once on one way.`,
          remedy: "Leave it to one reaction, or let the second follow only from the failure of the first.",
        }),
      );
    }
    return found;
  });
}

function checkPublishedTwice(way: Scenario): FlowFinding[] {
  return way.made.flatMap(({ event }, place) => {
    const earlier = way.made.findIndex((made) => made.event === event);
    const isLoop = findCauses(way, place).includes(way.made[earlier] as Scenario["made"][number]);
    if (earlier === place || isLoop) return [];
    return finding({
      code: "made-twice",
      event,
      where: listEventNames(way),
      what: `"${event}" is published by two reactions on one way.`,
      remedy: "Give each its own event, or let only one of them publish it.",
    });
  });
}

/** What was taken back, by whom, because of what. A compensation that failed has undone nothing. */
function listUndos(way: Scenario) {
  return way.fired
    .filter(({ outcome }) => !outcome.failure)
    .flatMap(({ reaction, cause }) =>
      reaction.undoes.map((effect) => ({ effect, by: reaction.by, on: reaction.on, cause })),
    );
}

function listEventNames(way: Scenario): readonly string[] {
  return way.made.map(({ event }) => event);
}

/** An event that happens on a way, and what brought it about. */
interface ScenarioEvent {
  readonly event: string;
  /** Place of the causing event on the way; undefined for the beginning. */
  readonly cause: number | undefined;
  readonly reaction: Reaction | undefined;
  readonly failure: boolean;
}

/** A reaction that took place, to the event at `cause`. */
interface ScenarioReaction {
  readonly reaction: Reaction;
  readonly outcome: Outcome;
  readonly cause: number;
}

/** One thing that can happen: an outcome chosen for every reaction that is reached. */
interface Scenario {
  readonly made: readonly ScenarioEvent[];
  readonly fired: readonly ScenarioReaction[];
}

interface PartialScenario extends Scenario {
  readonly open: readonly { readonly reaction: Reaction; readonly cause: number }[];
}

/** All ways through the flow. An event that happens again starts nothing new, so loops end. */
function* listScenarios(flow: Flow): Generator<Scenario> {
  for (const event of flow.begins) {
    const made = [{ event, cause: undefined, reaction: undefined, failure: false }];
    yield* growScenario(flow, { made, fired: [], open: listOpenReactions(flow, event, 0) });
  }
}

function* growScenario(flow: Flow, way: PartialScenario): Generator<Scenario> {
  const [next, ...later] = way.open;
  if (next === undefined) {
    yield { made: way.made, fired: way.fired };
    return;
  }
  for (const outcome of next.reaction.outcomes)
    yield* growScenario(flow, applyOutcome(flow, { ...way, open: later }, next, outcome));
}

function applyOutcome(
  flow: Flow,
  way: PartialScenario,
  { reaction, cause }: PartialScenario["open"][number],
  outcome: Outcome,
): PartialScenario {
  const made = [...way.made];
  const open = [...way.open];
  for (const event of outcome.events) {
    const again = made.some((earlier) => earlier.event === event);
    made.push({ event, cause, reaction, failure: outcome.failure });
    if (!again) open.push(...listOpenReactions(flow, event, made.length - 1));
  }
  return { made, fired: [...way.fired, { reaction, outcome, cause }], open };
}

function listOpenReactions(flow: Flow, event: string, cause: number): PartialScenario["open"] {
  return reactionsTo(flow, event).map((reaction) => ({ reaction, cause }));
}

/** The event at this place and everything that led to it, the nearest first. */
function findCauses(way: Scenario, place: number): readonly ScenarioEvent[] {
  const line: ScenarioEvent[] = [];
  let at: number | undefined = place;
  while (at !== undefined) {
    const made: ScenarioEvent | undefined = way.made[at];
    if (made === undefined) break;
    line.push(made);
    at = made.cause;
  }
  return line;
}
