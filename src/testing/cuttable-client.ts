import type { PgClient, PgQuery, PgResult } from "../storage/drivers/pg-shape.ts";

/** What a client tells of what it is about to do. */
export interface CutWatch {
  readonly isCut: boolean;
  /** The statement makes transitions of sagas last. It may be sent, or not, or its answer be lost. */
  runTransition(send: () => Promise<PgResult>): Promise<PgResult>;
  onRelease(client: CuttableClient): void;
}

const SAVES = /^sagabox\.saga\.(save|insert|insert_failed):/;

/** A connection that knows which of its statements make a transition of a saga last, and that can be cut. */
export class CuttableClient {
  /** What sagabox uses in place of the client. */
  readonly handed: PgClient;
  readonly #client: PgClient;
  readonly #watch: CutWatch;
  #inTransaction = false;
  #saved = false;
  #gone = false;

  constructor(client: PgClient, watch: CutWatch) {
    this.#client = client;
    this.#watch = watch;
    const own: Partial<PgClient> = {
      query: (query, values) => this.#query(query, values),
      release: (destroy) => this.#release(destroy),
    };
    this.handed = new Proxy(client, {
      get: (target, name) => {
        if (name in own) return own[name as keyof PgClient];
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === "function" ? (value.bind(target) as unknown) : value;
      },
      set: (target, name, value) => Reflect.set(target, name, value, target),
    });
  }

  /** The number of the server's process behind it. */
  get pid(): number | undefined {
    return (this.#client as { readonly processID?: number }).processID;
  }

  /** Ends the connection as the death of the process would: the server hears nothing more, not even a goodbye. */
  cut(): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#client.on("error", () => undefined);
    this.#client.pipeline = false;
    const stream = this.#client.connection?.stream as { destroy?(): void } | undefined;
    stream?.destroy?.();
    this.#client.release(true);
  }

  #release(destroy?: boolean): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#watch.onRelease(this);
    this.#client.release(destroy);
  }

  async #query(query: PgQuery | string, values?: readonly unknown[]): Promise<PgResult> {
    if (this.#watch.isCut) throw connectionLost();
    const send = (): Promise<PgResult> => this.#client.query(query, values);
    const { text, name = "" } = typeof query === "string" ? { text: query } : query;
    if (/^\s*begin\b/i.test(text)) [this.#inTransaction, this.#saved] = [true, false];
    if (/^\s*rollback\s*$/i.test(text)) this.#inTransaction = false;
    if (/^\s*commit\b/i.test(text) && this.#inTransaction) {
      this.#inTransaction = false;
      return this.#saved ? this.#watch.runTransition(send) : send();
    }
    if (!SAVES.test(name)) return send();
    if (!this.#inTransaction) return this.#watch.runTransition(send);
    const answer = await send();
    if (answer.rows.length > 0) this.#saved = true;
    return answer;
  }
}

export function connectionLost(): Error {
  return new Error("Connection terminated unexpectedly");
}
