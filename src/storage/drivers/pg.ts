import { SagaboxError } from "../../errors/index.ts";
import { after, random, sleep, type CancelTimer } from "../../runtime/index.ts";
import type { Database, Notification, OwnedTransaction, Param, Rows, Session } from "../database.ts";
import type { PoolUsage, TransactionOptions } from "../database.ts";
import { connectFailure, sessionSurvives, SQLSTATE, sqlState } from "../postgres-errors.ts";
import type { Statement } from "../statement.ts";
import { ask } from "./ask.ts";
import { checkIsolation } from "./begin-text.ts";
import { PgTransaction } from "./pg-transaction.ts";
import { isPgPool, type PgClient, type PgPool, type PgResult, type UsedPool } from "./pg-shape.ts";
import { isPgTooOld, pgTooOld } from "./pg-version.ts";
import { setConfig } from "./statements.ts";

const ACQUIRE_DEADLINE_MS = 10_000;
/** Of a statement by itself that lost against another and changed nothing, as under a role that is stricter by default. */
const MOST_ATTEMPTS = 10;

export interface PgDatabaseOptions {
  readonly pool?: PgPool;
  readonly url?: string;
  readonly maxConnections?: number;
}

/** PostgreSQL through the `pg` package: the user's own pool, or one of ours made from a URL. */
export class PgDatabase implements Database {
  readonly #options: PgDatabaseOptions;
  #pool: Promise<UsedPool> | undefined;
  #answered = false;
  #closed = false;
  #used: UsedPool | undefined;

  constructor(options: PgDatabaseOptions) {
    this.#options = options;
    if (options.pool === undefined) return;
    const pool = options.pool as unknown as UsedPool;
    guard(pool);
    this.#pool = Promise.resolve(pool);
    this.#used = pool;
  }

  get size(): number {
    const { pool, maxConnections } = this.#options;
    return pool === undefined ? (maxConnections ?? 30) : (pool.options?.max ?? 10);
  }

  usage(): PoolUsage | undefined {
    const {
      totalCount: total,
      idleCount: idle = 0,
      waitingCount: waiting = 0,
    } = this.#used ?? { totalCount: 0 };
    return { total, idle, waiting };
  }

  async run<R>(statement: Statement, params: readonly Param[] = []): Promise<Rows<R>> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await runOn<R>(await this.#acquire(), statement, params);
      } catch (error) {
        if (attempt === MOST_ATTEMPTS || sqlState(error) !== SQLSTATE.serializationFailure) throw error;
        await sleep(random() * 2 ** attempt);
      }
    }
  }

  tell(statement: Statement, params: readonly Param[]): Promise<unknown> {
    const pool = this.#used;
    if (pool === undefined || (pool.idleCount ?? 0) === 0) return this.run(statement, params);
    return new Promise((resolve, reject) => {
      const send = (client: PgClient): void => void runOn(client, statement, params).then(resolve, reject);
      this.#connect(pool, send, reject, { unref: true });
    });
  }

  async session(purpose: string, settings: Readonly<Record<string, string>> = {}): Promise<Session> {
    const session = new PgSession(await this.#acquire());
    try {
      await session.configure({ application_name: `sagabox ${purpose}`, ...SETTLED, ...settings });
      return session;
    } catch (error) {
      session.release();
      throw error;
    }
  }

  async begin(options: TransactionOptions = {}): Promise<OwnedTransaction> {
    checkIsolation(options.isolation);
    const client = await this.#acquire();
    if (!isPgTooOld(client)) return new PgTransaction(client, options);
    client.release();
    throw pgTooOld();
  }

  /** A pool of the user's own stays open, and whoever still needs a connection of it gets one. */
  async close(): Promise<void> {
    if (this.#options.pool !== undefined) return;
    this.#closed = true;
    const pool = await this.#pool;
    this.#pool = undefined;
    await pool?.end();
  }

  #acquire(): Promise<PgClient> {
    if (this.#closed) return Promise.reject(stopped());
    this.#pool ??= this.#open();
    const from = (pool: UsedPool): Promise<PgClient> =>
      new Promise((resolve, reject) => this.#connect(pool, resolve, reject));
    return this.#used === undefined ? this.#pool.then(from) : from(this.#used);
  }

  /** With a promise whoever waits for the same turn of the event loop would go first; and each has its price. */
  #connect(
    pool: UsedPool,
    take: (client: PgClient) => void,
    fail: (error: unknown) => void,
    timer: { readonly unref?: boolean } = {},
  ): void {
    let [over, late] = [false, false];
    const tooLate = (): void => {
      late = true;
      fail(connectFailure(this.#noneFree()));
    };
    let giveUp: CancelTimer | undefined;
    const handOver = (error?: unknown, client?: PgClient): void => {
      if (over || (client === undefined && error === undefined)) return; // a pool may say it twice
      over = true;
      giveUp?.();
      if (client === undefined) fail(connectFailure(error));
      else if (late) client.release();
      else {
        this.#answered = true;
        take(client);
      }
    };
    pool.connect(handOver)?.then((client) => handOver(undefined, client), handOver);
    // A pool that has one at hand gives it away in the next tick, before this one: no need to watch the time.
    process.nextTick(() => {
      if (!over) giveUp = after(ACQUIRE_DEADLINE_MS, tooLate, timer);
    });
  }

  #noneFree(): unknown {
    if (!this.#answered) return connectFailure(new Error(`no answer within ${ACQUIRE_DEADLINE_MS} ms`));
    return new SagaboxError(
      "STORAGE_UNAVAILABLE",
      `No database connection was free within ${ACQUIRE_DEADLINE_MS} ms. ` +
        "Raise the pool's `max`, lower the concurrency, or look for transactions that never end.",
    );
  }

  async #open(): Promise<UsedPool> {
    const { default: pg } = await import("pg");
    const pool = new pg.Pool({
      connectionString: this.#options.url,
      max: this.size,
      connectionTimeoutMillis: ACQUIRE_DEADLINE_MS,
      keepAlive: true,
    });
    this.#used = pool as unknown as UsedPool;
    guard(this.#used);
    return this.#used;
  }
}

function stopped(): SagaboxError {
  return new SagaboxError(
    "BUS_STOPPED",
    "The connections of this bus were closed when it was stopped. Make a new one with createBus().",
  );
}

async function runOn<R>(client: PgClient, statement: Statement, params: readonly Param[]): Promise<Rows<R>> {
  const ignore = (): void => undefined;
  client.on("error", ignore);
  let broken = true;
  try {
    const result = await ask(client, prepared(statement, params));
    broken = false;
    return { rows: result.rows as R[], rowCount: result.rowCount ?? 0, command: result.command };
  } catch (error) {
    broken = !sessionSurvives(error);
    throw error;
  } finally {
    client.removeListener("error", ignore);
    client.release(broken);
  }
}

// Without a listener Node would end the process: over an idle connection that broke, which the pool replaces by itself, and
// over one that breaks in the moment between being handed out and being listened to. Once for each pool, which may outlive many
// buses: what is already connected is listened to by whoever came first.
const guarded = new WeakSet<UsedPool>();

function guard(pool: UsedPool): void {
  if (guarded.has(pool)) return;
  guarded.add(pool);
  pool.on("error", () => undefined);
  pool.on("connect", (client) => client.on("error", () => undefined));
}

/** Our statements lock what they decide about and look again; a role whose default is stricter would make them fail. */
const SETTLED = { default_transaction_isolation: "read committed" };

class PgSession implements Session {
  readonly #client: PgClient;
  readonly #told: (() => void)[] = [];
  readonly #pipelined: boolean;
  #last: Promise<unknown> = Promise.resolve();
  #open = 0;
  #broken = false;
  #released = false;

  constructor(client: PgClient) {
    this.#client = client;
    this.#pipelined = client.pipeline !== undefined;
    if (this.#pipelined) client.pipeline = true; // what is asked meanwhile leaves at once, and the server goes on with it
    client.on("error", () => this.#break());
    client.on("end", () => this.#break());
  }

  get broken(): boolean {
    return this.#broken;
  }

  async configure(settings: Readonly<Record<string, string>>): Promise<void> {
    for (const [name, value] of Object.entries(settings)) await this.run(setConfig, [name, value]);
  }

  async run<R>(statement: Statement, params: readonly Param[] = []): Promise<Rows<R>> {
    const send = (): Promise<PgResult> => ask(this.#client, prepared(statement, params));
    // A driver that does not pipeline no longer wants to queue either: there one after the other.
    const sent = this.#pipelined || this.#open === 0 ? send() : this.#last.then(send);
    this.#open += 1;
    this.#last = sent.catch(() => undefined);
    try {
      const result = await sent;
      return { rows: result.rows as R[], rowCount: result.rowCount ?? 0, command: result.command };
    } catch (error) {
      if (!sessionSurvives(error)) this.#break();
      throw error;
    } finally {
      this.#open -= 1;
    }
  }

  async listen(channel: string, hear: (notification: Notification) => void): Promise<void> {
    this.#client.on("notification", (message) => {
      if (message.channel === channel) hear({ channel, payload: message.payload ?? "" });
    });
    await this.#client.query(`listen "${channel.replaceAll('"', "")}"`);
  }

  onBreak(told: () => void): void {
    this.#told.push(told);
  }

  // Its settings are not the pool's, so the connection ends with the session.
  release(): void {
    if (this.#released) return;
    this.#released = true;
    if (this.#pipelined) this.#client.pipeline = false; // or it would wait for its queries before it ends
    this.#client.release(true);
  }

  #break(): void {
    if (this.#broken) return;
    this.#broken = true;
    for (const told of this.#told) if (!this.#released) told();
  }
}

function prepared(
  statement: Statement,
  params: readonly Param[],
): {
  name: string;
  text: string;
  values: readonly Param[];
} {
  return { name: statement.preparedName, text: statement.text, values: params };
}

/** A pool or a connection URL; anything else is refused with a hint. */
export function pgDatabase(source: PgPool | string, maxConnections?: number): PgDatabase {
  if (typeof source === "string") {
    return new PgDatabase({ url: source, ...(maxConnections === undefined ? {} : { maxConnections }) });
  }
  if (isPgPool(source)) return new PgDatabase({ pool: source });
  throw new SagaboxError("OPTIONS_INVALID", "`database` must be a pg.Pool or a postgres:// URL.");
}
