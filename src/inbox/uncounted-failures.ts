import type { FailureKind } from "../retry/index.ts";

/** More are not counted: those that failed longest ago start again with the shortest wait. */
const MAX_TRACKED = 10_000;

/**
 * How often in a row each delivery of a consumer failed without being charged, so that its waits grow although its
 * attempts do not. Kept in this process alone: whoever takes a delivery over starts anew, and so does the next life.
 */
export class UncountedFailures {
  readonly #inARow = new Map<string, number>();
  readonly #max: number;

  constructor(most = MAX_TRACKED) {
    this.#max = most;
  }

  /** Counts a failure, and tells how many there were right before it. One that is charged ends the row. */
  count(id: string, kind: FailureKind): number {
    const before = this.#inARow.get(id) ?? 0;
    this.#inARow.delete(id); // so that it is the youngest
    if (kind !== "infrastructure") return before;
    if (this.#inARow.size >= this.#max) this.#forgetOldest();
    this.#inARow.set(id, before + 1);
    return before;
  }

  /** Hardly any delivery is known here, so this must cost nothing. */
  forget(id: string | undefined): void {
    if (this.#inARow.size > 0 && id !== undefined) this.#inARow.delete(id);
  }

  #forgetOldest(): void {
    for (const oldest of this.#inARow.keys()) {
      this.#inARow.delete(oldest);
      return;
    }
  }
}
