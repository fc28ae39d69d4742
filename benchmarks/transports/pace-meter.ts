/** Messages received per second once it runs: joining a group and the first of them are not counted. */
export class PaceMeter {
  readonly #count: number;
  readonly #skipped: number;
  #seen = 0;
  #beganMs = 0;
  #endedMs = 0;

  constructor(count: number) {
    this.#count = count;
    this.#skipped = Math.floor(count / 5);
  }

  readonly one = (): void => {
    this.#seen += 1;
    if (this.#seen === this.#skipped) this.#beganMs = performance.now();
    if (this.#seen === this.#count) this.#endedMs = performance.now();
  };

  get rate(): number {
    return ((this.#count - this.#skipped) / (this.#endedMs - this.#beganMs)) * 1000;
  }
}
