import { systemClock } from "../runtime/index.ts";
import { MAX_CLAIM_AHEAD_MS } from "./claim-ahead-buffer.ts";

interface SemaphoreOptions {
  readonly count: number;
  /** Called when a permit was released and no instance is queued for it. */
  readonly onFree: () => void;
  /** Called when the queue becomes non-empty. */
  readonly onQueue: () => void;
}

/**
 * Limits how many saga instances run at once. An instance waiting for its write does not hold a permit, so writes can
 * be batched.
 */
export class Semaphore {
  readonly #options: SemaphoreOptions;
  /** Queued permits in order of arrival, with the time at which each was queued. */
  readonly #queue = new Map<Permit, number>();
  readonly #nowMs: () => number;
  #taken = 0;

  constructor(parts: SemaphoreOptions, nowMs = () => systemClock.monotonicMs()) {
    this.#options = parts;
    this.#nowMs = nowMs;
  }

  /** Permits that are neither held nor reserved for the queue. */
  get free(): number {
    return this.#options.count - this.#taken - this.#queue.size;
  }

  get queued(): number {
    return this.#queue.size;
  }

  /** Takes a permit, or queues for one and returns false. */
  acquire(permit: Permit): boolean {
    if (this.#queue.has(permit)) return false;
    if (this.free > 0) {
      this.#taken += 1;
      return true;
    }
    this.#queue.set(permit, this.#nowMs());
    if (this.#queue.size === 1) this.#options.onQueue();
    return false;
  }

  /** Passes the permit to the first in the queue. */
  release(): void {
    for (const permit of this.#queue.keys()) {
      this.#queue.delete(permit);
      return permit.grant();
    }
    this.#taken -= 1;
    this.#options.onFree();
  }

  cancel(permit: Permit): void {
    this.#queue.delete(permit);
  }

  /** Expires queued permits that have waited too long, so that another worker can take the instance. */
  expireWaiters(): void {
    const latestMs = this.#nowMs() - MAX_CLAIM_AHEAD_MS;
    for (const [permit, sinceMs] of this.#queue) if (sinceMs <= latestMs) permit.expire();
  }
}

/** The permit of one instance: held, queued for, or neither. */
export class Permit {
  readonly #semaphore: Semaphore;
  readonly #onChange: () => void;
  #isHeld = false;
  #isExpired = false;

  /** `onChange` is called when a queued permit is granted, and when it has expired. */
  constructor(semaphore: Semaphore, onChange: () => void) {
    this.#semaphore = semaphore;
    this.#onChange = onChange;
  }

  get taken(): boolean {
    return this.#isHeld;
  }

  /** Whether it was queued for too long. */
  get dismissed(): boolean {
    return this.#isExpired;
  }

  /** Returns whether the permit is held; if not, queues for it. */
  acquire(): boolean {
    this.#isHeld ||= this.#semaphore.acquire(this);
    return this.#isHeld;
  }

  release(): void {
    this.#isExpired = false;
    if (!this.#isHeld) return this.#semaphore.cancel(this);
    this.#isHeld = false;
    this.#semaphore.release();
  }

  grant(): void {
    this.#isHeld = true;
    this.#isExpired = false;
    this.#onChange();
  }

  expire(): void {
    this.#isExpired = true;
    this.#onChange();
  }
}
