import { systemClock, type Clock } from "../runtime/index.ts";

export interface KeyCacheOptions {
  readonly ttlMs: number;
  /** How many keys at most. */
  readonly size: number;
  readonly clock?: Clock;
}

export interface DataKey {
  readonly keyId: string;
  readonly subject: string;
  readonly bytes: Uint8Array;
}

/**
 * Data keys in clear, for a short while: how long one stays after it was destroyed elsewhere is how long its person can
 * still be read here. The time counts from before the key was read, and using a key does not prolong it.
 */
export class KeyCache {
  readonly #ttlMs: number;
  readonly #size: number;
  readonly #clock: Clock;
  readonly #keys = new Map<string, { readonly key: DataKey; readonly untilMs: number }>();
  /** Which key new data of a person are sealed with. */
  readonly #current = new Map<string, string>();

  constructor({ ttlMs, size, clock = systemClock }: KeyCacheOptions) {
    this.#ttlMs = ttlMs;
    this.#size = size;
    this.#clock = clock;
  }

  nowMs(): number {
    return this.#clock.monotonicMs();
  }

  get(keyId: string): DataKey | undefined {
    const entry = this.#keys.get(keyId);
    if (entry === undefined) return undefined;
    if (entry.untilMs <= this.nowMs()) {
      this.#delete(keyId);
      return undefined;
    }
    this.#keys.delete(keyId); // last in the map is used last
    this.#keys.set(keyId, entry);
    return entry.key;
  }

  getCurrent(subject: string): DataKey | undefined {
    const keyId = this.#current.get(subject);
    return keyId === undefined ? undefined : this.get(keyId);
  }

  keep(key: DataKey, readAtMs: number): void {
    const untilMs = Math.min(readAtMs + this.#ttlMs, this.#keys.get(key.keyId)?.untilMs ?? Infinity);
    this.#keys.delete(key.keyId);
    this.#keys.set(key.keyId, { key, untilMs });
    for (const [oldest] of this.#keys) {
      if (this.#keys.size <= this.#size) break;
      this.#delete(oldest);
    }
  }

  /** From now on new data of its person are sealed with it. Only for keys that are known to be committed. */
  makeCurrent({ subject, keyId }: DataKey): void {
    if (this.#keys.has(keyId)) this.#current.set(subject, keyId);
  }

  forget(subject: string): void {
    for (const [keyId, { key }] of this.#keys) if (key.subject === subject) this.#delete(keyId);
  }

  clear(): void {
    this.#keys.clear();
    this.#current.clear();
  }

  #delete(keyId: string): void {
    const subject = this.#keys.get(keyId)?.key.subject;
    this.#keys.delete(keyId);
    if (subject !== undefined && this.#current.get(subject) === keyId) this.#current.delete(subject);
  }
}
