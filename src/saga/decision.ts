import type { AnyCommand } from "../message/index.ts";
import type { SagaDefinition } from "./definition.ts";
import type { ReplayValues } from "./replay-values.ts";
import type { SagaState, SagaStatus } from "./state.ts";

/** What has to be done in the transaction that saves the new state. */
export type SagaEffect =
  | {
      readonly kind: "send";
      readonly place: string;
      readonly undo: boolean;
      readonly epoch: number;
      readonly command: AnyCommand;
      readonly data: unknown;
      readonly id: string;
      /** Ids of commands that this one takes back, with their type. */
      readonly undoes?: { readonly type: string; readonly ids: readonly string[] };
      /** Ids of earlier tries that must not be done once this one is. */
      readonly supersedes?: { readonly type: string; readonly ids: readonly string[] };
    }
  | {
      readonly kind: "start child";
      readonly place: string;
      readonly id: string;
      readonly definition: SagaDefinition;
      readonly input: unknown;
    }
  | {
      readonly kind: "revoke child";
      readonly place: string;
      readonly epoch: number;
      readonly attempt: number;
      readonly id: string;
    }
  | {
      readonly kind: "tell parent";
      readonly parentId: string;
      readonly end: "completed" | "compensated" | "past pivot";
    }
  | { readonly kind: "open incident"; readonly places: readonly string[]; readonly error: string }
  | { readonly kind: "close incident"; readonly resolution: string };

/** One line of the history. */
export interface Change {
  readonly event: "state_changed" | "step_executed" | "compensated" | "failed" | "noted";
  readonly place?: string;
  readonly from?: string;
  readonly to?: string;
  readonly note?: string;
}

export interface Decision {
  readonly status: SagaStatus;
  readonly state: SagaState;
  readonly effects: readonly SagaEffect[];
  readonly changes: readonly Change[];
  /** Why the input changed nothing; undefined when it did. */
  readonly ignored?: string;
  /** What it took from the world, where somebody wrote that down. */
  readonly drawn?: ReplayValues | undefined;
}

/** What a decision needs of the world, handed in so that it can be played again. */
export interface DecisionPorts {
  /** The database's clock. */
  readonly nowMs: number;
  readonly newId: () => string;
  readonly random: () => number;
}
