/**
 * Which offset of a partition may be committed: everything before it is done. Records are settled in any order, but a
 * commit says "all before this one", so it must never pass a record that is still open. Offsets only grow; numbers may
 * be missing where the log was compacted or holds marks of transactions.
 */
export class OffsetTracker {
  /** Open and done records in the order of their offsets; everything before `#head` has been left behind. */
  #offsets: number[] = [];
  #head = 0;
  readonly #done = new Set<number>();
  #next: number;
  #committed: number;

  /** `start` is the first offset that is not yet done. */
  constructor(start: number) {
    this.#next = start;
    this.#committed = start;
  }

  /** Records that are open, or done behind an open one. */
  get length(): number {
    return this.#offsets.length - this.#head;
  }

  /** The next commit: the first record that is not done, or whatever comes after the last one that was read. */
  get safe(): number {
    return this.#offsets[this.#head] ?? this.#next;
  }

  get committed(): number {
    return this.#committed;
  }

  /** A record was read. */
  add(offset: number): void {
    if (offset < this.#next) throw new Error(`offset ${offset} comes after ${this.#next} was expected`);
    this.#offsets.push(offset);
    this.#next = offset + 1;
  }

  /** Everything before `next` was read, though not all of it is a record. */
  skipTo(next: number): void {
    this.#next = Math.max(this.#next, next);
  }

  complete(offset: number): void {
    if (offset < this.safe) return;
    this.#done.add(offset);
    for (let first = this.#offsets[this.#head]; first !== undefined; first = this.#offsets[this.#head]) {
      if (!this.#done.delete(first)) break;
      this.#head += 1;
    }
    if (this.#head > 1_000 && this.#head * 2 > this.#offsets.length) {
      this.#offsets = this.#offsets.slice(this.#head);
      this.#head = 0;
    }
  }

  /** The broker has confirmed this commit. */
  noteCommit(offset: number): void {
    this.#committed = Math.max(this.#committed, offset);
  }
}
