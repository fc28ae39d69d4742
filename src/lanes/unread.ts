/** The lanes that may hold something new, oldest first: a hint names some, a sweep names all. */
export class Unread {
  readonly #lanes = new Set<number>();

  get size(): number {
    return this.#lanes.size;
  }

  add(lanes: Iterable<number>): void {
    for (const lane of lanes) this.#lanes.add(lane);
  }

  delete(lane: number): void {
    this.#lanes.delete(lane);
  }

  /** Read, but not to its end: it comes after the others. */
  putLast(lane: number): void {
    this.#lanes.delete(lane);
    this.#lanes.add(lane);
  }

  list(fit: (lane: number) => boolean): number[] {
    return [...this.#lanes].filter(fit);
  }
}
