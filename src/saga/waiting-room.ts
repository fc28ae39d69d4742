import { systemClock } from "../runtime/index.ts";
import { atTime, type Loaded } from "./saga-store.ts";

/** How far ahead instances are claimed, in time. */
const AHEAD_MS = 250;
/** How many of them for each place, and in all: each is kept in memory. */
const MOST_FOR_A_PLACE = 8;
const MOST = 200;

/** How many more instances than there are places may be on their way. */
export function mostBeside(places: number): number {
  return Math.min(places * MOST_FOR_A_PLACE, MOST);
}

/** Nobody is kept here for longer. */
export const LONGEST_WAIT_MS = 500;

interface Waiting {
  readonly instance: Loaded;
  readonly startedHere: boolean;
  readonly sinceMs: number;
  mail: boolean;
}

/** An instance whose turn has come. */
export interface Called {
  readonly instance: Loaded;
  readonly mail: boolean;
  readonly startedHere: boolean;
}

/**
 * Instances that this process has claimed and that wait for a place: to be claimed one by one costs more than many steps
 * do. Only so many come in as have left their places in a moment lately, so that nobody waits here for long while
 * another process might have time. Whoever waits longer all the same is given back.
 */
export class WaitingRoom {
  readonly #places: number;
  readonly #waiting = new Map<string, Waiting>();
  readonly #nowMs: () => number;
  #countedFromMs: number;
  #left = 0;
  #pace = 0;

  constructor(places: number, nowMs = () => systemClock.monotonicMs()) {
    this.#places = places;
    this.#nowMs = nowMs;
    this.#countedFromMs = nowMs();
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** How many more may come in. */
  get room(): number {
    this.#measure();
    return Math.min(this.#pace, mostBeside(this.#places)) - this.#waiting.size;
  }

  /** Somebody has left a place. */
  placeLeft(): void {
    this.#left += 1;
    this.#measure();
  }

  add({ instance, mail, startedHere }: Called): void {
    this.#waiting.set(instance.id, { instance, mail, startedHere, sinceMs: this.#nowMs() });
  }

  /** Something came for it. False when it is not here. */
  poke(id: string): boolean {
    const known = this.#waiting.get(id);
    if (known !== undefined) known.mail = true;
    return known !== undefined;
  }

  /** Whoever waits longest. */
  next(): Called | undefined {
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
  dismissLate(): readonly string[] {
    const latestMs = this.#nowMs() - LONGEST_WAIT_MS;
    return this.#dismiss((sinceMs) => sinceMs <= latestMs);
  }

  dismissAll(): readonly string[] {
    return this.#dismiss(() => true);
  }

  /** Somebody else has it now. */
  lose(id: string): void {
    this.#waiting.delete(id);
  }

  #dismiss(isMeant: (sinceMs: number) => boolean): readonly string[] {
    const gone: string[] = [];
    for (const [id, { sinceMs }] of this.#waiting) if (isMeant(sinceMs)) gone.push(id);
    for (const id of gone) this.#waiting.delete(id);
    return gone;
  }

  #measure(): void {
    const nowMs = this.#nowMs();
    const sinceMs = nowMs - this.#countedFromMs;
    if (sinceMs < AHEAD_MS) return;
    this.#pace = Math.floor((this.#left * AHEAD_MS) / sinceMs);
    this.#left = 0;
    this.#countedFromMs = nowMs;
  }
}
