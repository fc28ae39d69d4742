/**
 * Who may read now. Reads that only walk lanes run beside each other, each over lanes of its own; one that looks at what
 * waits or is urgent, in whatever lane, runs alone.
 */
export class ReadTurns {
  readonly #lanes = new Set<number>();
  readonly #waiting = new Set<() => void>();
  #reads = 0;
  #isAlone = false;

  /** Runs the read when it may; `needsAll` is asked in that moment, and its answer told to the read. */
  async take<T>(needsAll: () => boolean, read: (isAlone: boolean) => Promise<T>): Promise<T> {
    while (this.#isAlone || (this.#reads > 0 && needsAll())) {
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
    const isAlone = needsAll();
    this.#reads += 1;
    this.#isAlone = isAlone;
    try {
      return await read(isAlone);
    } finally {
      this.#reads -= 1;
      if (isAlone) this.#isAlone = false;
      for (const resolve of this.#waiting) resolve();
      this.#waiting.clear();
    }
  }

  /** Of these lanes, those that no other read is walking: every one, or one in `share`. They are this walk's own. */
  async walk<T>(
    lanes: readonly number[],
    share: number,
    walk: (own: readonly number[]) => Promise<T>,
  ): Promise<T> {
    const own = lanes.filter((lane) => !this.#lanes.has(lane)).filter((_, turn) => turn % share === 0);
    for (const lane of own) this.#lanes.add(lane);
    try {
      return await walk(own);
    } finally {
      for (const lane of own) this.#lanes.delete(lane);
    }
  }
}
