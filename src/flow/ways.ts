import { reactionsTo, type Flow, type Outcome, type Reaction } from "./flow.ts";

/** An event that happens on a way, and what brought it about. */
export interface Made {
  readonly event: string;
  /** Place of the causing event on the way; undefined for the beginning. */
  readonly cause: number | undefined;
  readonly reaction: Reaction | undefined;
  readonly failure: boolean;
}

/** A reaction that took place, to the event at `cause`. */
export interface Fired {
  readonly reaction: Reaction;
  readonly outcome: Outcome;
  readonly cause: number;
}

/** One thing that can happen: an outcome chosen for every reaction that is reached. */
export interface Way {
  readonly made: readonly Made[];
  readonly fired: readonly Fired[];
}

interface Growing extends Way {
  readonly open: readonly { readonly reaction: Reaction; readonly cause: number }[];
}

/** All ways through the flow. An event that happens again starts nothing new, so loops end. */
export function* waysThrough(flow: Flow): Generator<Way> {
  for (const event of flow.begins) {
    const made = [{ event, cause: undefined, reaction: undefined, failure: false }];
    yield* grow(flow, { made, fired: [], open: openAt(flow, event, 0) });
  }
}

function* grow(flow: Flow, way: Growing): Generator<Way> {
  const [next, ...later] = way.open;
  if (next === undefined) {
    yield { made: way.made, fired: way.fired };
    return;
  }
  for (const outcome of next.reaction.outcomes)
    yield* grow(flow, take(flow, { ...way, open: later }, next, outcome));
}

function take(
  flow: Flow,
  way: Growing,
  { reaction, cause }: Growing["open"][number],
  outcome: Outcome,
): Growing {
  const made = [...way.made];
  const open = [...way.open];
  for (const event of outcome.events) {
    const again = made.some((earlier) => earlier.event === event);
    made.push({ event, cause, reaction, failure: outcome.failure });
    if (!again) open.push(...openAt(flow, event, made.length - 1));
  }
  return { made, fired: [...way.fired, { reaction, outcome, cause }], open };
}

function openAt(flow: Flow, event: string, cause: number): Growing["open"] {
  return reactionsTo(flow, event).map((reaction) => ({ reaction, cause }));
}

/** The event at this place and everything that led to it, the nearest first. */
export function leadingTo(way: Way, place: number): readonly Made[] {
  const line: Made[] = [];
  let at: number | undefined = place;
  while (at !== undefined) {
    const made: Made | undefined = way.made[at];
    if (made === undefined) break;
    line.push(made);
    at = made.cause;
  }
  return line;
}
