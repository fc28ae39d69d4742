/** So long a process may be without any session before others take its end for granted: it may be about to connect again. */
const LONGEST_GRACE_MS = 2_000;

/**
 * Processes of which no session is left at the server, and since when. One that was killed, or whose machine said good-bye
 * for it, is known by that within moments; one that is frozen or cut off keeps its sessions, and has until its lease is over.
 */
export class Absences {
  readonly #graceMs: number;
  readonly #sinceMs = new Map<string, number>();

  constructor(leaseMs: number) {
    this.#graceMs = Math.min(LONGEST_GRACE_MS, leaseMs / 2);
  }

  /** Of those that are absent now, the ones that have been for so long that they will hardly come back. */
  overdue(absent: readonly string[], nowMs: number): string[] {
    for (const process of this.#sinceMs.keys()) {
      if (!absent.includes(process)) this.#sinceMs.delete(process);
    }
    for (const process of absent) {
      if (!this.#sinceMs.has(process)) this.#sinceMs.set(process, nowMs);
    }
    return absent.filter((process) => nowMs - (this.#sinceMs.get(process) ?? nowMs) >= this.#graceMs);
  }
}
