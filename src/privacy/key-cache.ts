import { systemClock, type Clock } from "../runtime/index.ts";

export interface KeyCacheOptions {
  readonly ttlMs: number;
  /** The most keys in memory. */
  readonly size: number;
  readonly clock?: Clock;
}

export interface DataKey {
  readonly keyId: string;
  readonly subject: string;
  readonly bytes: Uint8Array;
}

/**
 * Unwrapped data keys in memory. After an erasure in another process, data stays readable here until its key expires. The
 * time to live counts from before the key was read, and use does not extend it.
 */
export class KeyCache {
  readonly #ttlMs: number;
  readonly #size: number;
  readonly #clock: Clock;
  readonly #keys = new Map<string, { readonly key: DataKey; readonly untilMs: number }>();
  /** The id of the key for new data, by subject. */
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
    this.#keys.delete(keyId); // the last key in the map is the one used most recently
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

  /** Uses a key for new data of its subject. Call it only for committed keys. */
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
