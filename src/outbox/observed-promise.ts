/** A promise that knows whether anybody has asked what becomes of it. */
export class ObservedPromise<T> extends Promise<T> {
  #isObserved = false;

  /** What is made of it is somebody's own. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  get isHeard(): boolean {
    return this.#isObserved;
  }

  // oxlint-disable-next-line unicorn/no-thenable -- it is a promise; this is how it learns that somebody waits for it
  override then<R = T, F = never>(
    kept?: ((value: T) => R | PromiseLike<R>) | null,
    broken?: ((reason: unknown) => F | PromiseLike<F>) | null,
  ): Promise<R | F> {
    this.#isObserved = true;
    return super.then(kept, broken);
  }

  /** Tells how it ended, and counts as nobody. */
  onSettled(kept: () => void, broken: () => void): void {
    void super.then(kept, broken);
  }
}
