/** Where every room reads the time, so that tests and simulations can hand in their own. */
export interface Clock {
  /** Milliseconds since the Unix epoch. May jump; good for timestamps people read, never for waiting. */
  wallMs(): number;
  /** Milliseconds since some fixed moment. Never goes back; the one to measure waits and leases with. */
  monotonicMs(): number;
}

export const systemClock: Clock = Object.freeze({
  wallMs: () => Date.now(),
  monotonicMs: () => performance.now(),
});
