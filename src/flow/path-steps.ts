import type { EventRole } from "./flow.ts";
import type { Due } from "./link-events.ts";
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
export function inOrder(
  events: readonly RecordedEvent[],
  roles: ReadonlyMap<string, EventRole>,
  origin: ReadonlyMap<string, Due>,
): readonly FlowStep[] {
  const places = placesOf(events, origin);
  const ordered = events.toSorted((a, b) => compare(places.get(a.messageId), places.get(b.messageId)));
  const begin = timeOf(ordered[0]);
  return ordered.map((event) => {
    const trigger = origin.get(event.messageId)?.trigger;
    return {
      ...event,
      role: roles.get(event.messageId) ?? "unknown",
      parent: trigger?.messageId ?? null,
      sinceParentMs: trigger === undefined ? null : Math.max(0, timeOf(event) - timeOf(trigger)),
      sinceBeginMs: Math.max(0, timeOf(event) - begin),
    };
  });
}

interface Place {
  readonly at: string;
  readonly depth: number;
}

/** When an event counts as having happened: never before what caused it. */
function placesOf(
  events: readonly RecordedEvent[],
  origin: ReadonlyMap<string, Due>,
): ReadonlyMap<string, Place> {
  const places = new Map<string, Place>();
  const placeOf = (event: RecordedEvent): Place => {
    const known = places.get(event.messageId);
    if (known !== undefined) return known;
    const own = { at: event.happenedAt, depth: 0 };
    places.set(event.messageId, own); // so that events which claim to cause each other end here
    const trigger = origin.get(event.messageId)?.trigger;
    const parent = trigger === undefined ? undefined : placeOf(trigger);
    const place =
      parent === undefined ? own : { at: parent.at > own.at ? parent.at : own.at, depth: parent.depth + 1 };
    places.set(event.messageId, place);
    return place;
  };
  for (const event of events) placeOf(event);
  return places;
}

function compare(a: Place | undefined, b: Place | undefined): number {
  if (a === undefined || b === undefined || a.at === b.at) return (a?.depth ?? 0) - (b?.depth ?? 0);
  return a.at < b.at ? -1 : 1;
}

function timeOf(event: RecordedEvent | undefined): number {
  return event === undefined ? 0 : Date.parse(event.happenedAt);
}
