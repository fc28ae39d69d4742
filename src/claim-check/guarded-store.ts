import { isSagaboxError } from "../errors/index.ts";
import { systemClock } from "../runtime/index.ts";
import { storeUnavailable, type BlobPage, type BlobStore } from "./blob-store.ts";
import { Semaphore } from "./semaphore.ts";
import { ProgressTimeout } from "./progress-timeout.ts";
import { startProbe, closedBreaker, countFailure, isClosed } from "./store-breaker.ts";

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
