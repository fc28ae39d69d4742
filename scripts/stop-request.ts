// Ctrl-C reaches every process of the terminal, and npm and the script that starts us pass it on once more.
const SAME_KEY_PRESS_MS = 1_000;

/** Resolves with the first wish to stop; a second one, clearly later, ends the process at once. */
export class StopRequest {
  readonly requested: Promise<void>;
  #firstMs: number | undefined;
  #resolve: () => void = () => undefined;

  constructor(source: NodeJS.Process, out: NodeJS.WriteStream) {
    this.requested = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
      source.on(signal, () => this.#listenTo(source));
    // The reader has closed the pipe, as in `npm start | head`: there is nothing left to show.
    out.on("error", () => this.#resolve());
  }

  #listenTo(source: NodeJS.Process): void {
    const nowMs = performance.now();
    if (this.#firstMs === undefined) {
      this.#firstMs = nowMs;
      this.#resolve();
    } else if (nowMs - this.#firstMs > SAME_KEY_PRESS_MS) {
      source.exit(130);
    }
  }
}
