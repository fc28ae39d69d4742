/** Hands out at most `limit` places; who comes later waits in line. */
export class TransactionPermits {
  #limit: number;
  readonly #waiting: (() => void)[] = [];
  #held = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Known once everything that needs connections has been counted; nobody is turned out. */
  set limit(limit: number) {
    this.#limit = limit;
  }

  async acquire(): Promise<() => void> {
    if (this.#held < this.#limit) this.#held += 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    let held = true;
    return () => {
      if (held) this.#release();
      held = false;
    };
  }

  #release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#held -= 1;
    else next();
  }
}
