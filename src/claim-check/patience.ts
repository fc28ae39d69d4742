import { after, type CancelTimer } from "../runtime/index.ts";

/**
 * Ends what makes no progress. The time for one step begins anew with each sign of life and stands still while somebody
 * else is waited for, so that neither a large blob nor a slow reader is taken for a store that hangs.
 */
export class Patience {
  readonly #ms: number;
  readonly #ended = new AbortController();
  readonly #late: () => Error;
  #cancel: CancelTimer | undefined;

  constructor(ms: number, late: () => Error) {
    this.#ms = ms;
    this.#late = late;
  }

  /** Aborts when the time is over. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Waits for the store, but no longer than it may take without a sign of life. */
  for<T>(work: () => Promise<T>): Promise<T> {
    this.alive();
    return new Promise<T>((resolve, reject) => {
      const onEnd = (): void => reject(this.#ended.signal.reason as Error);
      this.#ended.signal.addEventListener("abort", onEnd, { once: true });
      const working = (async () => work())();
      working.then(resolve, reject).finally(() => {
        this.pause();
        this.#ended.signal.removeEventListener("abort", onEnd);
      });
    });
  }

  alive(): void {
    this.#cancel?.();
    this.#cancel = after(this.#ms, () => this.#ended.abort(this.#late()));
  }

  pause(): void {
    this.#cancel?.();
  }

  /** Ends it now, because nobody wants it any more. */
  end(): void {
    this.pause();
    if (!this.#ended.signal.aborted) this.#ended.abort(this.#late());
  }
}
