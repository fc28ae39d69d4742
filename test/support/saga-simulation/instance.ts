import type { Json } from "../../../src/message/index.ts";
import { newState, type SagaDefinition, type SagaState, type SagaStatus } from "../../../src/saga/index.ts";

/** One saga of the world. */
export interface Instance {
  readonly id: string;
  readonly definition: SagaDefinition;
  readonly input: Json;
  readonly parent: { readonly id: string; readonly place: string } | null;
  status: SagaStatus;
  /** Where it has been. */
  readonly rested: Set<SagaStatus>;
  /** As it was stored. */
  state: SagaState;
  /** As it was decided, before it was stored. */
  memory: SagaState;
  version: number;
  /** Places of incidents that nobody has closed. */
  incidents: (readonly string[])[];
  /** What a person decided, by place. */
  readonly byHand: Set<string>;
  /** Counts winners: of what, and of which epoch. */
  readonly winners: Map<string, number>;
}

export function newInstance(given: Pick<Instance, "id" | "definition" | "input" | "parent">): Instance {
  return {
    ...given,
    status: "started",
    rested: new Set(),
    state: newState(),
    memory: newState(),
    version: 0,
    incidents: [],
    byHand: new Set(),
    winners: new Map(),
  };
}
