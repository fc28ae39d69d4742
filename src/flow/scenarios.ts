import { reactionsTo, type Flow, type Outcome, type Reaction } from "./flow.ts";

/** An event that happens on a way, and what brought it about. */
export interface ScenarioEvent {
  readonly event: string;
  /** Place of the causing event on the way; undefined for the beginning. */
  readonly cause: number | undefined;
  readonly reaction: Reaction | undefined;
  readonly failure: boolean;
}

/** A reaction that took place, to the event at `cause`. */
export interface ScenarioReaction {
  readonly reaction: Reaction;
  readonly outcome: Outcome;
  readonly cause: number;
}

/** One thing that can happen: an outcome chosen for every reaction that is reached. */
export interface Scenario {
  readonly made: readonly ScenarioEvent[];
  readonly fired: readonly ScenarioReaction[];
}

interface PartialScenario extends Scenario {
  readonly open: readonly { readonly reaction: Reaction; readonly cause: number }[];
}

/** All ways through the flow. An event that happens again starts nothing new, so loops end. */
export function* listScenarios(flow: Flow): Generator<Scenario> {
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
export function findCauses(way: Scenario, place: number): readonly ScenarioEvent[] {
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
