import { isSagaboxError } from "../errors/index.ts";
import { systemClock } from "../runtime/index.ts";
import { storeUnavailable, type BlobPage, type BlobStore } from "./blob-store.ts";
import { Gate } from "./gate.ts";
import { Patience } from "./patience.ts";
import { asking, closedBreaker, failed, mayAsk } from "./store-breaker.ts";

export interface GuardOptions {
  /** How long a store may take without a sign of life. */
  readonly timeoutMs: number;
  /** How many may read, and how many may write, at once. */
  readonly concurrency: number;
}

/** A reader that does not get its turn soon is better off trying again later: its worker has other things to do. */
const READER_WAITS_MS = 2_000;

/**
 * Stands before a store that is somewhere else. A store that is slow or down must not take all workers with it: only a
 * few ask at once, nobody waits for ever, and after some failures nobody asks for a while.
 */
export class GuardedStore implements BlobStore {
  readonly id: string;
  readonly #store: BlobStore;
  readonly #timeoutMs: number;
  readonly #readers: Gate;
  readonly #writers: Gate;
  #breaker = closedBreaker;

  constructor(store: BlobStore, { timeoutMs, concurrency }: GuardOptions) {
    this.id = store.id;
    this.#store = store;
    this.#timeoutMs = timeoutMs;
    this.#readers = new Gate(concurrency);
    this.#writers = new Gate(concurrency);
  }

  put(key: string, bytes: AsyncIterable<Uint8Array>): Promise<void> {
    return this.#guarded(this.#writers, this.#timeoutMs, async (patience) => {
      const source = new Source(bytes, patience);
      await this.#store.put(key, source, patience.signal).catch((error: unknown) => {
        throw source.failure ?? error;
      });
    });
  }

  // The gate is for opening; whoever reads slowly afterwards must not keep the others out.
  get(key: string): Promise<AsyncIterable<Uint8Array>> {
    return this.#guarded(this.#readers, READER_WAITS_MS, async (patience) =>
      this.#read(await this.#store.get(key, patience.signal), patience),
    );
  }

  delete(keys: readonly string[]): Promise<void> {
    return this.#guarded(this.#writers, this.#timeoutMs, ({ signal }) => this.#store.delete(keys, signal));
  }

  list(prefix: string, cursor: string | undefined): Promise<BlobPage> {
    return this.#guarded(this.#readers, this.#timeoutMs, ({ signal }) =>
      this.#store.list(prefix, cursor, signal),
    );
  }

  async #guarded<T>(gate: Gate, waitMs: number, work: (patience: Patience) => Promise<T>): Promise<T> {
    this.#assertMayAsk();
    const leave = await gate.enter(waitMs, () => storeUnavailable(this.id, "too many others wait for it."));
    const patience = this.#patience();
    try {
      this.#assertMayAsk();
      this.#breaker = asking(this.#breaker, systemClock.monotonicMs());
      const result = await patience.for(() => work(patience));
      this.#breaker = closedBreaker;
      return result;
    } catch (error) {
      throw this.#told(error);
    } finally {
      leave();
    }
  }

  async *#read(source: AsyncIterable<Uint8Array>, patience: Patience): AsyncGenerator<Uint8Array> {
    const pieces = source[Symbol.asyncIterator]();
    try {
      for (;;) {
        const next = await patience.for(async () => pieces.next());
        if (next.done === true) return;
        yield next.value;
      }
    } catch (error) {
      throw this.#told(error);
    } finally {
      patience.end();
      void Promise.resolve(pieces.return?.()).catch(() => undefined);
    }
  }

  #patience(): Patience {
    return new Patience(this.#timeoutMs, () =>
      storeUnavailable(this.id, `it gave no sign of life for ${this.#timeoutMs} ms.`),
    );
  }

  #assertMayAsk(): void {
    if (mayAsk(this.#breaker, systemClock.monotonicMs())) return;
    throw storeUnavailable(this.id, "it failed several times in a row and is left alone for a moment.");
  }

  // An answer, also "there is no such thing", shows that the store is there.
  #told(error: unknown): unknown {
    if (error instanceof SourceFailure) return error.cause;
    const told = isSagaboxError(error) ? error : storeUnavailable(this.id, reasonOf(error), error);
    const isDown = told.code === "CLAIM_STORE_UNAVAILABLE";
    this.#breaker = isDown ? failed(this.#breaker, systemClock.monotonicMs()) : closedBreaker;
    return told;
  }
}

/** Says nothing about the store, whatever the store makes of it. */
class SourceFailure extends Error {}

/** While the source is waited for, the store has nothing to do. */
class Source implements AsyncIterable<Uint8Array> {
  readonly #bytes: AsyncIterable<Uint8Array>;
  readonly #patience: Patience;
  failure: SourceFailure | undefined;

  constructor(bytes: AsyncIterable<Uint8Array>, patience: Patience) {
    this.#bytes = bytes;
    this.#patience = patience;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    this.#patience.pause();
    try {
      for await (const piece of this.#bytes) {
        this.#patience.alive();
        yield piece;
        this.#patience.pause();
      }
    } catch (error) {
      this.failure = new SourceFailure("the source failed", { cause: error });
      this.#patience.alive();
      throw error;
    }
    this.#patience.alive();
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return "it failed.";
  const { code } = error as { code?: unknown };
  return `${error.name}${typeof code === "string" ? ` (${code})` : ""}.`;
}
