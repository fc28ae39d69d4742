import type { PgClient, PgPool, PgQuery, PgResult, UsedPool } from "../storage/drivers/pg-shape.ts";

/** A moment in the life of a saga, counted in transitions that the database has made last. */
export interface CrashPoint {
  /** The first is the start of the saga. */
  readonly transition: number;
  /** Before: it was never committed. After: it was, and nobody was told. */
  readonly when: "before" | "after";
}

/** A view of somebody's pool that can lose its connections, all at once and for good, as a process does when it dies. */
export class CuttablePool implements PgPool, CutWatch {
  readonly options: { readonly max?: number };
  /** Resolves when it has been cut. */
  readonly hasBeenCut: Promise<void>;
  readonly #pool: UsedPool & PgPool;
  readonly #cutAt: CrashPoint | undefined;
  readonly #clients = new Set<CuttableClient>();
  readonly #pids: number[] = [];
  #transitions = 0;
  #cut = false;
  #resolveCut: () => void = () => undefined;

  constructor(pool: PgPool, cutAt?: CrashPoint) {
    this.#pool = pool as unknown as UsedPool & PgPool;
    this.#cutAt = cutAt;
    this.options = pool.options ?? {};
    this.hasBeenCut = new Promise((resolve) => (this.#resolveCut = resolve));
  }

  get isCut(): boolean {
    return this.#cut;
  }

  /** How many transitions of sagas went through it. */
  get transitions(): number {
    return this.#transitions;
  }

  /** The server's processes that were working for it when it was cut. */
  get pids(): readonly number[] {
    return this.#pids;
  }

  get totalCount(): number {
    return this.#pool.totalCount;
  }

  async connect(): Promise<PgClient> {
    if (this.#cut) throw connectionLost();
    const client = await this.#pool.connect();
    const cuttable = new CuttableClient(client, this);
    this.#clients.add(cuttable);
    if (!this.isCut) return cuttable.handed;
    this.#cutClient(cuttable);
    throw connectionLost();
  }

  /** The pool belongs to whoever made it, and so do its errors. */
  on(): this {
    return this;
  }

  end(): Promise<void> {
    return Promise.resolve();
  }

  onRelease(client: CuttableClient): void {
    this.#clients.delete(client);
  }

  async runTransition(send: () => Promise<PgResult>): Promise<PgResult> {
    this.#transitions += 1;
    if (this.#transitions !== this.#cutAt?.transition) return send();
    if (this.#cutAt.when === "after") await send();
    this.cut();
    throw connectionLost();
  }

  cut(): void {
    if (this.#cut) return;
    this.#cut = true;
    for (const client of this.#clients) this.#cutClient(client);
    this.#resolveCut();
  }

  #cutClient(client: CuttableClient): void {
    this.#clients.delete(client);
    if (client.pid !== undefined) this.#pids.push(client.pid);
    client.cut();
  }
}

/** What a client tells of what it is about to do. */
interface CutWatch {
  readonly isCut: boolean;
  /** The statement makes transitions of sagas last. It may be sent, or not, or its answer be lost. */
  runTransition(send: () => Promise<PgResult>): Promise<PgResult>;
  onRelease(client: CuttableClient): void;
}

const SAVES = /^sagabox\.saga\.(save|insert|insert_failed):/;

/** A connection that knows which of its statements make a transition of a saga last, and that can be cut. */
class CuttableClient {
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

function connectionLost(): Error {
  return new Error("Connection terminated unexpectedly");
}
