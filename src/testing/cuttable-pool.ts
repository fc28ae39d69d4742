import type { PgClient, PgPool, PgResult, UsedPool } from "../storage/drivers/pg-shape.ts";
import { connectionLost, CuttableClient, type CutWatch } from "./cuttable-client.ts";

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
