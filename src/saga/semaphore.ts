import { systemClock } from "../runtime/index.ts";
import { MAX_CLAIM_AHEAD_MS } from "./claim-ahead-buffer.ts";

interface SemaphoreOptions {
  readonly count: number;
  /** Somebody has left a place that nobody here waits for. */
  readonly onFree: () => void;
  /** Somebody waits for a place, the first one to. */
  readonly onQueue: () => void;
}

/**
 * As many instances as there are places are worked on at once. Whoever only waits for what it did to be written needs
 * none meanwhile, so that others may go on and be written together with it.
 */
export class Semaphore {
  readonly #options: SemaphoreOptions;
  /** Who waits, and since when. */
  readonly #queue = new Map<Permit, number>();
  readonly #nowMs: () => number;
  #taken = 0;

  constructor(parts: SemaphoreOptions, nowMs = () => systemClock.monotonicMs()) {
    this.#options = parts;
    this.#nowMs = nowMs;
  }

  /** Those that neither are taken nor waited for. */
  get free(): number {
    return this.#options.count - this.#taken - this.#queue.size;
  }

  get queued(): number {
    return this.#queue.size;
  }

  acquire(seat: Permit): boolean {
    if (this.#queue.has(seat)) return false;
    if (this.free > 0) {
      this.#taken += 1;
      return true;
    }
    this.#queue.set(seat, this.#nowMs());
    if (this.#queue.size === 1) this.#options.onQueue();
    return false;
  }

  /** Its place is for whoever waits longest. */
  release(): void {
    for (const seat of this.#queue.keys()) {
      this.#queue.delete(seat);
      return seat.grant();
    }
    this.#taken -= 1;
    this.#options.onFree();
  }

  cancel(seat: Permit): void {
    this.#queue.delete(seat);
  }

  /** Tells those who have waited too long that others may have time for them. */
  expireWaiters(): void {
    const latestMs = this.#nowMs() - MAX_CLAIM_AHEAD_MS;
    for (const [seat, sinceMs] of this.#queue) if (sinceMs <= latestMs) seat.expire();
  }
}

/** The place of one instance, or its wish for one. */
export class Permit {
  readonly #semaphore: Semaphore;
  readonly #onChange: () => void;
  #isHeld = false;
  #isExpired = false;

  /** `called` hears when it got the place it waited for, and when it should not wait any longer. */
  constructor(places: Semaphore, called: () => void) {
    this.#semaphore = places;
    this.#onChange = called;
  }

  get taken(): boolean {
    return this.#isHeld;
  }

  /** Whether it has waited for too long. */
  get dismissed(): boolean {
    return this.#isExpired;
  }

  /** Whether there is a place for it now; otherwise it waits for one. */
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
