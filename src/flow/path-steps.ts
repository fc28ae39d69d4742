import type { EventRole } from "./flow.ts";
import type { DueReaction } from "./link-events.ts";
import type { RecordedEvent } from "./recorded-event.ts";

/** One event of a path in its place. */
export interface FlowStep extends RecordedEvent {
  readonly role: EventRole;
  /** Message id of the event of this path that led to it. */
  readonly parent: string | null;
  /** How long after its parent it was published; null without one. */
  readonly sinceParentMs: number | null;
  /** How long after the first event of the path. */
  readonly sinceBeginMs: number;
}

/** The events as steps, a cause before its effects even where the clocks of two databases disagree. */
export function orderSteps(
  events: readonly RecordedEvent[],
  roles: ReadonlyMap<string, EventRole>,
  origin: ReadonlyMap<string, DueReaction>,
): readonly FlowStep[] {
  const places = computePositions(events, origin);
  const ordered = events.toSorted((a, b) =>
    comparePositions(places.get(a.messageId), places.get(b.messageId)),
  );
  const begin = toMs(ordered[0]);
  return ordered.map((event) => {
    const trigger = origin.get(event.messageId)?.trigger;
    return {
      ...event,
      role: roles.get(event.messageId) ?? "unknown",
      parent: trigger?.messageId ?? null,
      sinceParentMs: trigger === undefined ? null : Math.max(0, toMs(event) - toMs(trigger)),
      sinceBeginMs: Math.max(0, toMs(event) - begin),
    };
  });
}

interface StepPosition {
  readonly at: string;
  readonly depth: number;
}

/** When an event counts as having happened: never before what caused it. */
function computePositions(
  events: readonly RecordedEvent[],
  origin: ReadonlyMap<string, DueReaction>,
): ReadonlyMap<string, StepPosition> {
  const places = new Map<string, StepPosition>();
  const computePosition = (event: RecordedEvent): StepPosition => {
    const known = places.get(event.messageId);
    if (known !== undefined) return known;
    const own = { at: event.happenedAt, depth: 0 };
    places.set(event.messageId, own); // so that events which claim to cause each other end here
    const trigger = origin.get(event.messageId)?.trigger;
    const parent = trigger === undefined ? undefined : computePosition(trigger);
    const place =
      parent === undefined ? own : { at: parent.at > own.at ? parent.at : own.at, depth: parent.depth + 1 };
    places.set(event.messageId, place);
    return place;
  };
  for (const event of events) computePosition(event);
  return places;
}

function comparePositions(a: StepPosition | undefined, b: StepPosition | undefined): number {
  if (a === undefined || b === undefined || a.at === b.at) return (a?.depth ?? 0) - (b?.depth ?? 0);
  return a.at < b.at ? -1 : 1;
}

function toMs(event: RecordedEvent | undefined): number {
  return event === undefined ? 0 : Date.parse(event.happenedAt);
}
