const MIN_SECRET_LENGTH = 3;
const MAX_CAUSE_DEPTH = 8;

/**
 * Removes a message's personal data from an error that its handler threw, before the error is stored or logged. The error
 * is changed in place, so that it keeps its class, verdict and stack. An error that cannot be changed is replaced.
 */
export function redact(error: Error, secrets: readonly string[] = []): Error {
  const hidden = secrets.filter((secret) => secret.length >= MIN_SECRET_LENGTH);
  if (hidden.length === 0) return error;
  const clean = (text: string): string =>
    hidden.reduce((rest, secret) => rest.replaceAll(secret, "[personal]"), text);
  try {
    redactCauses(error, clean);
    return error;
  } catch {
    return new Error(clean(error.message));
  }
}

function redactCauses(error: Error, clean: (text: string) => string): void {
  let current = error;
  for (let depth = 0; depth < MAX_CAUSE_DEPTH; depth++) {
    for (const field of ["message", "stack", "detail"]) redactField(current, field, clean);
    const { cause } = current;
    if (cause instanceof Error) current = cause;
    else {
      if (cause !== undefined) redactField(current, "cause", clean, String);
      return;
    }
  }
}

function redactField(
  error: Error,
  field: string,
  clean: (text: string) => string,
  asText: (value: unknown) => unknown = (value) => value,
): void {
  const text = asText((error as unknown as Record<string, unknown>)[field]);
  if (typeof text !== "string") return;
  const value = clean(text);
  if (value === text) return;
  Object.defineProperty(error, field, { value, configurable: true, writable: true, enumerable: false });
}
