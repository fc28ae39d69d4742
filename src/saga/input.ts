import type { Json } from "../message/index.ts";

/** Outcome of a step or an undo, as far as it is known. */
export type WorkOutcome =
  | { readonly kind: "done"; readonly result?: Json | undefined }
  /** Rejected: the work has no effect, and a retry would not help. */
  | { readonly kind: "refused"; readonly error: string }
  /** `certain`: the work had no effect. Otherwise it may have had one. `permanent`: do not retry. */
  | {
      readonly kind: "failed";
      readonly error: string;
      readonly certain?: boolean;
      readonly permanent?: boolean;
    }
  /** Timed out, or the worker died. */
  | { readonly kind: "unknown"; readonly error: string };

/** The person behind an operator action, and their reason. */
export interface Operator {
  readonly actor: string;
  readonly reason: string;
}

/** Everything that can happen to an instance. Stored in its history, so that it can be replayed. */
export type SagaInput =
  | { readonly kind: "start" }
  /** Time has passed. `claims`: how many workers claimed the instance without settling it. */
  | { readonly kind: "tick"; readonly claims?: number }
  | { readonly kind: "reply"; readonly requestId: string; readonly outcome: WorkOutcome }
  /** A local step or undo has ended. `stepPath` is its step path. */
  | {
      readonly kind: "worked";
      readonly stepPath: string;
      readonly undo: boolean;
      readonly epoch: number;
      readonly attempt: number;
      readonly outcome: WorkOutcome;
    }
  /** `by` is set if an operator sent the event instead of a message. */
  | {
      readonly kind: "event";
      readonly id: string;
      readonly type: string;
      readonly data: Json;
      readonly by?: Operator;
    }
  | {
      readonly kind: "child";
      readonly childId: string;
      readonly end: "completed" | "compensated" | "past pivot";
      readonly results?: Json;
    }
  /** The parent undoes the step that started this child. */
  | { readonly kind: "revoke" }
  | { readonly kind: "compensate"; readonly by: Operator }
  | { readonly kind: "cancel"; readonly by: Operator }
  | { readonly kind: "retry"; readonly stepPath?: string; readonly by: Operator }
  | { readonly kind: "skip"; readonly stepPath: string; readonly by: Operator }
  | { readonly kind: "settle"; readonly stepPath: string; readonly result?: Json; readonly by: Operator };
