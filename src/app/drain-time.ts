/** Returns how long handlers and local steps may run after stop(): the shutdown timeout less a reserve for closing. */
export function drainMs(shutdownMs: number): number {
  return shutdownMs - Math.min(3_000, shutdownMs / 5);
}
