/** Limits how many rows the readers of a drain may take in all. A row that is read again counts again. */
export class Budget {
  #left: number;

  constructor(limit: number) {
    this.#left = limit;
  }

  get isSpent(): boolean {
    return this.#left <= 0;
  }

  /** Reads up to `wanted` rows, as far as the limit allows. Reads may run at once. */
  async take<T>(wanted: number, read: (limit: number) => Promise<T[]>): Promise<T[]> {
    const granted = Math.max(0, Math.min(wanted, this.#left));
    if (granted === 0) return [];
    this.#left -= granted;
    let taken = 0;
    try {
      const rows = await read(granted);
      taken = rows.length;
      return rows;
    } finally {
      this.#left += granted - taken;
    }
  }
}
