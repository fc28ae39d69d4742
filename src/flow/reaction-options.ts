import type { AnyEvent } from "../message/index.ts";

type OneOrMore = AnyEvent | readonly [AnyEvent, ...AnyEvent[]];

export interface ReactionOptions {
  /** The service that reacts, by the name its bus has. */
  readonly by: string;
  /** What it publishes when all goes well; several events are all published. */
  readonly leadsTo: OneOrMore;
  /** Other ways to go on well; one of them is published instead. */
  readonly or?: OneOrMore;
  /** Ways to fail; one of them is published instead. What was done before has to be undone then. */
  readonly orFailsWith?: OneOrMore;
  /** The earlier events whose effect it takes back. */
  readonly undoes?: OneOrMore;
}

export const reactionKeys = ["by", "leadsTo", "or", "orFailsWith", "undoes"];
