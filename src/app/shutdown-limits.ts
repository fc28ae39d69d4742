const limits = new WeakMap<object, number>();

export function rememberShutdownMs<B extends object>(bus: B, shutdownMs: number): B {
  limits.set(bus, shutdownMs);
  return bus;
}

/** How long a bus takes for its stop at most, for those of our own rooms that wait for it. Undefined for a stranger. */
export function findShutdownMs(bus: object): number | undefined {
  return limits.get(bus);
}
