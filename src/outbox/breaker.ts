import { backoffMs } from "../runtime/index.ts";

/**
 * Circuit breaker of a destination. `closed`: messages are sent. After as many failed batches in a row as the
 * settings allow it is `open`: nothing is sent, and the waiting messages use up no attempts. After the
 * cool-down one message is sent and the breaker is `half-open`: an answer closes it, a failure opens it for
 * longer. A destination with fewer failures pauses briefly and is then tried with one batch at a time. An
 * open breaker that this process has not tried for long is outdated and removed, because another process may
 * send there now.
 */
export type BreakerKind = "closed" | "open" | "half-open";

export interface Breaker {
  readonly kind: BreakerKind;
  /** Failed batches in a row. */
  readonly failures: number;
  /** Number of times in a row that it has opened. */
  readonly trips: number;
  /** Nothing is sent before this time, in milliseconds on the monotonic clock. */
  readonly untilMs: number;
  /** A batch or a single message is in flight to test the broker; nothing else is sent until it is back. */
  readonly trial: boolean;
}

export interface BreakerSettings {
  readonly failures: number;
  readonly cooldownMs: number;
  readonly maxCooldownMs: number;
}

/** `trial`: all messages, in a separate batch. `probe`: one message. */
export type Admittance = "all" | "trial" | "probe" | "none";

export const CLOSED: Breaker = { kind: "closed", failures: 0, trips: 0, untilMs: 0, trial: false };

const FIRST_REST_MS = 100;
/** Longest poll interval of a relay, in milliseconds. Waiting messages have been tried within this time. */
const MAX_POLL_MS = 60_000;

export function decideAdmittance({ kind, failures, untilMs, trial }: Breaker, nowMs: number): Admittance {
  if (failures === 0) return "all";
  if (trial || untilMs > nowMs) return "none";
  return kind === "closed" ? "trial" : "probe";
}

/** Marks the breaker while a trial or probe is in flight. */
export function startTrial(breaker: Breaker): Breaker {
  return { ...breaker, kind: breaker.kind === "open" ? "half-open" : breaker.kind, trial: true };
}

/** Ends a trial that never reached the broker, so that the next batch can be the trial. */
export function cancelTrial(breaker: Breaker, nowMs: number): Breaker {
  const kind = breaker.kind === "half-open" ? "open" : breaker.kind;
  return { ...breaker, kind, untilMs: Math.max(breaker.untilMs, nowMs), trial: false };
}

/** How long an open breaker stays valid after its cool-down without being tried, in milliseconds. */
export function maxIdleMs({ maxCooldownMs }: BreakerSettings): number {
  return Math.max(MAX_POLL_MS, 2 * maxCooldownMs);
}

/**
 * Returns true if an open breaker is no longer valid. Waiting messages are tried as soon as the cool-down is
 * over, so a process that has tried nothing for long has lost its lanes to another one, which knows the
 * broker better.
 */
export function isOutdated(
  { kind, untilMs, trial }: Breaker,
  settings: BreakerSettings,
  nowMs: number,
): boolean {
  return kind === "open" && !trial && nowMs - untilMs >= maxIdleMs(settings);
}

/**
 * Records a failed batch. Batches that were in flight when the breaker opened change nothing; only a trial
 * does.
 */
export function recordFailure(
  breaker: Breaker,
  settings: BreakerSettings,
  {
    nowMs,
    random,
    trial,
  }: { readonly nowMs: number; readonly random: () => number; readonly trial: boolean },
): Breaker {
  if (breaker.kind !== "closed" && !trial) return breaker;
  const failures = breaker.failures + 1;
  const opens = breaker.kind !== "closed" || failures >= settings.failures;
  const trips = opens ? breaker.trips + 1 : 0;
  const waitMs = opens
    ? backoffMs({ firstMs: settings.cooldownMs, maxMs: settings.maxCooldownMs }, trips, random)
    : backoffMs({ firstMs: FIRST_REST_MS, maxMs: settings.cooldownMs }, failures, random);
  const untilMs = nowMs + Math.ceil(waitMs);
  return { kind: opens ? "open" : "closed", failures, trips, untilMs, trial: false };
}
