import type { AnyCommand } from "../message/index.ts";
import type { SagaDefinition } from "./definition.ts";
import type { ReplayValues } from "./replay-values.ts";
import type { SagaState, SagaStatus } from "./state.ts";

/** A side effect that is written in the transaction that saves the new state. */
export type SagaEffect =
  | {
      readonly kind: "send";
      readonly stepPath: string;
      readonly undo: boolean;
      readonly epoch: number;
      readonly command: AnyCommand;
      readonly data: unknown;
      readonly id: string;
      /** Type and ids of the commands that this one undoes. */
      readonly undoes?: { readonly type: string; readonly ids: readonly string[] };
      /** Type and ids of earlier attempts, which must not run after this one. */
      readonly supersedes?: { readonly type: string; readonly ids: readonly string[] };
    }
  | {
      readonly kind: "start child";
      readonly stepPath: string;
      readonly id: string;
      readonly definition: SagaDefinition;
      readonly input: unknown;
    }
  | {
      readonly kind: "revoke child";
      readonly stepPath: string;
      readonly epoch: number;
      readonly attempt: number;
      readonly id: string;
    }
  | {
      readonly kind: "tell parent";
      readonly parentId: string;
      readonly end: "completed" | "compensated" | "past pivot";
    }
  | { readonly kind: "open incident"; readonly stepPaths: readonly string[]; readonly error: string }
  | { readonly kind: "close incident"; readonly resolution: string }
  /** The failed steps or undos that sent these commands are resolved, so their dead letters need no decision any more. */
  | { readonly kind: "discard dead letters"; readonly commands: readonly string[] };

/** One line of the history of an instance. */
export interface Change {
  readonly event: "state_changed" | "step_executed" | "compensated" | "failed" | "noted";
  readonly stepPath?: string;
  readonly from?: string;
  readonly to?: string;
  readonly note?: string;
}

export interface Decision {
  readonly status: SagaStatus;
  readonly state: SagaState;
  readonly effects: readonly SagaEffect[];
  readonly changes: readonly Change[];
  /** Why the input changed nothing; undefined if it changed something. */
  readonly ignored?: string;
  /** Clock, ids and random numbers that the decision used, if they were recorded. */
  readonly drawn?: ReplayValues | undefined;
}

/** Clock, ids and randomness, injected so that a decision can be replayed. */
export interface DecisionPorts {
  /** Time of the database clock, in milliseconds. */
  readonly nowMs: number;
  readonly newId: () => string;
  readonly random: () => number;
}
