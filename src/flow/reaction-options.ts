import type { AnyEvent } from "../message/index.ts";

type OneOrMore = AnyEvent | readonly [AnyEvent, ...AnyEvent[]];

export interface ReactionOptions {
  /** Name of the service that reacts, as in the options of its bus. */
  readonly by: string;
  /** Events it publishes on success. With several events, it publishes all of them. */
  readonly leadsTo: OneOrMore;
  /** Alternative success events. It publishes one of them instead of `leadsTo`. */
  readonly or?: OneOrMore;
  /** Failure events. It publishes one of them instead of `leadsTo`; earlier effects then need to be undone. */
  readonly orFailsWith?: OneOrMore;
  /** Earlier events whose effects it undoes. */
  readonly undoes?: OneOrMore;
}

export const reactionKeys = ["by", "leadsTo", "or", "orFailsWith", "undoes"];
