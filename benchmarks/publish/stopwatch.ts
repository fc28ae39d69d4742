/** Joins what was committed with when it was published, in whichever order the two become known. */
export class Stopwatch {
  readonly #publishedNs = new Map<string, bigint>();
  readonly #waiting = new Map<string, (atNs: bigint) => void>();

  notePublished(ids: readonly string[], atNs: bigint): void {
    for (const id of ids) {
      const waiting = this.#waiting.get(id);
      if (waiting === undefined) this.#publishedNs.set(id, atNs);
      else waiting(atNs);
      this.#waiting.delete(id);
    }
  }

  /** Never less than nothing: a relay may see the row before COMMIT has returned to its writer. */
  async elapsedMs(id: string, committedNs: bigint): Promise<number> {
    const known = this.#publishedNs.get(id);
    this.#publishedNs.delete(id);
    const atNs = known ?? (await new Promise<bigint>((resolve) => this.#waiting.set(id, resolve)));
    return Math.max(0, Number(atNs - committedNs) / 1e6);
  }
}

/** Starts one piece of work after the other at a steady pace, whether the last one has ended or not. */
export async function steadily(
  count: number,
  everyMs: number,
  work: (n: number) => Promise<number>,
): Promise<number[]> {
  const running: Promise<number>[] = [];
  const began = performance.now();
  for (let n = 0; n < count; n++) {
    const waitMs = began + n * everyMs - performance.now();
    if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
    running.push(work(n));
  }
  return Promise.all(running);
}
