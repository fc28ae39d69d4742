import type { AnyEvent } from "../message/index.ts";
import type { Flow } from "./flow.ts";
import type { ReactionOptions } from "./reaction-options.ts";
import { readFlow, type DeclaredFlow } from "./read-flow.ts";

export interface FlowStart {
  /** The event a path starts with; with several, any one of them. */
  begins(...events: readonly [AnyEvent, ...AnyEvent[]]): FlowBody;
}

export interface FlowBody {
  /** What a service does about an event. Several services may react to one event, each on its own. */
  on(event: AnyEvent, reaction: ReactionOptions): FlowBody;
  /** The effect of this event stays even when the flow fails: the reason says why that is right. */
  noUndo(event: AnyEvent, reason: string): FlowBody;
  /** The events after which nothing has to follow. Closes the declaration; FLOW_INVALID tells what is wrong with it. */
  ends(...events: readonly [AnyEvent, ...AnyEvent[]]): Flow;
}

/**
 * Declares which event leads to which over services that know nothing of each other but their events. The result is
 * data: `checkFlow` finds what was forgotten, `flowDiagram` draws it, `bus.flows.watch` records the paths.
 */
export function flow(name: string): FlowStart {
  return { begins: (...begins) => createBody({ name, begins, reactions: [], noUndo: [] }) };
}

function createBody(declared: Omit<DeclaredFlow, "ends">): FlowBody {
  return {
    on: (event, reaction) =>
      createBody({ ...declared, reactions: [...declared.reactions, { event, options: reaction }] }),
    noUndo: (event, reason) => createBody({ ...declared, noUndo: [...declared.noUndo, { event, reason }] }),
    ends: (...ends) => readFlow({ ...declared, ends }),
  };
}
