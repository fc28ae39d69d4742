/** The lanes that may hold something new, oldest first: a hint names some, a sweep names all. */
export class Unread {
  /** Each with the moment it was last told of. */
  readonly #lanes = new Map<number, number>();
  #moment = 0;

  /** Grows with all that is told. */
  get moment(): number {
    return this.#moment;
  }

  add(lanes: Iterable<number>): void {
    this.#moment += 1;
    for (const lane of lanes) this.#lanes.set(lane, this.#moment);
  }

  delete(lane: number): void {
    this.#lanes.delete(lane);
  }

  /** Read to its end by a read that began at that moment, and need not have seen what was told since. */
  done(lane: number, began: number): void {
    if ((this.#lanes.get(lane) ?? 0) <= began) this.#lanes.delete(lane);
  }

  /** Read, but not to its end: it comes after the others. */
  putLast(lane: number): void {
    this.#lanes.delete(lane);
    this.#lanes.set(lane, this.#moment);
  }

  list(fit: (lane: number) => boolean): number[] {
    return [...this.#lanes.keys()].filter(fit);
  }
}
