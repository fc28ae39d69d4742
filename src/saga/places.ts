import { systemClock } from "../runtime/index.ts";
import { LONGEST_WAIT_MS } from "./waiting-room.ts";

interface PlacesParts {
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
export class Places {
  readonly #parts: PlacesParts;
  /** Who waits, and since when. */
  readonly #queue = new Map<Seat, number>();
  readonly #nowMs: () => number;
  #taken = 0;

  constructor(parts: PlacesParts, nowMs = () => systemClock.monotonicMs()) {
    this.#parts = parts;
    this.#nowMs = nowMs;
  }

  /** Those that neither are taken nor waited for. */
  get free(): number {
    return this.#parts.count - this.#taken - this.#queue.size;
  }

  get queued(): number {
    return this.#queue.size;
  }

  take(seat: Seat): boolean {
    if (this.#queue.has(seat)) return false;
    if (this.free > 0) {
      this.#taken += 1;
      return true;
    }
    this.#queue.set(seat, this.#nowMs());
    if (this.#queue.size === 1) this.#parts.onQueue();
    return false;
  }

  /** Its place is for whoever waits longest. */
  leave(): void {
    for (const seat of this.#queue.keys()) {
      this.#queue.delete(seat);
      return seat.grant();
    }
    this.#taken -= 1;
    this.#parts.onFree();
  }

  forgo(seat: Seat): void {
    this.#queue.delete(seat);
  }

  /** Tells those who have waited too long that others may have time for them. */
  dismissLate(): void {
    const latestMs = this.#nowMs() - LONGEST_WAIT_MS;
    for (const [seat, sinceMs] of this.#queue) if (sinceMs <= latestMs) seat.dismiss();
  }
}

/** The place of one instance, or its wish for one. */
export class Seat {
  readonly #places: Places;
  readonly #called: () => void;
  #taken = false;
  #dismissed = false;

  /** `called` hears when it got the place it waited for, and when it should not wait any longer. */
  constructor(places: Places, called: () => void) {
    this.#places = places;
    this.#called = called;
  }

  get taken(): boolean {
    return this.#taken;
  }

  /** Whether it has waited for too long. */
  get dismissed(): boolean {
    return this.#dismissed;
  }

  /** Whether there is a place for it now; otherwise it waits for one. */
  take(): boolean {
    this.#taken ||= this.#places.take(this);
    return this.#taken;
  }

  leave(): void {
    this.#dismissed = false;
    if (!this.#taken) return this.#places.forgo(this);
    this.#taken = false;
    this.#places.leave();
  }

  grant(): void {
    this.#taken = true;
    this.#dismissed = false;
    this.#called();
  }

  dismiss(): void {
    this.#dismissed = true;
    this.#called();
  }
}
