import type { SagaStatus } from "./state.ts";

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
  move("started", "completed", "no step had to be waited for"),
  move("started", "compensating", "its first step failed at once"),
  move("started", "compensated", "its first step failed at once, and nothing was to be undone"),
  move("started", "failed", "its first step failed for good where it cannot turn back"),
  move("running", "completing", "the pivot was done"),
  move("running", "completed", "the last step was done"),
  move(
    "running",
    "compensating",
    "a step failed for good, its deadline passed, or a person or its parent said so",
  ),
  move("running", "compensated", "the same, and nothing was to be undone"),
  move(
    "running",
    "failed",
    "nobody knows whether the pivot was done, an undo within a group failed for good, or a record does not fit the definition",
  ),
  move("completing", "completed", "the last step was done"),
  move("completing", "failed", "a step past the pivot failed for good"),
  move("compensating", "compensated", "everything is undone"),
  move("compensating", "failed", "an undo failed for good"),
  move("failed", "running", "a person decided, or the awaited success came after all"),
  move("failed", "completing", "the same, past the pivot"),
  move("failed", "completed", "the same, and it was the last step"),
  move("failed", "compensating", "a person had an undo tried again"),
  move("failed", "compensated", "a person settled or skipped the last undo"),
  move("completed", "compensating", "a person or its parent took it back; only without a pivot"),
  move("completed", "compensated", "the same, and nothing was to be undone"),
  move("completed", "failed", "the same, and an undo failed at once"),
  move("completed", "running", "a late success of one that lost within a group is undone first"),
  move("completed", "completing", "the same, past the pivot"),
  move("compensated", "compensating", "a late success has to be undone once more"),
  move("compensated", "failed", "the same, and its undo failed at once"),
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
