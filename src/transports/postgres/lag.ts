import { estimateRows, type Sample } from "../../lanes/index.ts";
import { type Database, quoteSchema, toArrayLiteral } from "../../storage/index.ts";
import type { Lag } from "../../transport/index.ts";
import { lagStatements } from "./statements.ts";

/** What was read about one topic of one group: the first rows of each lane, and a sample of the whole queue. */
export interface TopicReading extends Sample {
  /** Waiting messages among the first rows of the lanes. */
  readonly counted: number;
  /** True if the group has no further rows than the first ones. */
  readonly isComplete: boolean;
  /** Seconds since the oldest of the counted messages became due; null if none is due. */
  readonly oldestSeconds: number | null;
}

/** Decides what a reading says. A topic that may have messages outside the reading is unknown, not empty. Pure. */
export function judgeReading(
  reading: TopicReading,
): Pick<Lag, "waiting" | "isEstimate" | "oldestAgeSeconds"> {
  const { counted, isComplete, seen, percent, oldestSeconds } = reading;
  const isExact = isComplete || percent >= 100;
  const waiting = isComplete ? counted : Math.max(counted, estimateRows({ seen, percent }));
  if (waiting === 0 && !isExact) return { waiting: "unknown", oldestAgeSeconds: "unknown" };
  const isKnown = oldestSeconds !== null || isComplete || waiting === 0;
  return {
    waiting,
    ...(!isExact && { isEstimate: true }),
    oldestAgeSeconds: isKnown ? Math.max(0, Math.round((oldestSeconds ?? 0) * 10) / 10) : "unknown",
  };
}

/**
 * Measures how far groups are behind in the queue: these, or all. Reads at most sixteen rows of each lane and a sample of
 * the queue, so the cost does not grow with the backlog.
 */
export async function measureQueueLags(
  database: Database,
  schema: string,
  groups?: readonly string[],
): Promise<readonly Lag[]> {
  const { measure } = lagStatements(quoteSchema(schema));
  const names = groups === undefined ? null : toArrayLiteral(groups);
  const { rows } = await database.run<LagRow>(measure, [names]);
  return rows.map((row) => ({
    group: row.consumer,
    topic: row.topic,
    ...judgeReading({
      counted: row.counted,
      isComplete: row.is_complete,
      seen: row.seen,
      percent: row.percent,
      oldestSeconds: row.oldest_seconds,
    }),
  }));
}

interface LagRow {
  readonly consumer: string;
  readonly topic: string;
  readonly counted: number;
  readonly is_complete: boolean;
  readonly seen: number;
  readonly percent: number;
  readonly oldest_seconds: number | null;
}
