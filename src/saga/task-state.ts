import type { StepRecord } from "./state.ts";

/**
 * What a task may do with the claim on its instance.
 *
 * - `active`: it starts work that is due.
 * - `stopping`: it starts nothing new, and ends when the running steps have ended.
 * - `releasing`, `stopping_releasing`: the write in flight also releases the claim, so nothing may start meanwhile.
 * - `released`, `lost`: another worker may have the instance. Both are final.
 */
export type ClaimState = "active" | "stopping" | "releasing" | "stopping_releasing" | "released" | "lost";

/** `kept`: a write ended and did not release the claim. */
export type ClaimEvent = "stop" | "release" | "kept" | "released" | "lost";

/** The state of the claim after each event. */
export const claimMoves: Readonly<Record<ClaimState, Readonly<Record<ClaimEvent, ClaimState>>>> = {
  active: {
    stop: "stopping",
    release: "releasing",
    kept: "active",
    released: "released",
    lost: "lost",
  },
  stopping: {
    stop: "stopping",
    release: "stopping_releasing",
    kept: "stopping",
    released: "released",
    lost: "lost",
  },
  releasing: {
    stop: "stopping_releasing",
    release: "releasing",
    kept: "active",
    released: "released",
    lost: "lost",
  },
  stopping_releasing: {
    stop: "stopping_releasing",
    release: "stopping_releasing",
    kept: "stopping",
    released: "released",
    lost: "lost",
  },
  released: {
    stop: "released",
    release: "released",
    kept: "released",
    released: "released",
    lost: "released",
  },
  lost: { stop: "lost", release: "lost", kept: "lost", released: "lost", lost: "lost" },
};

/** What the task does at the moment: nothing, reading pending input and timers, or anything else of a round. */
export type RoundState = "resting" | "planning" | "applying_input";

/** What arrived since the task last looked: nothing, a reason to look again, or input in the database. */
export type Signal = "none" | "wake_up" | "input";

export interface TaskState {
  readonly claim: ClaimState;
  readonly round: RoundState;
  readonly signal: Signal;
  /** Steps and undos that run, or whose outcome is being saved. */
  readonly running: number;
  /** Of these, the ones whose outcome is being saved. */
  readonly saving: number;
}

/**
 * What the task does next. `again`: another round at once. `wait`: until a timer or a signal. `queued`: until it gets a
 * permit. `releasing`: until the write that releases the claim has ended. `over`: the task ends.
 */
export type NextAction = "again" | "wait" | "queued" | "releasing" | "over";

/** Returns the signal after another one. Input outlasts a wake-up, because only reading it answers it. */
export function raiseSignal(known: Signal, raised: Exclude<Signal, "none">): Signal {
  return known === "input" ? known : raised;
}

/** Whether work may start. Only such a task needs a permit. */
export function mayStartWork(claim: ClaimState): boolean {
  return claim === "active";
}

/** Whether the task ends without starting more work. */
export function isStopping(claim: ClaimState): boolean {
  return claim === "stopping" || claim === "stopping_releasing" || claim === "lost";
}

/** What the task does without a round, or undefined if it needs one. */
export function skipRound(claim: ClaimState): NextAction | undefined {
  if (claim === "released") return "over";
  return claim === "releasing" || claim === "stopping_releasing" ? "releasing" : undefined;
}

/** What follows a round in which all due work was started. */
export function actionAfterRound({ claim, signal, running }: TaskState, isTimerDue: boolean): NextAction {
  const hasReason = signal === "input" || isTimerDue;
  return running === 0 && (isStopping(claim) || !hasReason) ? "over" : "wait";
}

/** What the task does without a permit: it ends if its queued permit expired while nothing was running. */
export function actionWithoutPermit(running: number, hasExpired: boolean): NextAction {
  return hasExpired && running === 0 ? "over" : "queued";
}

/** Whether the permit is free for other instances: all running work only waits for its write. */
export function canYieldPermit({ round, running, saving }: TaskState): boolean {
  return round === "resting" && saving > 0 && saving === running;
}

/**
 * Whether the write of a decision also releases the claim, because this task has nothing left to do. `ownRunning` is 1
 * if the decision is the outcome of running work, else 0.
 */
export function canRelease(task: TaskState, ownRunning: 0 | 1, hasDueWork: () => boolean): boolean {
  if (task.running > ownRunning || task.signal === "input" || task.round === "applying_input") return false;
  return isStopping(task.claim) || !hasDueWork();
}

/**
 * What happens with the outcome of a step. After the claim was lost, the outcome is left for the next worker. A step
 * that was cut off because this worker stops counts no attempt: the next worker runs it again.
 */
export function outcomeAction(claim: ClaimState, isDone: boolean): "save" | "report late" | "drop" {
  if (claim === "lost") return "report late";
  return isStopping(claim) && !isDone ? "drop" : "save";
}

/** Why a running step or undo is aborted; undefined if it continues. */
export function abortReason(
  claim: ClaimState,
  record: StepRecord | undefined,
  undo: boolean,
): string | undefined {
  if (isStopping(claim)) return "the worker stops";
  const status = undo ? record?.undo?.status : record?.status;
  if (status === "in_progress" && (undo || record?.abandoned === undefined)) return undefined;
  return record?.abandoned ?? "the saga does not need it any more";
}
