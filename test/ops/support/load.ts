/** Repeats an action until it is stopped, and continues after failures, as a service would. */
export class Load {
  #running = true;
  readonly #ended: Promise<void>;

  constructor(everyMs: number, work: () => Promise<unknown>) {
    this.#ended = this.#loop(everyMs, work);
  }

  async stop(): Promise<void> {
    this.#running = false;
    await this.#ended;
  }

  async #loop(everyMs: number, work: () => Promise<unknown>): Promise<void> {
    while (this.#running) {
      await work().catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, everyMs));
    }
  }
}
