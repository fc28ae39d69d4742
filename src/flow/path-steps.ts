import type { EventRole } from "./flow.ts";
import type { DueReaction } from "./link-events.ts";
import type { RecordedEvent } from "./recorded-event.ts";

/** An event of a path, with its role and cause. */
export interface FlowStep extends RecordedEvent {
  readonly role: EventRole;
  /** Message id of the event that caused it; null if there is no such event in this path. */
  readonly parent: string | null;
  /** Milliseconds between its parent and it; null without a parent. */
  readonly sinceParentMs: number | null;
  /** Milliseconds since the first event of the path. */
  readonly sinceBeginMs: number;
}

/** Orders events by time, but a cause always before its effects, because database clocks may differ. */
export function orderSteps(
  events: readonly RecordedEvent[],
  roles: ReadonlyMap<string, EventRole>,
  origin: ReadonlyMap<string, DueReaction>,
): readonly FlowStep[] {
  const positions = computePositions(events, origin);
  const ordered = events.toSorted((a, b) =>
    comparePositions(positions.get(a.messageId), positions.get(b.messageId)),
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

/** Computes the sort position of each event: never earlier than the position of its cause. */
function computePositions(
  events: readonly RecordedEvent[],
  origin: ReadonlyMap<string, DueReaction>,
): ReadonlyMap<string, StepPosition> {
  const positions = new Map<string, StepPosition>();
  const computePosition = (event: RecordedEvent): StepPosition => {
    const known = positions.get(event.messageId);
    if (known !== undefined) return known;
    const own = { at: event.happenedAt, depth: 0 };
    positions.set(event.messageId, own); // ends the recursion for a causation cycle
    const trigger = origin.get(event.messageId)?.trigger;
    const parent = trigger === undefined ? undefined : computePosition(trigger);
    const position =
      parent === undefined ? own : { at: parent.at > own.at ? parent.at : own.at, depth: parent.depth + 1 };
    positions.set(event.messageId, position);
    return position;
  };
  for (const event of events) computePosition(event);
  return positions;
}

function comparePositions(a: StepPosition | undefined, b: StepPosition | undefined): number {
  if (a === undefined || b === undefined || a.at === b.at) return (a?.depth ?? 0) - (b?.depth ?? 0);
  return a.at < b.at ? -1 : 1;
}

function toMs(event: RecordedEvent | undefined): number {
  return event === undefined ? 0 : Date.parse(event.happenedAt);
}
