/**
 * Sends an acknowledgement and ignores a lost connection: the server redelivers messages that were not acknowledged.
 */
export function trySend(send: () => void): void {
  try {
    send();
  } catch {
    // the session reports its end on its own
  }
}
