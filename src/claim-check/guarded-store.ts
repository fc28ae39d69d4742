import { isSagaboxError } from "../errors/index.ts";
import { after, type CancelTimer, systemClock, withDeadline } from "../runtime/index.ts";
import { type BlobPage, type BlobStore, storeUnavailable } from "./blob-store.ts";

/**
 * Ends what makes no progress. The time for one step begins anew with each sign of life and stands still while somebody
 * else is waited for, so that neither a large blob nor a slow reader is taken for a store that hangs.
 */
class ProgressTimeout {
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

/** Lets only so many in at once. Whoever waits longer than they may is sent away. */
class Semaphore {
  readonly #max: number;
  readonly #waiting: (() => void)[] = [];
  #inUse = 0;

  constructor(most: number) {
    this.#max = most;
  }

  /** Resolves with what to call when leaving. */
  async acquire(waitMs: number, sendAway: () => Error): Promise<() => void> {
    if (this.#inUse < this.#max) this.#inUse += 1;
    else await this.#wait(waitMs, sendAway);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      const next = this.#waiting.shift();
      if (next === undefined) this.#inUse -= 1;
      else next();
    };
  }

  #wait(waitMs: number, sendAway: () => Error): Promise<void> {
    let turn: () => void = () => undefined;
    const called = new Promise<void>((resolve) => (turn = resolve));
    this.#waiting.push(turn);
    return withDeadline(called, waitMs, () => {
      const place = this.#waiting.indexOf(turn);
      if (place < 0) return; // called in this very moment
      this.#waiting.splice(place, 1);
      throw sendAway();
    });
  }
}

export interface GuardOptions {
  /** How long a store may take without a sign of life. */
  readonly timeoutMs: number;
  /** How many may read, and how many may write, at once. */
  readonly concurrency: number;
}

/** A reader that does not get its turn soon is better off trying again later: its worker has other things to do. */
const READER_WAIT_MS = 2_000;

/**
 * Stands before a store that is somewhere else. A store that is slow or down must not take all workers with it: only a
 * few ask at once, nobody waits for ever, and after some failures nobody asks for a while.
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
    return this.#guard(this.#writers, this.#timeoutMs, async (patience) => {
      const source = new Source(bytes, patience);
      await this.#store.put(key, source, patience.signal).catch((error: unknown) => {
        throw source.failure ?? error;
      });
    });
  }

  // The gate is for opening; whoever reads slowly afterwards must not keep the others out.
  get(key: string): Promise<AsyncIterable<Uint8Array>> {
    return this.#guard(this.#readers, READER_WAIT_MS, async (patience) =>
      this.#read(await this.#store.get(key, patience.signal), patience),
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
    gate: Semaphore,
    waitMs: number,
    work: (patience: ProgressTimeout) => Promise<T>,
  ): Promise<T> {
    this.#assertClosed();
    const leave = await gate.acquire(waitMs, () => storeUnavailable(this.id, "too many others wait for it."));
    const patience = this.#createTimeout();
    try {
      this.#assertClosed();
      this.#breaker = startProbe(this.#breaker, systemClock.monotonicMs());
      const result = await patience.waitFor(() => work(patience));
      this.#breaker = closedBreaker;
      return result;
    } catch (error) {
      throw this.#explainError(error);
    } finally {
      leave();
    }
  }

  async *#read(source: AsyncIterable<Uint8Array>, patience: ProgressTimeout): AsyncGenerator<Uint8Array> {
    const pieces = source[Symbol.asyncIterator]();
    try {
      for (;;) {
        const next = await patience.waitFor(async () => pieces.next());
        if (next.done === true) return;
        yield next.value;
      }
    } catch (error) {
      throw this.#explainError(error);
    } finally {
      patience.end();
      void Promise.resolve(pieces.return?.()).catch(() => undefined);
    }
  }

  #createTimeout(): ProgressTimeout {
    return new ProgressTimeout(this.#timeoutMs, () =>
      storeUnavailable(this.id, `it gave no sign of life for ${this.#timeoutMs} ms.`),
    );
  }

  #assertClosed(): void {
    if (isClosed(this.#breaker, systemClock.monotonicMs())) return;
    throw storeUnavailable(this.id, "it failed several times in a row and is left alone for a moment.");
  }

  // An answer, also "there is no such thing", shows that the store is there.
  #explainError(error: unknown): unknown {
    if (error instanceof SourceFailure) return error.cause;
    const told = isSagaboxError(error) ? error : storeUnavailable(this.id, describeReason(error), error);
    const isDown = told.code === "CLAIM_STORE_UNAVAILABLE";
    this.#breaker = isDown ? countFailure(this.#breaker, systemClock.monotonicMs()) : closedBreaker;
    return told;
  }
}

/** Says nothing about the store, whatever the store makes of it. */
class SourceFailure extends Error {}

/** While the source is waited for, the store has nothing to do. */
class Source implements AsyncIterable<Uint8Array> {
  readonly #bytes: AsyncIterable<Uint8Array>;
  readonly #timeout: ProgressTimeout;
  failure: SourceFailure | undefined;

  constructor(bytes: AsyncIterable<Uint8Array>, patience: ProgressTimeout) {
    this.#bytes = bytes;
    this.#timeout = patience;
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

/** Closed: everybody may ask. Open: nobody, until the rest is over; then one asks for all. */
interface BreakerState {
  readonly failures: number;
  /** Until then nobody asks; undefined while it is closed. */
  readonly restUntilMs: number | undefined;
}

const MAX_FAILURES = 5;
const REST_MS = 5_000;

const closedBreaker: BreakerState = Object.freeze({ failures: 0, restUntilMs: undefined });

function isClosed({ restUntilMs }: BreakerState, nowMs: number): boolean {
  return restUntilMs === undefined || nowMs >= restUntilMs;
}

/** Somebody asks after the rest: the others wait for what becomes of it. */
function startProbe(state: BreakerState, nowMs: number): BreakerState {
  return state.restUntilMs === undefined ? state : { ...state, restUntilMs: nowMs + REST_MS };
}

function countFailure({ failures }: BreakerState, nowMs: number): BreakerState {
  const count = failures + 1;
  return { failures: count, restUntilMs: count >= MAX_FAILURES ? nowMs + REST_MS : undefined };
}
