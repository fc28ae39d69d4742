import type { ReadRow } from "./read.ts";

const DAY_MS = 86_400_000;

/**
 * Which days of the history a read looks into for messages: about now, or as far back as the last rows went. A wrong
 * guess, as with a clock that is wrong, costs one more read.
 */
export class Days {
  #oldest: string | undefined;

  expected(wallMs: number): [from: string, to: string] {
    const yesterday = dayOf(wallMs - DAY_MS);
    const oldest = this.#oldest ?? yesterday;
    return [oldest < yesterday ? oldest : yesterday, dayOf(wallMs + DAY_MS)];
  }

  met(rows: readonly ReadRow[]): void {
    this.#oldest = undefined;
    for (const { row } of rows)
      if (this.#oldest === undefined || row.writtenOn < this.#oldest) this.#oldest = row.writtenOn;
  }
}

function dayOf(wallMs: number): string {
  return new Date(wallMs).toISOString().slice(0, 10);
}
