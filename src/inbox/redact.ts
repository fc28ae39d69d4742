const SHORTEST = 3;
const DEEPEST = 8;

/**
 * Takes personal texts of a message out of what was thrown while it was handled, before anybody writes it down: the
 * error belongs to us from here on, so it is changed in place and keeps its class, its verdict and its place in code.
 */
export function redact(error: Error, secrets: readonly string[] = []): void {
  const hidden = secrets.filter((secret) => secret.length >= SHORTEST);
  if (hidden.length === 0) return;
  let current: unknown = error;
  for (let depth = 0; depth < DEEPEST && current instanceof Error; depth++) {
    for (const field of ["message", "stack", "detail"] as const) hide(current, field, hidden);
    current = current.cause;
  }
}

function hide(error: Error, field: "message" | "stack" | "detail", secrets: readonly string[]): void {
  const text: unknown = (error as unknown as Record<string, unknown>)[field];
  if (typeof text !== "string") return;
  const clean = secrets.reduce((left, secret) => left.replaceAll(secret, "[personal]"), text);
  if (clean === text) return;
  try {
    Object.defineProperty(error, field, {
      value: clean,
      configurable: true,
      writable: true,
      enumerable: false,
    });
  } catch {
    // Frozen by its owner: whatever we write down of it comes from the fields above, so nothing else can be done.
  }
}
