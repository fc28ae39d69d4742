import type { AnyEvent } from "../message/index.ts";

/** A declared choreography: which service reacts to which event. Events are referenced by contract name. */
export interface Flow {
  readonly name: string;
  /** The contracts of all events, without duplicates. */
  readonly events: readonly AnyEvent[];
  /** Names of the events that start a path. */
  readonly begins: readonly string[];
  readonly reactions: readonly Reaction[];
  /** Names of the final events: no reaction has to follow them. */
  readonly ends: readonly string[];
  /** Events that need no compensation when the flow fails, each with the reason. */
  readonly noUndo: Readonly<Record<string, string>>;
}

/** How one service reacts to one event: with exactly one of the outcomes. */
export interface Reaction {
  readonly on: string;
  /** The service that reacts. */
  readonly by: string;
  readonly outcomes: readonly Outcome[];
  /** The events whose effects it undoes when it succeeds. */
  readonly undoes: readonly string[];
}

/** A set of events that a reaction publishes together. */
export interface Outcome {
  readonly events: readonly string[];
  readonly failure: boolean;
}

/** The meaning of an event in its flow; "unknown" when no reaction of the flow publishes it. */
export type EventRole = "begin" | "effect" | "failure" | "undo" | "unknown";

export function reactionsTo(flow: Flow, event: string): readonly Reaction[] {
  return flow.reactions.filter((reaction) => reaction.on === event);
}

/** Returns all events that a reaction may publish. */
export function publishedBy(reaction: Reaction): readonly string[] {
  return reaction.outcomes.flatMap((outcome) => outcome.events);
}

export function roleIn({ undoes }: Reaction, outcome: Outcome): EventRole {
  if (outcome.failure) return "failure";
  return undoes.length > 0 ? "undo" : "effect";
}

/** Returns the role of an event from the declaration alone, for an event without a known cause. */
export function findDeclaredRole(flow: Flow, event: string): EventRole {
  if (flow.begins.includes(event)) return "begin";
  const roles = flow.reactions.flatMap((reaction) =>
    reaction.outcomes
      .filter((outcome) => outcome.events.includes(event))
      .map((outcome) => roleIn(reaction, outcome)),
  );
  return roles.find((role) => role === "failure") ?? roles[0] ?? "unknown";
}

/** An event as the watching consumer recorded it. Times are ISO 8601 in UTC. */
export interface RecordedEvent {
  readonly flow: string;
  readonly messageId: string;
  readonly correlationId: string;
  readonly type: string;
  /** Id of the message whose handler published it; null when it was published outside a handler. */
  readonly causationId: string | null;
  /** The service that published it. */
  readonly source: string;
  readonly key: string | null;
  /** Time of publication, from the clock of the publisher's database. */
  readonly happenedAt: string;
  /** Time of recording, from the clock of the watching database. */
  readonly recordedAt: string;
}

/** Groups items by key. Groups are in the order of their first item. */
export function groupBy<T>(
  list: readonly T[],
  keyOf: (item: T) => string,
): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>();
  for (const item of list) {
    const group = groups.get(keyOf(item));
    if (group === undefined) groups.set(keyOf(item), [item]);
    else group.push(item);
  }
  return groups;
}
