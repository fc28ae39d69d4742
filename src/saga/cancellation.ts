/** A cancellation flag with a reason. The AbortSignal is created on first access, because most steps never read it. */
export class Cancellation {
  #controller: AbortController | undefined;
  #reason: Error | undefined;

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#reason !== undefined) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  /** Whether `cancel` was called. */
  get ended(): boolean {
    return this.#reason !== undefined;
  }

  /** Aborts the signal. Only the first reason counts. */
  cancel(reason: Error): void {
    this.#reason ??= reason;
    this.#controller?.abort(this.#reason);
  }
}
