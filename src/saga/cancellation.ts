/** Whether somebody still wants a piece of work. Its signal is made when somebody looks: most steps never do. */
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

  /** Whether nobody does any more. */
  get ended(): boolean {
    return this.#reason !== undefined;
  }

  /** Nobody does any more, for this reason. */
  cancel(reason: Error): void {
    this.#reason ??= reason;
    this.#controller?.abort(this.#reason);
  }
}
