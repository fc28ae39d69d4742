import { SagaboxError } from "../errors/index.ts";
import type { WakeUp } from "../lanes/index.ts";
import type { AnyContract } from "../message/index.ts";
import { systemClock } from "../runtime/index.ts";
import type { AfterCommitStatement, OwnedTransaction, Rows } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { OptimisticSender } from "./optimistic-sender.ts";
import type { Compose, Outgoing, PublishOptions } from "./outgoing.ts";
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
  /** Something was committed for later: whoever moves what is due may have to look earlier. */
  readonly onScheduled: () => void;
}

export interface Published {
  readonly id: string;
  /** False when the id was used before, or an overflow policy dropped the message. */
  readonly written: boolean;
}

/**
 * What is published inside a transaction that we own. Messages gather here and travel in one insert together with the
 * COMMIT, already leased to this process where they may be sent at once. Anything that cannot wait for the end (an id
 * of the caller's own, a strict order, a schedule, a savepoint about to be made, a connection on which statements can
 * pass us by) is written straight away, and so is a full batch, which bounds what a large transaction holds in memory.
 */
export class TransactionScope {
  readonly #tx: OwnedTransaction;
  readonly #parts: ScopeParts;
  readonly #gathered = new WriteBatch();
  /** Lanes with something for the relays. */
  readonly #touched = new Set<number>();
  readonly #commitListeners: (() => void)[] = [];
  readonly #inFlight = new Set<Promise<unknown>>();
  /** Whoever asked for it may have been told, or not. */
  readonly #failures = new Set<ObservedPromise<unknown>>();
  /** What was written straight away so far. */
  #written: Promise<unknown> = Promise.resolve();
  #travelling = 0;
  #scheduled = false;
  #hintSent = false;
  #hasSavepoints = false;
  #leasing: { readonly outgoing: readonly Outgoing[]; readonly writtenAtMs: number } | undefined;

  constructor(tx: OwnedTransaction, parts: ScopeParts) {
    this.#tx = tx;
    this.#parts = parts;
    // Messages gather in memory, but a savepoint that is rolled back must take its messages with it.
    tx.beforeSavepoint = () => {
      this.#hasSavepoints = true;
      return this.flush();
    };
  }

  /** What is written from now on may be rolled back although the transaction commits. */
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

  /** Work that is part of this transaction from its first moment, awaited or not. */
  during<T>(work: () => T | Promise<T>): Promise<T> {
    try {
      const working = work();
      // Each wait for what is there already has its price, and this is every message.
      if (!(working instanceof Promise)) return Promise.resolve(working);
      return this.#follow(new ObservedPromise<T>((resolve) => resolve(working)));
    } catch (error) {
      return this.#follow(new ObservedPromise<T>((_, reject) => reject(error)));
    }
  }

  /** Something is to be waited for, or to be told of, before the COMMIT. */
  get isUnderWay(): boolean {
    return this.#inFlight.size + this.#failures.size > 0;
  }

  /**
   * Before the COMMIT: what was begun and never awaited is waited for here, and what of it fails, fails the transaction,
   * and so does what has failed before without anybody to hear of it.
   */
  async waitForPending(): Promise<void> {
    while (this.#inFlight.size > 0) await Promise.all(this.#inFlight);
    for (const failed of this.#failures) if (!failed.isHeard) await failed;
  }

  async add(outgoing: Outgoing): Promise<Published> {
    return this.#add(outgoing);
  }

  /** Adds many messages at once: those that must be written straight away share statements. */
  async addAll(outgoing: readonly Outgoing[]): Promise<Published[]> {
    if (outgoing.every(canLease)) return this.#addEach(outgoing);
    const admitted = await this.#parts.admit(outgoing);
    if (!this.#tx.open) throw tooLate();
    const [, written] = await Promise.all([this.flush(), this.#write(admitted)]);
    return toPublished(outgoing, admitted, written);
  }

  /** Writes what has gathered now, in the present savepoint. It is left to the relay: it may still be rolled back. */
  async flush(): Promise<void> {
    await this.#write(this.#gathered.take());
  }

  /** Called once the server has answered COMMIT, never otherwise. */
  onCommit(told: () => void): void {
    this.#commitListeners.push(told);
  }

  /** The statements that travel with the COMMIT. */
  lastStatements(): PreparedWrite[] {
    const outgoing = this.#gathered.take();
    if (outgoing.length === 0) return [];
    this.#travelling = outgoing.length;
    const { writer, sender } = this.#parts;
    if (!sender.accepts(outgoing)) {
      for (const { lane } of outgoing) this.#touched.add(lane);
      return [writer.prepare(outgoing)];
    }
    this.#leasing = { outgoing, writtenAtMs: systemClock.monotonicMs() };
    return [writer.prepareLeased(outgoing, sender.leaseMs)];
  }

  /**
   * Asked after `last()`: the hint for the relays that may leave with the COMMIT. It saves them a trip of waiting. What is
   * leased to this process is known only when it is written.
   */
  afterword(): AfterCommitStatement | undefined {
    if (this.#leasing !== undefined) return undefined;
    const hint = this.#parts.wakeUp.hintForCommit(this.#touched);
    this.#hintSent = hint !== undefined;
    return hint;
  }

  /** The server answered COMMIT; `answers` are those to `last()`. */
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
    if (this.#travelling > 0) observer.emit("outbox.written", { count: this.#travelling, optimistic });
    wakeUp.notifyNow(this.#touched, this.#hintSent);
    if (this.#scheduled) this.#parts.onScheduled();
    for (const told of this.#commitListeners.splice(0)) told();
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

  // A write may take several statements: what is asked for meanwhile comes behind it, or a key would lose its order.
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

/** Of several that were asked for under one id, the first that was admitted is the one that was written. */
export function toPublished(
  asked: readonly Outgoing[],
  admitted: readonly Outgoing[],
  written: ReadonlySet<string>,
): Published[] {
  const [kept, left] = [new Set(admitted), new Set(written)];
  return asked.map((one) => {
    const { id } = one.message;
    return { id, written: kept.has(one) && left.delete(id) };
  });
}

// Gathered after the COMMIT was sent, it would vanish without a word.
function tooLate(): SagaboxError {
  return new SagaboxError(
    "TRANSACTION_CLOSED",
    "This transaction has ended, so the message was not published. Await every publish before the function returns.",
  );
}

/** A promise that knows whether anybody has asked what becomes of it. */
export class ObservedPromise<T> extends Promise<T> {
  #isObserved = false;

  /** What is made of it is somebody's own. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  get isHeard(): boolean {
    return this.#isObserved;
  }

  // oxlint-disable-next-line unicorn/no-thenable -- it is a promise; this is how it learns that somebody waits for it
  override then<R = T, F = never>(
    kept?: ((value: T) => R | PromiseLike<R>) | null,
    broken?: ((reason: unknown) => F | PromiseLike<F>) | null,
  ): Promise<R | F> {
    this.#isObserved = true;
    return super.then(kept, broken);
  }

  /** Tells how it ended, and counts as nobody. */
  onSettled(kept: () => void, broken: () => void): void {
    void super.then(kept, broken);
  }
}
