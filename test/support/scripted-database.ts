import type {
  Database,
  OwnedTransaction,
  Param,
  Rows,
  Session,
  Statement,
  TransactionOptions,
} from "../../src/storage/index.ts";

type Answer = Promise<Rows<unknown>>;
type Hook = (run: () => Answer, params: readonly Param[]) => Answer;

/** A place where a statement stands still until the test lets it go. */
export interface Gate {
  /** Resolves when the statement has arrived there. */
  readonly reached: Promise<void>;
  open(): void;
}

/**
 * A database that remembers which statements ran, and lets a test stand between them: hold a statement before it
 * reaches the server, hold its answer back, or lose either.
 */
export class ScriptedDatabase implements Database {
  readonly size = 30;
  readonly ran: { readonly name: string; readonly purpose: string }[] = [];
  readonly #inner: Database;
  readonly #hooks = new Map<string, Hook[]>();
  readonly #gates: Gate[] = [];
  #silenced: ReturnType<typeof newGate> | undefined;

  constructor(inner: Database) {
    this.#inner = inner;
  }

  /** The next time a statement of this name runs, the hook runs instead. */
  once(name: string, hook: Hook): void {
    this.#hooks.set(name, [...(this.#hooks.get(name) ?? []), hook]);
  }

  pauseBefore(name: string): Gate {
    const { gate, pass } = this.#newGate();
    this.once(name, async (run) => {
      await pass();
      return run();
    });
    return gate;
  }

  /** The statement has run and committed, but its owner does not know yet. */
  pauseAfter(name: string): Gate {
    const { gate, pass } = this.#newGate();
    this.once(name, async (run) => {
      const answer = await run();
      await pass();
      return answer;
    });
    return gate;
  }

  loseReply(name: string): void {
    this.once(name, async (run) => {
      await run();
      throw new Error("the reply was lost");
    });
  }

  failOnce(name: string, error: Error = new Error("the connection was lost")): void {
    this.once(name, () => Promise.reject(error));
  }

  /** From now on nothing gets through, as if the process had been stopped; `speak` ends it. */
  silence(): void {
    this.#silenced ??= newGate();
  }

  speak(): void {
    this.#silenced?.gate.open();
    this.#silenced = undefined;
  }

  /** Opens every gate that a test left closed, so that its work can end. */
  letGo(): void {
    this.speak();
    for (const gate of this.#gates) gate.open();
  }

  #newGate(): ReturnType<typeof newGate> {
    const made = newGate();
    this.#gates.push(made.gate);
    return made;
  }

  count(name: string): number {
    return this.ran.filter((entry) => entry.name === name).length;
  }

  async run<R>(statement: Statement, params: readonly Param[] = []): Promise<Rows<R>> {
    return this.#through("pool", statement, params, () => this.#inner.run<R>(statement, params));
  }

  async session(purpose: string, settings?: Readonly<Record<string, string>>): Promise<Session> {
    const session = await this.#inner.session(purpose, settings);
    const through = this.#through.bind(this);
    return {
      get broken() {
        return session.broken;
      },
      listen: (channel, listener) => session.listen(channel, listener),
      onBreak: (listener) => session.onBreak(listener),
      release: (destroy) => session.release(destroy),
      run: <R>(statement: Statement, params: readonly Param[] = []) =>
        through(purpose, statement, params, () => session.run<R>(statement, params)),
    };
  }

  async begin(options?: TransactionOptions): Promise<OwnedTransaction> {
    return this.#inner.begin(options);
  }

  async close(): Promise<void> {
    await this.#inner.close();
  }

  async #through<R>(
    purpose: string,
    { name }: Statement,
    params: readonly Param[],
    run: () => Promise<Rows<R>>,
  ): Promise<Rows<R>> {
    await this.#silenced?.pass();
    this.ran.push({ name, purpose });
    const hook = this.#hooks.get(name)?.shift();
    return hook === undefined ? run() : ((await hook(run, params)) as Rows<R>);
  }
}

function newGate(): { gate: Gate; pass: () => Promise<void> } {
  let arrive = (): void => undefined;
  let open = (): void => undefined;
  const reached = new Promise<void>((resolve) => (arrive = resolve));
  const opened = new Promise<void>((resolve) => (open = resolve));
  const pass = async (): Promise<void> => {
    arrive();
    await opened;
  };
  return { gate: { reached, open: () => open() }, pass };
}
