import { withDeadline } from "../runtime/index.ts";

export interface TurnsOptions {
  /** So long one waits for the one before it: a silent broker must not keep those of others. */
  readonly patienceMs?: number;
}

/** Lets one after the other begin, and tells each whether it had the time for itself. */
export class Turns {
  readonly #patienceMs: number;
  #last: Promise<unknown> = Promise.resolve();
  #begun = 0;
  #inFlight = 0;

  constructor(options: TurnsOptions = {}) {
    this.#patienceMs = options.patienceMs ?? 1_000;
  }

  take<T>(work: () => Promise<T>): Promise<{ readonly result: T; readonly alone: boolean }> {
    const before = this.#last;
    const mine = withDeadline(before, this.#patienceMs, () => undefined).then(() => this.#run(work));
    this.#last = mine.catch(() => undefined);
    return mine;
  }

  async #run<T>(work: () => Promise<T>): Promise<{ readonly result: T; readonly alone: boolean }> {
    const turn = ++this.#begun;
    const wasFree = this.#inFlight++ === 0;
    try {
      const result = await work();
      return { result, alone: wasFree && turn === this.#begun };
    } finally {
      this.#inFlight--;
    }
  }
}
