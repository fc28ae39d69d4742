/** Many may be inside together, or one alone. First come, first served, so that neither kind starves the other. */
export class SoloGate {
  readonly #line: { readonly alone: boolean; readonly enter: () => void }[] = [];
  #inside = 0;
  #alone = false;

  /** Resolves with the way out. */
  enter(): Promise<() => void> {
    return this.#pass(false);
  }

  /** Resolves when everybody else has left; nobody comes in until the way out is taken. */
  enterAlone(): Promise<() => void> {
    return this.#pass(true);
  }

  async #pass(alone: boolean): Promise<() => void> {
    if (this.#line.length > 0 || !this.#admits(alone)) {
      await new Promise<void>((enter) => this.#line.push({ alone, enter }));
    } else this.#admit(alone);
    let inside = true;
    return () => {
      if (inside) this.#leave(alone);
      inside = false;
    };
  }

  #admits(alone: boolean): boolean {
    return !this.#alone && (!alone || this.#inside === 0);
  }

  #admit(alone: boolean): void {
    this.#inside += 1;
    if (alone) this.#alone = true;
  }

  #leave(alone: boolean): void {
    this.#inside -= 1;
    if (alone) this.#alone = false;
    for (let next = this.#line[0]; next !== undefined && this.#admits(next.alone); next = this.#line[0]) {
      this.#line.shift();
      this.#admit(next.alone);
      next.enter();
    }
  }
}
