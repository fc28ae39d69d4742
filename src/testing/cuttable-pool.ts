import type { PgClient, PgPool, PgQuery, PgResult, UsedPool } from "../storage/drivers/pg-shape.ts";

/** A point at which a run crashes, counted in committed saga transitions. */
export interface CrashPoint {
  /** The number of the transition. 1 is the start of the saga. */
  readonly transition: number;
  /** "before": the transition is not committed. "after": it is committed, but the worker gets no answer. */
  readonly when: "before" | "after";
}

/** Wraps a pool and can lose all its connections at once and for good, as in the crash of a process. */
export class CuttablePool implements PgPool, CutWatch {
  readonly options: { readonly max?: number };
  /** Resolves when the pool has been cut. */
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

  /** Number of saga transitions that were sent through the pool. */
  get transitions(): number {
    return this.#transitions;
  }

  /** The PostgreSQL process ids of the connections that were cut. */
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

  /** Does nothing: the test that created the pool handles its errors. */
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

/** Receives the saga transitions of a client and decides whether to cut the pool. */
interface CutWatch {
  readonly isCut: boolean;
  /** Called with a statement that commits saga transitions. The pool may send it, not send it, or lose its answer. */
  runTransition(send: () => Promise<PgResult>): Promise<PgResult>;
  onRelease(client: CuttableClient): void;
}

const SAVES = /^sagabox\.saga\.(save|insert|insert_failed):/;

/** A connection that detects statements which commit a saga transition, and that can be cut. */
class CuttableClient {
  /** The proxy that sagabox uses in place of the client. */
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

  /** The id of the PostgreSQL process that serves the connection. */
  get pid(): number | undefined {
    return (this.#client as { readonly processID?: number }).processID;
  }

  /** Closes the connection as a crash would, without sending a termination message. */
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
