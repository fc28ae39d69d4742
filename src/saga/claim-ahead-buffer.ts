import { systemClock } from "../runtime/index.ts";
import { atTime, type LoadedInstance } from "./saga-store.ts";

/** How far ahead instances are claimed, in time. */
const AHEAD_MS = 250;
/** How many of them for each place, and in all: each is kept in memory. */
const MAX_PER_PERMIT = 8;
const MAX_CLAIMED_AHEAD = 200;

/** How many more instances than there are places may be on their way. */
export function maxClaimedAhead(places: number): number {
  return Math.min(places * MAX_PER_PERMIT, MAX_CLAIMED_AHEAD);
}

/** Nobody is kept here for longer. */
export const MAX_CLAIM_AHEAD_MS = 500;

interface WaitingInstance {
  readonly instance: LoadedInstance;
  readonly startedHere: boolean;
  readonly sinceMs: number;
  mail: boolean;
}

/** An instance whose turn has come. */
export interface ClaimedInstance {
  readonly instance: LoadedInstance;
  readonly mail: boolean;
  readonly startedHere: boolean;
}

/**
 * Instances that this process has claimed and that wait for a place: to be claimed one by one costs more than many steps
 * do. Only so many come in as have left their places in a moment lately, so that nobody waits here for long while
 * another process might have time. Whoever waits longer all the same is given back.
 */
export class ClaimAheadBuffer {
  readonly #permits: number;
  readonly #waiting = new Map<string, WaitingInstance>();
  readonly #nowMs: () => number;
  #countedFromMs: number;
  #released = 0;
  #pace = 0;

  constructor(places: number, nowMs = () => systemClock.monotonicMs()) {
    this.#permits = places;
    this.#nowMs = nowMs;
    this.#countedFromMs = nowMs();
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** How many more may come in. */
  get room(): number {
    this.#measure();
    return Math.min(this.#pace, maxClaimedAhead(this.#permits)) - this.#waiting.size;
  }

  /** Somebody has left a place. */
  countRelease(): void {
    this.#released += 1;
    this.#measure();
  }

  add({ instance, mail, startedHere }: ClaimedInstance): void {
    this.#waiting.set(instance.id, { instance, mail, startedHere, sinceMs: this.#nowMs() });
  }

  /** Something came for it. False when it is not here. */
  poke(id: string): boolean {
    const known = this.#waiting.get(id);
    if (known !== undefined) known.mail = true;
    return known !== undefined;
  }

  /** Whoever waits longest. */
  next(): ClaimedInstance | undefined {
    for (const [id, { instance, mail, startedHere, sinceMs }] of this.#waiting) {
      this.#waiting.delete(id);
      const nowMs = instance.nowMs + (this.#nowMs() - sinceMs);
      return { instance: atTime(instance, nowMs), mail, startedHere };
    }
    return undefined;
  }

  get ids(): readonly string[] {
    return [...this.#waiting.keys()];
  }

  /** Shows out those who have waited too long, and says who they are. */
  removeExpired(): readonly string[] {
    const latestMs = this.#nowMs() - MAX_CLAIM_AHEAD_MS;
    return this.#removeWhere((sinceMs) => sinceMs <= latestMs);
  }

  removeAll(): readonly string[] {
    return this.#removeWhere(() => true);
  }

  /** Somebody else has it now. */
  remove(id: string): void {
    this.#waiting.delete(id);
  }

  #removeWhere(isMeant: (sinceMs: number) => boolean): readonly string[] {
    const gone: string[] = [];
    for (const [id, { sinceMs }] of this.#waiting) if (isMeant(sinceMs)) gone.push(id);
    for (const id of gone) this.#waiting.delete(id);
    return gone;
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
