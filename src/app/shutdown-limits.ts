const limits = new WeakMap<object, number>();

export function rememberShutdownMs<B extends object>(bus: B, shutdownMs: number): B {
  limits.set(bus, shutdownMs);
  return bus;
}

/** Returns the shutdown timeout of a bus in milliseconds, for callers that wait for its stop; undefined for other objects. */
export function findShutdownMs(bus: object): number | undefined {
  return limits.get(bus);
}
