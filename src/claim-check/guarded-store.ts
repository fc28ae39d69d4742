import { isSagaboxError } from "../errors/index.ts";
import { after, type CancelTimer, systemClock, withDeadline } from "../runtime/index.ts";
import { type BlobPage, type BlobStore, storeUnavailable } from "./blob-store.ts";

/**
 * Aborts an operation that makes no progress. Each transferred chunk restarts the timeout, and it is paused while the
 * source or the reader is slow, so that neither a large blob nor a slow reader looks like a hanging store.
 */
class ProgressTimeout {
  readonly #ms: number;
  readonly #abort = new AbortController();
  readonly #createError: () => Error;
  #cancel: CancelTimer | undefined;

  constructor(ms: number, createError: () => Error) {
    this.#ms = ms;
    this.#createError = createError;
  }

  /** Aborts when the timeout expires. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Waits for a call to the store, at most until the timeout. */
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

  /** Aborts the operation at once, because the reader has stopped. */
  end(): void {
    this.pause();
    if (!this.#abort.signal.aborted) this.#abort.abort(this.#createError());
  }
}

/** Limits the number of concurrent operations. Waiting for a permit fails after a timeout. */
class Semaphore {
  readonly #max: number;
  readonly #waiting: (() => void)[] = [];
  #inUse = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Resolves with a function that releases the permit. */
  async acquire(waitMs: number, createError: () => Error): Promise<() => void> {
    if (this.#inUse < this.#max) this.#inUse += 1;
    else await this.#wait(waitMs, createError);
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      const next = this.#waiting.shift();
      if (next === undefined) this.#inUse -= 1;
      else next();
    };
  }

  #wait(waitMs: number, createError: () => Error): Promise<void> {
    let turn: () => void = () => undefined;
    const granted = new Promise<void>((resolve) => (turn = resolve));
    this.#waiting.push(turn);
    return withDeadline(granted, waitMs, () => {
      const index = this.#waiting.indexOf(turn);
      if (index < 0) return; // the permit was granted at the same moment
      this.#waiting.splice(index, 1);
      throw createError();
    });
  }
}

export interface GuardOptions {
  /** How long a store may make no progress. */
  readonly timeoutMs: number;
  /** The maximum number of concurrent reads, and of concurrent writes. */
  readonly concurrency: number;
}

/** Reads wait only briefly for a permit: a delivery can be retried later, and its worker has other work. */
const READER_WAIT_MS = 2_000;

/**
 * Protects workers from a remote store that is slow or down: it limits concurrency, sets timeouts, and opens a circuit
 * breaker after several failures in a row.
 */
export class GuardedStore implements BlobStore {
  readonly id: string;
  readonly #store: BlobStore;
  readonly #timeoutMs: number;
  readonly #readers: Semaphore;
  readonly #writers: Semaphore;
  #breaker = closedBreaker;

  constructor(store: BlobStore, { timeoutMs, concurrency }: GuardOptions) {
    this.id = store.id;
    this.#store = store;
    this.#timeoutMs = timeoutMs;
    this.#readers = new Semaphore(concurrency);
    this.#writers = new Semaphore(concurrency);
  }

  put(key: string, bytes: AsyncIterable<Uint8Array>): Promise<void> {
    return this.#guard(this.#writers, this.#timeoutMs, async (timeout) => {
      const source = new Source(bytes, timeout);
      await this.#store.put(key, source, timeout.signal).catch((error: unknown) => {
        throw source.failure ?? error;
      });
    });
  }

  // The permit covers only the opening of the stream, so that a slow reader does not block others.
  get(key: string): Promise<AsyncIterable<Uint8Array>> {
    return this.#guard(this.#readers, READER_WAIT_MS, async (timeout) =>
      this.#read(await this.#store.get(key, timeout.signal), timeout),
    );
  }

  delete(keys: readonly string[]): Promise<void> {
    return this.#guard(this.#writers, this.#timeoutMs, ({ signal }) => this.#store.delete(keys, signal));
  }

  list(prefix: string, cursor: string | undefined): Promise<BlobPage> {
    return this.#guard(this.#readers, this.#timeoutMs, ({ signal }) =>
      this.#store.list(prefix, cursor, signal),
    );
  }

  async #guard<T>(
    semaphore: Semaphore,
    waitMs: number,
    work: (timeout: ProgressTimeout) => Promise<T>,
  ): Promise<T> {
    this.#assertClosed();
    const release = await semaphore.acquire(waitMs, () =>
      storeUnavailable(this.id, "too many operations are waiting for it."),
    );
    const timeout = this.#createTimeout();
    try {
      this.#assertClosed();
      this.#breaker = startProbe(this.#breaker, systemClock.monotonicMs());
      const result = await timeout.waitFor(() => work(timeout));
      this.#breaker = closedBreaker;
      return result;
    } catch (error) {
      throw this.#explainError(error);
    } finally {
      release();
    }
  }

  async *#read(source: AsyncIterable<Uint8Array>, timeout: ProgressTimeout): AsyncGenerator<Uint8Array> {
    const pieces = source[Symbol.asyncIterator]();
    try {
      for (;;) {
        const next = await timeout.waitFor(async () => pieces.next());
        if (next.done === true) return;
        yield next.value;
      }
    } catch (error) {
      throw this.#explainError(error);
    } finally {
      timeout.end();
      void Promise.resolve(pieces.return?.()).catch(() => undefined);
    }
  }

  #createTimeout(): ProgressTimeout {
    return new ProgressTimeout(this.#timeoutMs, () =>
      storeUnavailable(this.id, `it made no progress for ${this.#timeoutMs} ms.`),
    );
  }

  #assertClosed(): void {
    if (isClosed(this.#breaker, systemClock.monotonicMs())) return;
    throw storeUnavailable(this.id, "it failed several times in a row and is not called for some seconds.");
  }

  // Any response, even CLAIM_MISSING, shows that the store is up and closes the breaker.
  #explainError(error: unknown): unknown {
    if (error instanceof SourceFailure) return error.cause;
    const reported = isSagaboxError(error) ? error : storeUnavailable(this.id, describeReason(error), error);
    const isDown = reported.code === "CLAIM_STORE_UNAVAILABLE";
    this.#breaker = isDown ? countFailure(this.#breaker, systemClock.monotonicMs()) : closedBreaker;
    return reported;
  }
}

/** Marks an error of the source. It never counts as a failure of the store. */
class SourceFailure extends Error {}

/** Pauses the timeout while the source is read, because the store has nothing to do meanwhile. */
class Source implements AsyncIterable<Uint8Array> {
  readonly #bytes: AsyncIterable<Uint8Array>;
  readonly #timeout: ProgressTimeout;
  failure: SourceFailure | undefined;

  constructor(bytes: AsyncIterable<Uint8Array>, timeout: ProgressTimeout) {
    this.#bytes = bytes;
    this.#timeout = timeout;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    this.#timeout.pause();
    try {
      for await (const piece of this.#bytes) {
        this.#timeout.reset();
        yield piece;
        this.#timeout.pause();
      }
    } catch (error) {
      this.failure = new SourceFailure("the source failed", { cause: error });
      this.#timeout.reset();
      throw error;
    }
    this.#timeout.reset();
  }
}

function describeReason(error: unknown): string {
  if (!(error instanceof Error)) return "it failed.";
  const { code } = error as { code?: unknown };
  return `${error.name}${typeof code === "string" ? ` (${code})` : ""}.`;
}

/** A closed breaker lets all calls through. An open one rejects them until the rest is over, then lets one call probe. */
interface BreakerState {
  readonly failures: number;
  /** When the next probe is allowed, in monotonic ms; undefined while the breaker is closed. */
  readonly restUntilMs: number | undefined;
}

const MAX_FAILURES = 5;
const REST_MS = 5_000;

const closedBreaker: BreakerState = Object.freeze({ failures: 0, restUntilMs: undefined });

function isClosed({ restUntilMs }: BreakerState, nowMs: number): boolean {
  return restUntilMs === undefined || nowMs >= restUntilMs;
}

/** Starts the probe after the rest: the rest begins again, so that other calls wait for the probe's result. */
function startProbe(state: BreakerState, nowMs: number): BreakerState {
  return state.restUntilMs === undefined ? state : { ...state, restUntilMs: nowMs + REST_MS };
}

function countFailure({ failures }: BreakerState, nowMs: number): BreakerState {
  const count = failures + 1;
  return { failures: count, restUntilMs: count >= MAX_FAILURES ? nowMs + REST_MS : undefined };
}
