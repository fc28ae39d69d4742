import { MAX_LAG_AGE_MS, type StoredLags } from "../../inbox/index.ts";
import { combineMeasured, type Lag, type Measured } from "../../transport/index.ts";

/** A number of messages. If `exact` is false, it is an estimate. */
export interface WaitingCount {
  readonly count: number;
  readonly exact: boolean;
}

/** How far a consumer is behind on one topic. */
export interface TopicLag {
  /** Null: all topics of the consumer together, because the broker cannot tell them apart. */
  readonly topic: string | null;
  readonly waiting: WaitingCount | "unknown";
  /** For how long the oldest message could have been handled, in seconds; 0 if none could. */
  readonly oldestAgeSeconds: Measured;
}

/** How far a consumer is behind, all its topics together and each of them. */
export interface ConsumerLag extends Omit<TopicLag, "topic"> {
  readonly lags: readonly TopicLag[];
}

/** An entry of a measurement that is about a known consumer. */
type Entry = Omit<Lag, "group">;

const UNKNOWN: Entry = { topic: null, waiting: "unknown", oldestAgeSeconds: "unknown" };

/**
 * Chooses what is known about a consumer: what the queue in PostgreSQL holds, or, if its transport is a broker, the last
 * measurement of a worker while it is fresh. Pure.
 */
export function chooseLags(queued: readonly Entry[], stored: StoredLags | undefined): readonly Entry[] {
  if (stored === undefined || stored.transport === "postgres") return queued;
  return stored.ageMs !== null && stored.ageMs <= MAX_LAG_AGE_MS ? stored.lags : [UNKNOWN];
}

/** Adds up the topics of a consumer. The sum is unknown if one of them is. Pure. */
export function summarizeLags(entries: readonly Entry[]): ConsumerLag {
  const waiting = combineMeasured(
    entries.map((entry) => entry.waiting),
    (counts) => counts.reduce((sum, count) => sum + count, 0),
  );
  return {
    waiting: toWaiting(waiting, entries),
    oldestAgeSeconds: combineMeasured(
      entries.map((entry) => entry.oldestAgeSeconds),
      (ages) => Math.max(0, ...ages),
    ),
    lags: entries.map((entry) => ({
      topic: entry.topic,
      waiting: toWaiting(entry.waiting, [entry]),
      oldestAgeSeconds: entry.oldestAgeSeconds,
    })),
  };
}

function toWaiting(waiting: Measured, entries: readonly Entry[]): WaitingCount | "unknown" {
  if (waiting === "unknown") return waiting;
  return { count: waiting, exact: !entries.some(({ isEstimate }) => isEstimate === true) };
}

/** Formats a number of waiting messages: "5", "about 120000" or "unknown". */
export function waitingText(waiting: WaitingCount | "unknown"): string {
  if (waiting === "unknown") return waiting;
  return waiting.exact ? String(waiting.count) : `about ${waiting.count}`;
}
