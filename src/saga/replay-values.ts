import type { DecisionPorts } from "./decision.ts";
import type { SagaInput } from "./input.ts";

/** Clock, ids and random numbers that a decision used. Stored in the history, so that it can be replayed exactly. */
export interface ReplayValues {
  readonly nowMs: number;
  readonly ids: readonly string[];
  readonly random: readonly number[];
  /** Further inputs in the same transaction: failures of commands that could not be composed. */
  readonly followUps?: readonly SagaInput[];
}

/** Wraps ports so that every value they return is recorded. */
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

/** Merges the values of two decisions that are saved as one transition. */
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

/** Ports that return recorded values in order. Ids beyond the recorded ones are invented and counted. */
export function replayPorts({ nowMs, ids, random }: ReplayValues): {
  readonly ports: DecisionPorts;
  /** How many more ids the replay used than the recording; negative if fewer. */
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
