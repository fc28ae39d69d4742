import { systemClock } from "../runtime/index.ts";
import { atTime, type LoadedInstance } from "./saga-store.ts";

/** Instances are claimed this many milliseconds of work ahead. */
const AHEAD_MS = 250;
/** Limits per permit and in total, because each claimed instance is held in memory. */
const MAX_PER_PERMIT = 8;
const MAX_CLAIMED_AHEAD = 200;

/** How many instances may be claimed beyond the number of permits. */
export function maxClaimedAhead(permits: number): number {
  return Math.min(permits * MAX_PER_PERMIT, MAX_CLAIMED_AHEAD);
}

/** The longest time an instance stays in the buffer, in milliseconds. */
export const MAX_CLAIM_AHEAD_MS = 500;

interface WaitingInstance {
  readonly instance: LoadedInstance;
  readonly startedHere: boolean;
  readonly sinceMs: number;
  mayHaveInput: boolean;
}

/** A claimed instance that is ready to run. */
export interface ClaimedInstance {
  readonly instance: LoadedInstance;
  /** Whether the task reads pending input first. */
  readonly mayHaveInput: boolean;
  readonly startedHere: boolean;
}

/**
 * Holds instances that this worker has claimed and that wait for a permit. Claiming in batches is cheaper than one by
 * one. The size follows the recent rate of finished instances, so that none waits here while another worker is idle.
 * The runner gives back the claims of instances that wait too long.
 */
export class ClaimAheadBuffer {
  readonly #permits: number;
  readonly #waiting = new Map<string, WaitingInstance>();
  readonly #nowMs: () => number;
  #countedFromMs: number;
  #released = 0;
  #pace = 0;

  constructor(permits: number, nowMs = () => systemClock.monotonicMs()) {
    this.#permits = permits;
    this.#nowMs = nowMs;
    this.#countedFromMs = nowMs();
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** How many more instances may be added; negative when the rate has dropped. */
  get room(): number {
    this.#measure();
    return Math.min(this.#pace, maxClaimedAhead(this.#permits)) - this.#waiting.size;
  }

  /** Counts a finished instance, which sets the rate. */
  countRelease(): void {
    this.#released += 1;
    this.#measure();
  }

  add({ instance, mayHaveInput, startedHere }: ClaimedInstance): void {
    this.#waiting.set(instance.id, { instance, mayHaveInput, startedHere, sinceMs: this.#nowMs() });
  }

  /** Marks that an instance has pending input. Returns false if the instance is not in the buffer. */
  poke(id: string): boolean {
    const known = this.#waiting.get(id);
    if (known !== undefined) known.mayHaveInput = true;
    return known !== undefined;
  }

  /** Removes and returns the instance that has waited longest. */
  next(): ClaimedInstance | undefined {
    for (const [id, { instance, mayHaveInput, startedHere, sinceMs }] of this.#waiting) {
      this.#waiting.delete(id);
      const nowMs = instance.nowMs + (this.#nowMs() - sinceMs);
      return { instance: atTime(instance, nowMs), mayHaveInput, startedHere };
    }
    return undefined;
  }

  get ids(): readonly string[] {
    return [...this.#waiting.keys()];
  }

  /** Removes the instances that have waited too long, and returns their ids. */
  removeExpired(): readonly string[] {
    const latestMs = this.#nowMs() - MAX_CLAIM_AHEAD_MS;
    return this.#removeWhere((sinceMs) => sinceMs <= latestMs);
  }

  removeAll(): readonly string[] {
    return this.#removeWhere(() => true);
  }

  /** Removes an instance whose claim was lost. */
  remove(id: string): void {
    this.#waiting.delete(id);
  }

  #removeWhere(matches: (sinceMs: number) => boolean): readonly string[] {
    const removed: string[] = [];
    for (const [id, { sinceMs }] of this.#waiting) if (matches(sinceMs)) removed.push(id);
    for (const id of removed) this.#waiting.delete(id);
    return removed;
  }

  #measure(): void {
    const nowMs = this.#nowMs();
    const sinceMs = nowMs - this.#countedFromMs;
    if (sinceMs < AHEAD_MS) return;
    this.#pace = Math.floor((this.#released * AHEAD_MS) / sinceMs);
    this.#released = 0;
    this.#countedFromMs = nowMs;
  }
}
