import type { Flow } from "./flow.ts";
import type { DueReaction } from "./link-events.ts";
import type { FlowStep } from "./path-steps.ts";

interface UndoResult {
  /** Message ids of effects on a failed path that nothing took back. */
  readonly notUndone: readonly string[];
  readonly twice: readonly { readonly messageId: string; readonly type: string; readonly what: string }[];
}

/** Which effects were taken back. One correlation id may hold several paths, so each beginning is looked at by itself. */
export function findUndone(flow: Flow, steps: readonly FlowStep[], due: readonly DueReaction[]): UndoResult {
  const byId = new Map(steps.map((step) => [step.messageId, step]));
  const line = createAncestors(byId);
  const findRoot = (step: FlowStep): string => line(step).at(-1)?.messageId ?? step.messageId;
  const undone = new Set<string>();
  const twice: UndoResult["twice"][number][] = [];
  for (const { trigger, reaction, outcome } of due) {
    if (outcome === undefined || outcome.failure) continue;
    const cause = byId.get(trigger.messageId);
    for (const type of reaction.undoes) {
      const effect = findNearest(type, cause === undefined ? [] : line(cause), steps);
      if (effect === undefined) continue;
      if (undone.has(effect.messageId))
        twice.push({ messageId: effect.messageId, type, what: "Undone twice." });
      undone.add(effect.messageId);
    }
  }
  const failed = new Set(steps.filter(({ role }) => role === "failure").map(findRoot));
  const notUndone = steps
    .filter((step) => step.role === "effect" && !undone.has(step.messageId))
    .filter((step) => failed.has(findRoot(step)) && !Object.hasOwn(flow.noUndo, step.type))
    .filter((step) => line(step).every(({ role }) => role !== "failure"))
    .map(({ messageId }) => messageId);
  return { notUndone, twice };
}

/** The effect that led here; a concurrent one only where there is none. */
function findNearest(
  type: string,
  line: readonly FlowStep[],
  steps: readonly FlowStep[],
): FlowStep | undefined {
  return line.find((step) => step.type === type) ?? steps.find((step) => step.type === type);
}

/** The step and what led to it, the nearest first. */
function createAncestors(byId: ReadonlyMap<string, FlowStep>): (step: FlowStep) => readonly FlowStep[] {
  return (step) => {
    const line: FlowStep[] = [];
    const seen = new Set<string>();
    for (let at: FlowStep | undefined = step; at !== undefined && !seen.has(at.messageId);) {
      line.push(at);
      seen.add(at.messageId);
      at = at.parent === null ? undefined : byId.get(at.parent);
    }
    return line;
  };
}
