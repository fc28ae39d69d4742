/**
 * A word to the server about a message. When the connection has just gone there is nobody to hear it, and nothing to
 * do about it: what was not said is delivered again.
 */
export function trySend(word: () => void): void {
  try {
    word();
  } catch {
    // the end of the session is told elsewhere
  }
}
