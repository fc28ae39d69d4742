import { after, systemClock, yieldToEventLoop, type CancelTimer } from "../../runtime/index.ts";
import type { AssignedPartition, PendingRecord } from "./assigned-partition.ts";

interface DispatcherParts {
  readonly prefetch: number;
  readonly partitions: () => Iterable<AssignedPartition>;
  /** How many are in handlers' hands. */
  readonly open: () => number;
  readonly hand: (partition: AssignedPartition, waiting: PendingRecord) => void;
  /** There was room that nothing at hand could fill. */
  readonly hungry: () => void;
}

/** Gives out what was read, a record of each partition in turn, never more than the prefetch at once. */
export class Dispatcher {
  readonly #parts: DispatcherParts;
  #paused = false;
  #busy = false;
  #turn = 0;
  #timer: CancelTimer | undefined;

  constructor(parts: DispatcherParts) {
    this.#parts = parts;
  }

  pause(): void {
    this.#paused = true;
    this.#timer?.();
  }

  /** Hands out soon, though not inside the caller. */
  dispatchSoon(): void {
    void yieldToEventLoop().then(() => this.dispatchNow());
  }

  dispatchNow(): void {
    // A handler that settles at once comes back in here; the outer round goes on anyway.
    if (this.#busy || this.#paused) return;
    this.#busy = true;
    try {
      this.#dispatchAll();
    } finally {
      this.#busy = false;
    }
  }

  #dispatchAll(): void {
    const nowMs = systemClock.wallMs();
    while (!this.#paused && this.#parts.open() < this.#parts.prefetch) {
      const found = this.#takeNext([...this.#parts.partitions()], nowMs);
      if (found === undefined) {
        this.#parts.hungry();
        return this.#waitForDue(nowMs);
      }
      this.#parts.hand(...found);
    }
  }

  #takeNext(
    partitions: readonly AssignedPartition[],
    nowMs: number,
  ): [AssignedPartition, PendingRecord] | undefined {
    for (let n = 0; n < partitions.length; n++) {
      const turn = (this.#turn + n) % partitions.length;
      const partition = partitions[turn];
      const waiting = partition?.next(nowMs);
      if (partition === undefined || waiting === undefined) continue;
      this.#turn = turn + 1;
      return [partition, waiting];
    }
    return undefined;
  }

  #waitForDue(nowMs: number): void {
    this.#timer?.();
    const dueMs = Math.min(...[...this.#parts.partitions()].map((partition) => partition.nextDueMs()));
    if (dueMs === Infinity) return;
    this.#timer = after(Math.max(1, dueMs - nowMs), () => this.dispatchNow());
  }
}
