/**
 * The life of a destination, as its messages see it. `closed`: they flow. After as many failed batches in a row as the
 * settings allow it is `open`: nobody calls the broker for it, and its messages wait uncharged. When the cool-down is
 * over, one message is let through and the breaker is `half-open`: an answer closes it, another failure opens it again
 * for longer. A destination that failed less often rests for a moment and is then tried with one batch at a time. One
 * that nobody has had anything for since is `outdated`: others may have sent to it long ago, so it is forgotten.
 */
export type BreakerKind = "closed" | "open" | "half-open";

export interface Breaker {
  readonly kind: BreakerKind;
  /** Failed batches in a row. */
  readonly failures: number;
  /** How often in a row it has opened. */
  readonly trips: number;
  /** Nothing is sent before this, on the monotonic clock. */
  readonly untilMs: number;
  /** A batch or a single message is under way to find out; until it is back nothing else is sent. */
  readonly trial: boolean;
}

export interface BreakerSettings {
  readonly failures: number;
  readonly cooldownMs: number;
  readonly maxCooldownMs: number;
}

/** `trial`: everything there is, in a batch by itself. `probe`: one message. */
export type Admittance = "all" | "trial" | "probe" | "none";

export const CLOSED: Breaker = { kind: "closed", failures: 0, trips: 0, untilMs: 0, trial: false };

const FIRST_REST_MS = 100;
/** No relay looks less often than this, so what waits has been tried by then. */
const MAX_POLL_MS = 60_000;

export function decideAdmittance({ kind, failures, untilMs, trial }: Breaker, nowMs: number): Admittance {
  if (failures === 0) return "all";
  if (trial || untilMs > nowMs) return "none";
  return kind === "closed" ? "trial" : "probe";
}

/** What was let through to find out is under way. */
export function startTrial(breaker: Breaker): Breaker {
  return { ...breaker, kind: breaker.kind === "open" ? "half-open" : breaker.kind, trial: true };
}

/** It never reached the broker, so nothing was found out: the next one may try. */
export function cancelTrial(breaker: Breaker, nowMs: number): Breaker {
  const kind = breaker.kind === "half-open" ? "open" : breaker.kind;
  return { ...breaker, kind, untilMs: Math.max(breaker.untilMs, nowMs), trial: false };
}

/** How long after its rest a breaker is believed that nobody has tried. */
export function maxIdleMs({ maxCooldownMs }: BreakerSettings): number {
  return Math.max(MAX_POLL_MS, 2 * maxCooldownMs);
}

/**
 * Whether an open breaker says nothing any more. Whatever waits here is tried as soon as the rest is over, so a process
 * that has tried nothing for long has nothing to send: its lanes went to others, and only those know the broker now.
 */
export function isOutdated(
  { kind, untilMs, trial }: Breaker,
  settings: BreakerSettings,
  nowMs: number,
): boolean {
  return kind === "open" && !trial && nowMs - untilMs >= maxIdleMs(settings);
}

/** One more failed batch. What was under way when it opened changes nothing: only a trial says something new. */
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
  const bound = opens
    ? doubleDelayMs(settings.cooldownMs, trips, settings.maxCooldownMs)
    : doubleDelayMs(FIRST_REST_MS, failures, settings.cooldownMs);
  // Spread over the second half, so that many processes do not come back together.
  const untilMs = nowMs + Math.ceil(bound / 2 + (bound / 2) * random());
  return { kind: opens ? "open" : "closed", failures, trips, untilMs, trial: false };
}

function doubleDelayMs(firstMs: number, times: number, mostMs: number): number {
  return Math.min(mostMs, firstMs * 2 ** Math.min(times - 1, 30));
}
