import { sleep } from "../../runtime/index.ts";

const PAUSES_MS = [250, 1_000] as const;
/** Where everything is busy for good, asking for each of a thousand windows three times helps nobody. */
const MAX_FAILURES = 10;

/** Asks again, after a pause, for what was too busy to be looked at. */
export class BusyRetry {
  readonly #signal: AbortSignal | undefined;
  #failures = 0;

  constructor(signal?: AbortSignal) {
    this.#signal = signal;
  }

  get isLeft(): boolean {
    return this.#failures < MAX_FAILURES && this.#signal?.aborted !== true;
  }

  /** Undefined when it was too busy every time. `last` is tried at the end, where it costs less than the whole. */
  async run<T>(
    look: () => Promise<T | undefined>,
    last?: () => Promise<T | undefined>,
  ): Promise<T | undefined> {
    let seen = await look();
    for (const pauseMs of PAUSES_MS) {
      if (seen !== undefined || !this.isLeft || !(await sleep(pauseMs, this.#signal))) return seen;
      seen = await look();
    }
    seen ??= await last?.();
    if (seen === undefined) this.#failures += 1;
    return seen;
  }
}
