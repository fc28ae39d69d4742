/** Closed: everybody may ask. Open: nobody, until the rest is over; then one asks for all. */
export interface BreakerState {
  readonly failures: number;
  /** Until then nobody asks; undefined while it is closed. */
  readonly restUntilMs: number | undefined;
}

const MAX_FAILURES = 5;
const REST_MS = 5_000;

export const closedBreaker: BreakerState = Object.freeze({ failures: 0, restUntilMs: undefined });

export function isClosed({ restUntilMs }: BreakerState, nowMs: number): boolean {
  return restUntilMs === undefined || nowMs >= restUntilMs;
}

/** Somebody asks after the rest: the others wait for what becomes of it. */
export function startProbe(state: BreakerState, nowMs: number): BreakerState {
  return state.restUntilMs === undefined ? state : { ...state, restUntilMs: nowMs + REST_MS };
}

export function countFailure({ failures }: BreakerState, nowMs: number): BreakerState {
  const count = failures + 1;
  return { failures: count, restUntilMs: count >= MAX_FAILURES ? nowMs + REST_MS : undefined };
}
