/** What a process wrote to a broker right before its end may still be on its way for as long. */
const MAX_GRACE_MS = 2_000;

/** Processes that are known to have ended, and since when that is known. */
export class EndedProcesses {
  readonly #graceMs: number;
  readonly #sinceMs = new Map<string, number>();

  constructor(leaseMs: number) {
    this.#graceMs = Math.min(MAX_GRACE_MS, leaseMs / 2);
  }

  /** Of those that have ended, the ones of which nothing can be on its way any more. */
  listOverdue(ended: readonly string[], nowMs: number): string[] {
    for (const process of this.#sinceMs.keys()) {
      if (!ended.includes(process)) this.#sinceMs.delete(process);
    }
    for (const process of ended) {
      if (!this.#sinceMs.has(process)) this.#sinceMs.set(process, nowMs);
    }
    return ended.filter((process) => nowMs - (this.#sinceMs.get(process) ?? nowMs) >= this.#graceMs);
  }
}
