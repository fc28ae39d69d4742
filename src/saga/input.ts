import type { Json } from "../message/index.ts";

/** How a piece of work ended, as far as is known. */
export type WorkOutcome =
  | { readonly kind: "done"; readonly result?: Json | undefined }
  /** Said no: it was not done, and asking again is no use. */
  | { readonly kind: "refused"; readonly error: string }
  /** `certain`: nothing happened. Otherwise it may have. */
  | {
      readonly kind: "failed";
      readonly error: string;
      readonly certain?: boolean;
      readonly permanent?: boolean;
    }
  /** Nobody knows: out of time, or the process died. */
  | { readonly kind: "unknown"; readonly error: string };

/** Who did something by hand, and why. */
export interface Operator {
  readonly actor: string;
  readonly reason: string;
}

/** Everything that can happen to an instance. Kept with its history, so that it can be played again. */
export type SagaInput =
  | { readonly kind: "start" }
  /** Time has passed. `claims`: how often somebody began its local work and never came back. */
  | { readonly kind: "tick"; readonly claims?: number }
  | { readonly kind: "reply"; readonly requestId: string; readonly outcome: WorkOutcome }
  /** Local work of this place and epoch has ended. */
  | {
      readonly kind: "worked";
      readonly place: string;
      readonly undo: boolean;
      readonly epoch: number;
      readonly attempt: number;
      readonly outcome: WorkOutcome;
    }
  /** `by`: where a person, not a message, brought it. */
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
  /** The parent takes it back. */
  | { readonly kind: "revoke" }
  | { readonly kind: "compensate"; readonly by: Operator }
  | { readonly kind: "cancel"; readonly by: Operator }
  | { readonly kind: "retry"; readonly place?: string; readonly by: Operator }
  | { readonly kind: "skip"; readonly place: string; readonly by: Operator }
  | { readonly kind: "settle"; readonly place: string; readonly result?: Json; readonly by: Operator };
