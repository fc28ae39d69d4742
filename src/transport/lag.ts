import type { PlannedGroup } from "./transport.ts";

/** A measured value, or "unknown": what a transport cannot find out is never reported as 0. */
export type Measured = number | "unknown";

/** How far a consumer group is behind. */
export interface Lag {
  readonly group: string;
  /** Null: the topics of the group together, because the transport cannot tell them apart. */
  readonly topic: string | null;
  /** The number of messages that the group has not handled yet. */
  readonly waiting: Measured;
  /** True if `waiting` is an estimate. */
  readonly isEstimate?: boolean;
  /** For how long the oldest of them could have been handled, in seconds. 0 if none could. */
  readonly oldestAgeSeconds: Measured;
}

/** Adds an entry with unknown values for each topic that the transport did not report. Pure. */
export function completeLags(groups: readonly PlannedGroup[], lags: readonly Lag[]): readonly Lag[] {
  const missing = groups.flatMap(({ group, topics }) => {
    const own = lags.filter((lag) => lag.group === group);
    if (own.some(({ topic }) => topic === null)) return [];
    const unreported = topics.filter(({ topic }) => !own.some((lag) => lag.topic === topic));
    return unreported.map(({ topic }): Lag => ({
      group,
      topic,
      waiting: "unknown",
      oldestAgeSeconds: "unknown",
    }));
  });
  return [...lags, ...missing];
}

/**
 * Adds the messages that a broker's groups have parked in PostgreSQL to what the broker reported. The sum of a known and
 * an unknown value is unknown. Pure.
 */
export function addParkedLags(broker: readonly Lag[], parked: readonly Lag[]): readonly Lag[] {
  const sums = [...broker];
  for (const lag of parked) {
    if (lag.waiting === 0) continue;
    const find = (topic: string | null): Lag | undefined =>
      sums.find((sum) => sum.group === lag.group && sum.topic === topic);
    const known = find(lag.topic) ?? find(null);
    if (known === undefined) sums.push(lag);
    else sums[sums.indexOf(known)] = addLag(known, lag);
  }
  return sums;
}

function addLag(one: Lag, other: Lag): Lag {
  const isEstimate = one.isEstimate === true || other.isEstimate === true;
  return {
    group: one.group,
    topic: one.topic,
    waiting: combineMeasured([one.waiting, other.waiting], (values) => values.reduce((sum, n) => sum + n, 0)),
    ...(isEstimate && { isEstimate }),
    oldestAgeSeconds: combineMeasured([one.oldestAgeSeconds, other.oldestAgeSeconds], (ages) =>
      Math.max(0, ...ages),
    ),
  };
}

/** Combines measured values; the result is unknown if one of them is. Pure. */
export function combineMeasured(
  values: readonly Measured[],
  combine: (known: readonly number[]) => number,
): Measured {
  const known = values.filter((value) => value !== "unknown");
  return known.length < values.length ? "unknown" : combine(known);
}
