/** What was thrown, in its own words. Anything can be thrown; this never throws. */
export function errorText(thrown: unknown): string {
  try {
    return String(thrown instanceof Error ? thrown.message : thrown);
  } catch {
    return "something without words was thrown"; // an object without a prototype, say
  }
}

/** The error itself, or one that says what was thrown instead. */
export function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(errorText(thrown));
}
