import type { Json } from "../message/index.ts";
import type { Undo, Work } from "./definition.ts";

/** The life of an instance. `failed` is not an end: it is parked with an open incident until a person decides. */
export type SagaStatus =
  | "started"
  | "running"
  /** Past the pivot: forward only. */
  | "completing"
  | "compensating"
  | "compensated"
  | "completed"
  | "failed";

export type StepStatus = "in_progress" | "completed" | "failed" | "compensating" | "compensated" | "skipped";

/** What is known about the effect of a step. Unknown is never taken for not done. */
export type StepOutcome = "done" | "not_done" | "unknown";

/** One way of doing something that may take several tries: a step, or its undo. */
export interface Effort {
  /** Begins anew with every epoch: after a person's retry, or when a late success has to be undone again. */
  epoch: number;
  attempt: number;
  /** Ids of the commands sent, or of the child, oldest first. */
  ids: string[];
  /** When local work is to be done, or tried again. */
  nextAtMs?: number | undefined;
  /** When it is given up waiting. */
  dueAtMs?: number | undefined;
  startedAtMs: number;
  endedAtMs?: number | undefined;
  error?: string | undefined;
}

export interface StepRecord extends Effort {
  status: StepStatus;
  /** Steps that began together share a unit; what is undone goes backwards unit by unit. */
  unit: number;
  outcome?: StepOutcome | undefined;
  /** Its work may still be running, but nobody wants it any more, for this reason. */
  abandoned?: string | undefined;
  result?: Json | undefined;
  undo?: UndoEffort | undefined;
  /**
   * The kind of the step in the definition that began it. A worker with a changed definition compares it with its own
   * step. Records of earlier releases and of choices lack it.
   */
  kind?: Work["kind"] | undefined;
  /** The definition that began it had an undo: a definition without one must not skip it. */
  undoable?: true | undefined;
  /** It was the pivot in the definition that began it. */
  pivot?: true | undefined;
}

export interface UndoEffort extends Effort {
  status: "in_progress" | "done" | "failed" | "settled";
  /** The kind of undo that is under way. Undos of earlier releases lack it. */
  kind?: Undo["kind"] | undefined;
  /** The step was done after all when earlier epochs, and so many commands, had been tried: their success means nothing. */
  countsFrom?: { epoch: number; ids: number } | undefined;
}

export interface EarlyEvent {
  readonly id: string;
  readonly type: string;
  readonly data: Json;
}

/** Everything that is remembered about one instance beside its input; kept as JSON. */
export interface SagaState {
  direction: "forward" | "backward";
  pivoted: boolean;
  units: number;
  records: Record<string, StepRecord>;
  choices: Record<string, string | null>;
  /** spent: all rounds were had, and it was not over. */
  rounds: Record<string, { round: number; over: boolean; spent?: boolean | undefined }>;
  /** Events that came before anybody waited for them. */
  early: EarlyEvent[];
  deadlineAtMs?: number | undefined;
  /** It has been completed before, even if something of it has to be undone late. */
  completed?: boolean | undefined;
  /** Why it turned back, for people. */
  cause?: string | undefined;
  /** Places that do not fit the definition it was last moved with, and why. It is parked while there are any. */
  mismatches?: Record<string, string> | undefined;
}

export function newState(): SagaState {
  return {
    direction: "forward",
    pivoted: false,
    units: 0,
    records: {},
    choices: {},
    rounds: {},
    early: [],
  };
}

/** An instance as `decide` sees it. */
export interface Snapshot {
  readonly id: string;
  /** By which it is found. Where it is not known: what the definition makes of the input. */
  readonly key?: string;
  readonly input: Json;
  readonly status: SagaStatus;
  readonly state: SagaState;
  readonly parent: { readonly id: string; readonly place: string } | null;
}

export const sagaStatuses: readonly SagaStatus[] = [
  "started",
  "running",
  "completing",
  "compensating",
  "compensated",
  "completed",
  "failed",
];

export const endStatuses: readonly SagaStatus[] = ["completed", "compensated"];

export function hasEnded(status: SagaStatus): boolean {
  return endStatuses.includes(status);
}
