import { after, type CancelTimer } from "../runtime/index.ts";

/**
 * Ends what makes no progress. The time for one step begins anew with each sign of life and stands still while somebody
 * else is waited for, so that neither a large blob nor a slow reader is taken for a store that hangs.
 */
export class ProgressTimeout {
  readonly #ms: number;
  readonly #abort = new AbortController();
  readonly #createError: () => Error;
  #cancel: CancelTimer | undefined;

  constructor(ms: number, late: () => Error) {
    this.#ms = ms;
    this.#createError = late;
  }

  /** Aborts when the time is over. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Waits for the store, but no longer than it may take without a sign of life. */
  waitFor<T>(work: () => Promise<T>): Promise<T> {
    this.reset();
    return new Promise<T>((resolve, reject) => {
      const onEnd = (): void => reject(this.#abort.signal.reason as Error);
      this.#abort.signal.addEventListener("abort", onEnd, { once: true });
      const working = (async () => work())();
      working.then(resolve, reject).finally(() => {
        this.pause();
        this.#abort.signal.removeEventListener("abort", onEnd);
      });
    });
  }

  reset(): void {
    this.#cancel?.();
    this.#cancel = after(this.#ms, () => this.#abort.abort(this.#createError()));
  }

  pause(): void {
    this.#cancel?.();
  }

  /** Ends it now, because nobody wants it any more. */
  end(): void {
    this.pause();
    if (!this.#abort.signal.aborted) this.#abort.abort(this.#createError());
  }
}
