import { SagaboxError } from "../errors/index.ts";
import type { WakeUp } from "../lanes/index.ts";
import type { AnyContract, Published, PublishOptions } from "../message/index.ts";
import { systemClock } from "../runtime/index.ts";
import type { AfterCommitStatement, OwnedTransaction, Rows } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { OptimisticSender } from "./optimistic-sender.ts";
import type { Compose, Outgoing } from "./outgoing.ts";
import {
  canLease,
  leasedMessages,
  type OutboxWriter,
  type PreparedWrite,
  WriteBatch,
  type WrittenRow,
} from "./writer.ts";

export interface ScopeParts {
  readonly compose: Compose;
  readonly admit: (outgoing: readonly Outgoing[]) => readonly Outgoing[] | Promise<readonly Outgoing[]>;
  readonly writer: OutboxWriter;
  readonly sender: OptimisticSender;
  readonly wakeUp: WakeUp;
  readonly observer: Observer;
  /** Called after a commit with scheduled messages, so that the schedule mover can wake earlier. */
  readonly onScheduled: () => void;
}

/**
 * Messages published in a transaction that we own. They are gathered and sent in one INSERT together with the
 * COMMIT, already leased to this process if it may send them. A message is written immediately if it cannot
 * wait for the end: it has an id of the caller's own, a strict order or a schedule, a savepoint follows, or
 * the connection runs statements that bypass this class. A full batch is written too, which bounds the memory
 * of a large transaction.
 */
export class TransactionScope {
  readonly #tx: OwnedTransaction;
  readonly #parts: ScopeParts;
  readonly #gathered = new WriteBatch();
  /** Lanes with rows for the relays. */
  readonly #touched = new Set<number>();
  readonly #commitListeners: (() => void)[] = [];
  readonly #inFlight = new Set<Promise<unknown>>();
  /** Failed work whose error the caller may not have observed. */
  readonly #failures = new Set<ObservedPromise<unknown>>();
  /** Resolves when all writes so far are done. */
  #written: Promise<unknown> = Promise.resolve();
  #withCommit = 0;
  #scheduled = false;
  #hintSent = false;
  #hasSavepoints = false;
  #leasing: { readonly outgoing: readonly Outgoing[]; readonly writtenAtMs: number } | undefined;

  constructor(tx: OwnedTransaction, parts: ScopeParts) {
    this.#tx = tx;
    this.#parts = parts;
    // Gathered messages are written before a savepoint, because rolling it back must keep them.
    tx.beforeSavepoint = () => {
      this.#hasSavepoints = true;
      return this.flush();
    };
  }

  /** True if later writes may be rolled back although the transaction commits. */
  get hasSavepoints(): boolean {
    return this.#hasSavepoints;
  }

  publish(contract: AnyContract, data: unknown, options?: PublishOptions): Promise<Published> {
    return this.during(() => {
      const composing = this.#parts.compose(contract, data, options, this.#tx);
      if (!(composing instanceof Promise)) return this.#add(composing);
      return composing.then((outgoing) => this.#add(outgoing));
    });
  }

  /** Runs work as part of this transaction; the COMMIT waits for it even if the caller does not await it. */
  during<T>(work: () => T | Promise<T>): Promise<T> {
    try {
      const working = work();
      // Synchronous results are not tracked, because this runs for every message.
      if (!(working instanceof Promise)) return Promise.resolve(working);
      return this.#follow(new ObservedPromise<T>((resolve) => resolve(working)));
    } catch (error) {
      return this.#follow(new ObservedPromise<T>((_, reject) => reject(error)));
    }
  }

  /** True if work is in flight or has failed, so that the COMMIT must call `waitForPending`. */
  get hasPending(): boolean {
    return this.#inFlight.size + this.#failures.size > 0;
  }

  /**
   * Called before the COMMIT. Waits for work that the caller did not await. Its failure fails the
   * transaction, and so does an earlier failure that the caller did not observe.
   */
  async waitForPending(): Promise<void> {
    while (this.#inFlight.size > 0) await Promise.all(this.#inFlight);
    for (const failed of this.#failures) if (!failed.isObserved) await failed;
  }

  async add(outgoing: Outgoing): Promise<Published> {
    return this.#add(outgoing);
  }

  /** Adds many messages: those that must be written immediately share statements. */
  async addAll(outgoing: readonly Outgoing[]): Promise<Published[]> {
    if (outgoing.every(canLease)) return this.#addEach(outgoing);
    const admitted = await this.#parts.admit(outgoing);
    if (!this.#tx.open) throw tooLate();
    const [, written] = await Promise.all([this.flush(), this.#write(admitted)]);
    return toPublished(outgoing, admitted, written);
  }

  /**
   * Writes the gathered messages now, in the current savepoint. They are left to the relay, because they may
   * still be rolled back.
   */
  async flush(): Promise<void> {
    await this.#write(this.#gathered.take());
  }

  /** Calls the listener after the server has confirmed the COMMIT, and only then. */
  onCommit(listener: () => void): void {
    this.#commitListeners.push(listener);
  }

  /** Returns the statements that are sent with the COMMIT. */
  lastStatements(): PreparedWrite[] {
    const outgoing = this.#gathered.take();
    if (outgoing.length === 0) return [];
    this.#withCommit = outgoing.length;
    const { writer, sender } = this.#parts;
    if (!sender.accepts(outgoing)) {
      for (const { lane } of outgoing) this.#touched.add(lane);
      return [writer.prepare(outgoing)];
    }
    this.#leasing = { outgoing, writtenAtMs: systemClock.monotonicMs() };
    return [writer.prepareLeased(outgoing, sender.leaseMs)];
  }

  /**
   * Called after `lastStatements()`: returns the hint for the relays that is sent with the COMMIT, which
   * saves them a round trip. Undefined if messages are leased: which lanes need a relay is known only after
   * the write.
   */
  afterword(): AfterCommitStatement | undefined {
    if (this.#leasing !== undefined) return undefined;
    const hint = this.#parts.wakeUp.hintForCommit(this.#touched);
    this.#hintSent = hint !== undefined;
    return hint;
  }

  /** Called after the server has confirmed the COMMIT, with the results of `lastStatements()`. */
  handleCommit(answers: readonly Rows<unknown>[]): void {
    const { sender, wakeUp, observer } = this.#parts;
    let optimistic = 0;
    if (this.#leasing !== undefined) {
      const rows = (answers[0]?.rows ?? []) as WrittenRow[];
      const leased = leasedMessages(this.#leasing.outgoing, rows);
      optimistic = leased.length;
      sender.send(leased, this.#leasing.writtenAtMs);
      for (const row of rows) if (!row.leased) this.#touched.add(row.lane);
    }
    if (this.#withCommit > 0) observer.emit("outbox.written", { count: this.#withCommit, optimistic });
    wakeUp.notifyNow(this.#touched, this.#hintSent);
    if (this.#scheduled) this.#parts.onScheduled();
    for (const listener of this.#commitListeners.splice(0)) listener();
  }

  #follow<T>(working: ObservedPromise<T>): Promise<T> {
    const remove = (): void => void this.#inFlight.delete(working);
    this.#inFlight.add(working);
    working.onSettled(remove, () => {
      remove();
      this.#failures.add(working);
    });
    return working;
  }

  #add(outgoing: Outgoing): Published | Promise<Published> {
    const admitting = this.#parts.admit([outgoing]);
    if (!(admitting instanceof Promise)) return this.#gather(outgoing, admitting.length > 0);
    return admitting.then((admitted) => this.#gather(outgoing, admitted.length > 0));
  }

  #gather(outgoing: Outgoing, admitted: boolean): Published | Promise<Published> {
    const { id } = outgoing.message;
    if (!this.#tx.open) throw tooLate();
    if (!admitted) return { id, written: false };
    if (!canLease(outgoing) || !this.#tx.seesEverything) return this.#writeNow(outgoing);
    this.#gathered.add(outgoing);
    if (this.#gathered.isFull) return this.flush().then(() => ({ id, written: true }));
    return { id, written: true };
  }

  async #addEach(outgoing: readonly Outgoing[]): Promise<Published[]> {
    const published: Published[] = [];
    for (const one of outgoing) published.push(await this.#add(one));
    return published;
  }

  async #writeNow(outgoing: Outgoing): Promise<Published> {
    const { id } = outgoing.message;
    const [, written] = await Promise.all([this.flush(), this.#write([outgoing])]);
    return { id, written: written.has(id) };
  }

  // A write may take several statements. Later writes wait for it, or a key would lose its order.
  #write(outgoing: readonly Outgoing[]): Promise<ReadonlySet<string>> {
    for (const { lane, schedule } of outgoing) {
      if (schedule === null) this.#touched.add(lane);
      else this.#scheduled = true;
    }
    const { writer } = this.#parts;
    const nothing = new Set<string>();
    const writing = this.#written.then(() =>
      outgoing.length === 0 ? nothing : writer.write(this.#tx, outgoing),
    );
    this.#written = writing.catch(() => undefined);
    return writing;
  }
}

/**
 * Matches requests with results. If several messages share an id, the first admitted one counts as written.
 */
export function toPublished(
  outgoing: readonly Outgoing[],
  admitted: readonly Outgoing[],
  written: ReadonlySet<string>,
): Published[] {
  const [kept, left] = [new Set(admitted), new Set(written)];
  return outgoing.map((one) => {
    const { id } = one.message;
    return { id, written: kept.has(one) && left.delete(id) };
  });
}

// A message gathered after the COMMIT was sent would be lost silently.
function tooLate(): SagaboxError {
  return new SagaboxError(
    "TRANSACTION_CLOSED",
    "This transaction has ended, so the message was not published. Await every publish before the function returns.",
  );
}

/** A promise that records whether a caller has awaited it. */
export class ObservedPromise<T> extends Promise<T> {
  #isObserved = false;

  /** Derived promises are plain Promises. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  get isObserved(): boolean {
    return this.#isObserved;
  }

  // oxlint-disable-next-line unicorn/no-thenable -- overriding then() shows whether a caller awaits the promise
  override then<R = T, F = never>(
    onFulfilled?: ((value: T) => R | PromiseLike<R>) | null,
    onRejected?: ((reason: unknown) => F | PromiseLike<F>) | null,
  ): Promise<R | F> {
    this.#isObserved = true;
    return super.then(onFulfilled, onRejected);
  }

  /** Calls back when the promise settles, without marking it as observed. */
  onSettled(onFulfilled: () => void, onRejected: () => void): void {
    void super.then(onFulfilled, onRejected);
  }
}
