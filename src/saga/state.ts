import type { Json } from "../message/index.ts";
import type { Undo, Work } from "./definition.ts";

/** Status of an instance. `failed` is not final: the instance is parked with an open incident until an operator decides. */
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

/** What is known about the effect of a step. `unknown` is never treated as `not_done`. */
export type StepOutcome = "done" | "not_done" | "unknown";

/** The attempts at a step or at its undo. */
export interface Effort {
  /** Raised by an operator's retry, and when a late success has to be undone again. */
  epoch: number;
  /** Starts at 1 in each epoch. */
  attempt: number;
  /** Ids of the commands sent, or of the child, oldest first. */
  ids: string[];
  /** When local work is due, or when the next attempt is. */
  nextAtMs?: number | undefined;
  /** When the attempt times out. */
  dueAtMs?: number | undefined;
  startedAtMs: number;
  endedAtMs?: number | undefined;
  error?: string | undefined;
}

export interface StepRecord extends Effort {
  status: StepStatus;
  /** Steps that began together share a unit. Units are undone in reverse order. */
  unit: number;
  outcome?: StepOutcome | undefined;
  /** Why the step was abandoned. Its work may still be running. */
  abandoned?: string | undefined;
  result?: Json | undefined;
  undo?: UndoEffort | undefined;
  /**
   * The kind of the step in the definition that began it. A worker with a changed definition compares it with its own
   * step. Records of branches and of earlier releases lack it.
   */
  kind?: Work["kind"] | undefined;
  /** The definition that began the step had an undo, so a definition without one must not skip it. */
  undoable?: true | undefined;
  /** The step was the pivot in the definition that began it. */
  pivot?: true | undefined;
}

export interface UndoEffort extends Effort {
  status: "in_progress" | "done" | "failed" | "settled";
  /** The kind of the undo in flight. Undos of earlier releases lack it. */
  kind?: Undo["kind"] | undefined;
  /** Set by a late success of the step: successes of earlier epochs and of the first `ids` commands do not count. */
  countsFrom?: { epoch: number; ids: number } | undefined;
}

export interface EarlyEvent {
  readonly id: string;
  readonly type: string;
  readonly data: Json;
}

/** The state of an instance apart from its input, stored as JSON. Keys of records, choices and rounds are step paths. */
export interface SagaState {
  direction: "forward" | "backward";
  pivoted: boolean;
  units: number;
  records: Record<string, StepRecord>;
  choices: Record<string, string | null>;
  /** `spent`: the repetition used up its rounds without ending. */
  rounds: Record<string, { round: number; over: boolean; spent?: boolean | undefined }>;
  /** Events that arrived before a step waited for them. */
  early: EarlyEvent[];
  deadlineAtMs?: number | undefined;
  /** The instance has completed once, even if a late success is being undone now. */
  completed?: boolean | undefined;
  /** Why the instance is compensated, as text for operators. */
  cause?: string | undefined;
  /** Step paths that do not fit the current definition, and why. The instance is parked while there are any. */
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
  /** The instance key. If missing, the definition's key function computes it from the input. */
  readonly key?: string;
  readonly input: Json;
  readonly status: SagaStatus;
  readonly state: SagaState;
  readonly parent: { readonly id: string; readonly stepPath: string } | null;
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

/** Whether another member of an `any` group has won, so that this step is not needed. */
export function hasLostRace({ choices }: SagaState, stepPath: string): boolean {
  const [path = "", round] = stepPath.split("@");
  const [group = "", member] = path.split(".");
  if (member === undefined) return false;
  const winner = choices[round === undefined ? group : `${group}@${round}`];
  return winner !== undefined && winner !== null && winner !== stepPath;
}

export interface StatusMove {
  readonly from: SagaStatus;
  readonly to: SagaStatus;
  readonly when: string;
}

const move = (from: SagaStatus, to: SagaStatus, when: string): StatusMove => ({ from, to, when });

/**
 * Every status transition. A saga is `started` only within its first transaction. `failed` is not final: the saga is
 * parked with an open incident until an operator decides. `completed` and `compensated` can be left again: an operator or
 * the parent may compensate a completed saga without a pivot, and a late success of an abandoned step is undone.
 */
export const statusMoves: readonly StatusMove[] = [
  move("started", "running", "its first step waits for something"),
  move("started", "completing", "its first step was the pivot"),
  move("started", "completed", "no step had to wait"),
  move("started", "compensating", "its first step failed at once"),
  move("started", "compensated", "its first step failed at once, and nothing had to be undone"),
  move("started", "failed", "its first step failed permanently past the pivot"),
  move("running", "completing", "the pivot was done"),
  move("running", "completed", "the last step was done"),
  move(
    "running",
    "compensating",
    "a step failed permanently, its deadline passed, or an operator or its parent cancelled it",
  ),
  move("running", "compensated", "as for compensating, and nothing had to be undone"),
  move(
    "running",
    "failed",
    "it is unknown whether the pivot was done, an undo within a group failed permanently, or a record does not fit the definition",
  ),
  move("completing", "completed", "the last step was done"),
  move("completing", "failed", "a step past the pivot failed permanently"),
  move("compensating", "compensated", "all steps are undone"),
  move("compensating", "failed", "an undo failed permanently"),
  move("failed", "running", "an operator decided, or the expected success arrived late"),
  move("failed", "completing", "as for running, past the pivot"),
  move("failed", "completed", "as for running, and it was the last step"),
  move("failed", "compensating", "an operator retried an undo"),
  move("failed", "compensated", "an operator settled or skipped the last undo"),
  move("completed", "compensating", "an operator or its parent compensates it; only without a pivot"),
  move("completed", "compensated", "as for compensating, and nothing had to be undone"),
  move("completed", "failed", "as for compensating, and an undo failed at once"),
  move("completed", "running", "a late success of a losing member of a group is undone first"),
  move("completed", "completing", "as for running, past the pivot"),
  move("compensated", "compensating", "a late success must be undone as well"),
  move("compensated", "failed", "as for compensating, and the undo failed at once"),
];

/** The statuses and their moves as a Mermaid state diagram. */
export function statusDiagram(): string {
  return [
    "stateDiagram-v2",
    "  [*] --> started",
    ...statusMoves.map(({ from, to }) => `  ${from} --> ${to}`),
    "  completed --> [*]",
    "  compensated --> [*]",
  ].join("\n");
}
