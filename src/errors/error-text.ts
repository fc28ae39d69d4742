/** Returns the message of a thrown value, which may be anything. Never throws. */
export function errorText(thrown: unknown): string {
  try {
    return String(thrown instanceof Error ? thrown.message : thrown);
  } catch {
    return "a value without a text was thrown"; // such as an object without a prototype
  }
}

/** Returns the error itself, or wraps a thrown non-error in an Error. */
export function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(errorText(thrown));
}
