/** How long handlers and local steps may go on after a stop: all of its time but what ending the rest takes. */
export function drainMs(shutdownMs: number): number {
  return shutdownMs - Math.min(3_000, shutdownMs / 5);
}
