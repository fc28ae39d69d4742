import type { DecisionPorts } from "./decision.ts";
import type { SagaInput } from "./input.ts";

/** What a decision took from the world. Kept with its history, so that it can be played again as it was. */
export interface ReplayValues {
  readonly nowMs: number;
  readonly ids: readonly string[];
  readonly random: readonly number[];
  /** What followed in the same transaction: commands that could not be written. */
  readonly followUps?: readonly SagaInput[];
}

/** Ports that remember what was drawn from them. */
export function recordPorts(ports: DecisionPorts): {
  readonly ports: DecisionPorts;
  readonly drawn: ReplayValues;
} {
  const ids: string[] = [];
  const random: number[] = [];
  const keep = <T>(list: T[], value: T): T => {
    list.push(value);
    return value;
  };
  return {
    ports: {
      nowMs: ports.nowMs,
      newId: () => keep(ids, ports.newId()),
      random: () => keep(random, ports.random()),
    },
    drawn: { nowMs: ports.nowMs, ids, random },
  };
}

/** Two decisions that are saved as one. */
export function mergeReplayValues(
  first: ReplayValues | undefined,
  input: SagaInput,
  second: ReplayValues | undefined,
): ReplayValues | undefined {
  if (first === undefined || second === undefined) return first;
  return {
    nowMs: first.nowMs,
    ids: [...first.ids, ...second.ids],
    random: [...first.random, ...second.random],
    followUps: [...(first.followUps ?? []), input],
  };
}

/** Ports that give what was drawn before, in its order. What is asked beyond that is made up, and counted. */
export function replayPorts({ nowMs, ids, random }: ReplayValues): {
  readonly ports: DecisionPorts;
  /** How many more ids were asked for than were drawn then; negative when fewer. */
  readonly idsTooMany: () => number;
} {
  let nextId = 0;
  let nextRandom = 0;
  return {
    ports: {
      nowMs,
      newId: () => ids[nextId++] ?? `new-${nextId}`,
      random: () => random[nextRandom++] ?? 0,
    },
    idsTooMany: () => nextId - ids.length,
  };
}
