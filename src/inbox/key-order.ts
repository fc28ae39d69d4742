/**
 * What waits to run, key by key: items of different keys are free to run together, items of one key run one after
 * the other in the order they came. Taking an item locks its key; what comes later of that key waits behind it.
 */
export class KeyOrder<T extends object> {
  readonly #getKey: (item: T) => string | null;
  readonly #behind = new Map<string, T[]>();
  #ready: T[] = [];

  constructor(keyOf: (item: T) => string | null) {
    this.#getKey = keyOf;
  }

  /** How many could be taken now. */
  get ready(): number {
    return this.#ready.length;
  }

  push(item: T): void {
    const key = this.#getKey(item);
    const line = key === null ? undefined : this.#behind.get(key);
    if (line !== undefined) line.push(item);
    else {
      this.#ready.push(item);
      if (key !== null) this.#behind.set(key, []);
    }
  }

  /** The item that would be taken first. */
  get first(): T | undefined {
    return this.#ready[0];
  }

  /** The first item that is free, and others that `belong` with it, successors of the same key included. */
  take(mostOf: (first: T) => number, belong: (first: T, other: T) => boolean): T[] {
    const first = this.#ready.shift();
    if (first === undefined) return [];
    const most = mostOf(first);
    const taken = [first];
    this.#follow(first, first, taken, most, belong);
    if (most > 1) {
      this.#ready = this.#ready.filter((other) => {
        if (taken.length >= most || !belong(first, other)) return true;
        taken.push(other);
        this.#follow(first, other, taken, most, belong);
        return false;
      });
    }
    return taken;
  }

  /** The taken items are done: the next of each of their keys is free. Those of `again` are, before anything else. */
  finish(done: readonly T[], again: readonly T[] = []): void {
    if (again.length > 0) this.#putBack(again);
    const open = this.#listKeys(again);
    for (const key of this.#listKeys(done)) {
      if (open.has(key)) continue;
      const next = this.#behind.get(key)?.shift();
      if (next === undefined) this.#behind.delete(key);
      else this.#ready.push(next);
    }
  }

  /** Removes and returns what waits behind a taken item. */
  withdraw(item: T): T[] {
    const key = this.#getKey(item);
    return key === null ? [] : (this.#behind.get(key)?.splice(0) ?? []);
  }

  /** Removes and returns everything that was not taken. */
  drain(): T[] {
    const free = this.#ready.splice(0);
    const behind = [...this.#behind.values()].flatMap((line) => line.splice(0));
    this.finish(free);
    return [...free, ...behind];
  }

  #putBack(items: readonly T[]): void {
    const heads: T[] = [];
    const later: T[] = [];
    const seen = new Set<string | null>();
    for (const item of items) {
      const key = this.#getKey(item);
      (key !== null && seen.has(key) ? later : heads).push(item);
      seen.add(key);
    }
    this.#ready.unshift(...heads);
    for (const item of later.toReversed()) this.#behind.get(this.#getKey(item) ?? "")?.unshift(item);
  }

  #follow(first: T, item: T, taken: T[], most: number, belong: (first: T, other: T) => boolean): void {
    const key = this.#getKey(item);
    const line = key === null ? undefined : this.#behind.get(key);
    while (line !== undefined && taken.length < most && line[0] !== undefined && belong(first, line[0])) {
      taken.push(line[0]);
      line.shift();
    }
  }

  #listKeys(items: readonly T[]): Set<string> {
    return new Set(items.map(this.#getKey).filter((key) => key !== null));
  }
}
