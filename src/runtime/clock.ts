/** Source of time for every room. Tests and simulations pass their own. */
export interface Clock {
  /**
   * Milliseconds since the Unix epoch. May jump, so use it for timestamps that people read, never for
   * waiting.
   */
  wallMs(): number;
  /** Milliseconds since a fixed moment. Never goes back; use it to measure waits and leases. */
  monotonicMs(): number;
}

export const systemClock: Clock = Object.freeze({
  wallMs: () => Date.now(),
  monotonicMs: () => performance.now(),
});
