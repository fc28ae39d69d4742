import type { AnyEvent } from "../message/index.ts";

/** A flow as data: which event leads to which, and who makes it so. Events are named by their contracts. */
export interface Flow {
  readonly name: string;
  /** Every contract that occurs, each once. */
  readonly events: readonly AnyEvent[];
  /** A path begins with one of these. */
  readonly begins: readonly string[];
  readonly reactions: readonly Reaction[];
  /** Events after which nothing has to follow. */
  readonly ends: readonly string[];
  /** Effects that stay although the flow failed, each with the reason. */
  readonly noUndo: Readonly<Record<string, string>>;
}

/** What one service does about one event. It comes to exactly one of its outcomes. */
export interface Reaction {
  readonly on: string;
  /** The service that reacts. */
  readonly by: string;
  readonly outcomes: readonly Outcome[];
  /** The effects it takes back when it succeeds. */
  readonly undoes: readonly string[];
}

/** Events that are published together. */
export interface Outcome {
  readonly events: readonly string[];
  readonly failure: boolean;
}

/** What an event means in its flow; "unknown" when the flow does not say how it comes about. */
export type EventRole = "begin" | "effect" | "failure" | "undo" | "unknown";

export function reactionsTo(flow: Flow, event: string): readonly Reaction[] {
  return flow.reactions.filter((reaction) => reaction.on === event);
}

/** All events a reaction may publish. */
export function publishedBy(reaction: Reaction): readonly string[] {
  return reaction.outcomes.flatMap((outcome) => outcome.events);
}

export function roleIn({ undoes }: Reaction, outcome: Outcome): EventRole {
  if (outcome.failure) return "failure";
  return undoes.length > 0 ? "undo" : "effect";
}

/** The role by the declaration alone, for an event of which nobody knows what caused it. */
export function findDeclaredRole(flow: Flow, event: string): EventRole {
  if (flow.begins.includes(event)) return "begin";
  const roles = flow.reactions.flatMap((reaction) =>
    reaction.outcomes
      .filter((outcome) => outcome.events.includes(event))
      .map((outcome) => roleIn(reaction, outcome)),
  );
  return roles.find((role) => role === "failure") ?? roles[0] ?? "unknown";
}
