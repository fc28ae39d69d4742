import type { ReadRow } from "./read.ts";

/**
 * Which days of the history a read looks into for messages: today, and those of the rows that were read last. Each day costs,
 * also where nothing is found. A wrong guess, as at midnight or with a clock that is wrong, costs one more read.
 */
export class HistoryDays {
  #oldest: string | undefined;
  #newest: string | undefined;

  guessRange(wallMs: number): [from: string, to: string] {
    const today = new Date(wallMs).toISOString().slice(0, 10);
    const [oldest, newest] = [this.#oldest ?? today, this.#newest ?? today];
    return [oldest < today ? oldest : today, newest > today ? newest : today];
  }

  update(rows: readonly ReadRow[]): void {
    this.#oldest = this.#newest = undefined;
    for (const { row } of rows) {
      if (this.#oldest === undefined || row.writtenOn < this.#oldest) this.#oldest = row.writtenOn;
      if (this.#newest === undefined || row.writtenOn > this.#newest) this.#newest = row.writtenOn;
    }
  }
}
