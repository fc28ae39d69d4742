import { SagaboxError } from "../../errors/index.ts";
import { after, backoffMs, type CancelTimer, sleep, withDeadline } from "../../runtime/index.ts";
import type {
  Database,
  Notification,
  OwnedTransaction,
  Param,
  PoolUsage,
  Rows,
  RunLimits,
  Session,
  TransactionOptions,
} from "../database.ts";
import { MAX_STATEMENT_MS } from "../deadlines.ts";
import { connectFailure, explainReadOnly, sessionSurvives, SQLSTATE, sqlState } from "../postgres-errors.ts";
import { type Statement, withoutName } from "../statement.ts";
import { setConfig } from "./statements.ts";
import { cancelStatement } from "./cancel-statement.ts";
import { type ConnectionWatch, destroyClient, endClient, watchPool } from "./connection-watch.ts";
import { checkIsolation, PgTransaction } from "./pg-transaction.ts";
import {
  isPgPool,
  isPgTooOld,
  pgTooOldError,
  type PgClient,
  type PgPool,
  type PgResult,
  type UsedPool,
} from "./pg-shape.ts";
import { runStatementInTime, runTextInTime } from "./send-query.ts";

const ACQUIRE_DEADLINE_MS = 10_000;
/** How many milliseconds the connections of a closing pool may take to end. */
const CLOSE_MS = 500;
/** Attempts of a single statement that failed in a conflict and changed nothing, as under a stricter default isolation. */
const MAX_CONNECT_ATTEMPTS = 10;
/** Wait before a statement that conflicted with another transaction runs again. */
const CONFLICT_BACKOFF = { firstMs: 2, maxMs: 1_000, jitter: 1 };

const returnTrue = (): boolean => true;
const returnFalse = (): boolean => false;

export interface PgDatabaseOptions {
  readonly pool?: PgPool;
  readonly url?: string;
  readonly maxConnections?: number;
  /** True if a pooler in transaction mode is in between: statements are then not prepared by name. */
  readonly isPooled?: boolean;
}

/** PostgreSQL through the `pg` package: the user's own pool, or one of ours made from a URL. */
export class PgDatabase implements Database {
  readonly #options: PgDatabaseOptions;
  #pool: Promise<UsedPool> | undefined;
  #answered = false;
  #closed = false;
  #used: UsedPool | undefined;
  #watch: ConnectionWatch | undefined;

  constructor(options: PgDatabaseOptions) {
    this.#options = options;
    if (options.pool === undefined) return;
    this.#adoptPool(options.pool as unknown as UsedPool);
  }

  get isPooled(): boolean {
    return this.#options.isPooled === true;
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

  async run<R>(
    statement: Statement,
    params: readonly Param[] = [],
    { deadlineMs = MAX_STATEMENT_MS }: RunLimits = {},
  ): Promise<Rows<R>> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#runOn<R>(await this.#acquire(), statement, params, deadlineMs);
      } catch (error) {
        if (attempt === MAX_CONNECT_ATTEMPTS || sqlState(error) !== SQLSTATE.serializationFailure)
          throw error;
        await sleep(backoffMs(CONFLICT_BACKOFF, attempt));
      }
    }
  }

  runImmediately(statement: Statement, params: readonly Param[], limits: RunLimits = {}): Promise<unknown> {
    const pool = this.#used;
    if (pool === undefined || (pool.idleCount ?? 0) === 0) return this.run(statement, params, limits);
    const { deadlineMs = MAX_STATEMENT_MS } = limits;
    return new Promise((resolve, reject) => {
      const send = (client: PgClient): void =>
        void this.#runOn(client, statement, params, deadlineMs).then(resolve, reject);
      this.#connect(pool, send, reject, { unref: true });
    });
  }

  async session(
    purpose: string,
    settings: Readonly<Record<string, string>> = {},
    { deadlineMs = MAX_STATEMENT_MS }: RunLimits = {},
  ): Promise<Session> {
    const client = await this.#acquire();
    const session = new PgSession(client, this.#requireWatch(), deadlineMs);
    try {
      await session.configure({ application_name: `sagabox ${purpose}`, ...settings });
      return session;
    } catch (error) {
      session.release();
      throw error;
    }
  }

  async begin(options: TransactionOptions = {}): Promise<OwnedTransaction> {
    checkIsolation(options.isolation);
    const client = await this.#acquire();
    if (!isPgTooOld(client)) return new PgTransaction(client, options, this.#requireWatch(), this.isPooled);
    client.release();
    throw pgTooOldError();
  }

  /**
   * A pool of the user's own stays open. Connections that do not end in time are destroyed: they would keep the process.
   */
  async close(): Promise<void> {
    if (this.#options.pool !== undefined) return;
    this.#closed = true;
    const pool = await this.#pool;
    this.#pool = undefined;
    const isClosed = pool?.end().then(returnTrue) ?? true;
    if (await withDeadline(Promise.resolve(isClosed), CLOSE_MS, returnFalse)) return;
    for (const { connection } of this.#requireWatch().connected) connection?.stream?.destroy?.();
  }

  #acquire(): Promise<PgClient> {
    if (this.#closed) return Promise.reject(busStoppedError());
    this.#pool ??= this.#open();
    const from = (pool: UsedPool): Promise<PgClient> =>
      new Promise((resolve, reject) => this.#connect(pool, resolve, reject));
    return this.#used === undefined ? this.#pool.then(from) : from(this.#used);
  }

  /** Uses a callback: a promise would let other work of this turn of the event loop go first, and costs more. */
  #connect(
    pool: UsedPool,
    take: (client: PgClient) => void,
    fail: (error: unknown) => void,
    timer: { readonly unref?: boolean } = {},
  ): void {
    let [over, late] = [false, false];
    const tooLate = (): void => {
      late = true;
      fail(connectFailure(this.#explainNoConnection()));
    };
    let giveUp: CancelTimer | undefined;
    const handOver = (error?: unknown, client?: PgClient): void => {
      if (over || (client === undefined && error === undefined)) return; // a pool may call back twice
      over = true;
      giveUp?.();
      if (client === undefined) fail(connectFailure(error));
      else if (late) client.release();
      else if (this.#requireWatch().isSuspect(client)) {
        destroyClient(client);
        this.#connect(pool, take, fail, timer);
      } else {
        this.#answered = true;
        take(client);
      }
    };
    pool.connect(handOver)?.then((client) => handOver(undefined, client), handOver);
    // A pool with an idle connection answers in the next tick, before this one, and needs no timer.
    process.nextTick(() => {
      if (!over) giveUp = after(ACQUIRE_DEADLINE_MS, tooLate, timer);
    });
  }

  #explainNoConnection(): unknown {
    if (!this.#answered) return connectFailure(new Error(`no answer within ${ACQUIRE_DEADLINE_MS} ms`));
    const { pool } = this.#options;
    // In such a pool a hanging connection attempt occupies its slot forever, and only the pool could end it.
    const isUnlimited = pool !== undefined && !((pool.options?.connectionTimeoutMillis ?? 0) > 0);
    return new SagaboxError(
      "STORAGE_UNAVAILABLE",
      `No database connection was free within ${ACQUIRE_DEADLINE_MS} ms. ` +
        "Raise the pool's `max`, lower the concurrency, or look for transactions that never end." +
        (isUnlimited
          ? " Set `connectionTimeoutMillis` on the pool, so that a connect that hangs is given up."
          : ""),
    );
  }

  #adoptPool(pool: UsedPool): UsedPool {
    this.#watch = watchPool(pool);
    this.#used = pool;
    this.#pool ??= Promise.resolve(pool);
    return pool;
  }

  #requireWatch(): ConnectionWatch {
    if (this.#watch === undefined) throw new Error("there is no pool yet");
    return this.#watch;
  }

  async #open(): Promise<UsedPool> {
    const { default: pg } = await import("pg");
    const pool = new pg.Pool({
      connectionString: this.#options.url,
      max: this.size,
      connectionTimeoutMillis: ACQUIRE_DEADLINE_MS,
      keepAlive: true,
    });
    return this.#adoptPool(pool as unknown as UsedPool);
  }

  async #runOn<R>(
    client: PgClient,
    given: Statement,
    params: readonly Param[],
    deadlineMs: number,
  ): Promise<Rows<R>> {
    const statement = this.isPooled ? withoutName(given) : given;
    const watch = this.#requireWatch();
    const ignore = (): void => undefined;
    client.on("error", ignore);
    let isUsable = false;
    try {
      const result = await runStatementInTime(client, watch, { statement, params, deadlineMs });
      isUsable = true;
      return { rows: result.rows as R[], rowCount: result.rowCount ?? 0, command: result.command };
    } catch (error) {
      isUsable = sessionSurvives(error);
      throw explainReadOnly(error);
    } finally {
      client.removeListener("error", ignore);
      if (isUsable) client.release();
      else destroyClient(client);
    }
  }
}

function busStoppedError(): SagaboxError {
  return new SagaboxError(
    "BUS_STOPPED",
    "The connections of this bus were closed when it was stopped. Make a new one with createBus().",
  );
}

/** Accepts a pool or a connection URL. Throws with a hint for any other value. */
export function pgDatabase(
  source: PgPool | string,
  options: Pick<PgDatabaseOptions, "maxConnections" | "isPooled"> = {},
): PgDatabase {
  if (typeof source === "string") return new PgDatabase({ ...options, url: source });
  if (isPgPool(source)) return new PgDatabase({ ...options, pool: source });
  throw new SagaboxError("OPTIONS_INVALID", "`database` must be a pg.Pool or a postgres:// URL.");
}

/** Our statements lock rows and re-read them; under a stricter default isolation of the role they would fail. */
const ISOLATION = { default_transaction_isolation: "read committed" };

/** One connection with its own settings. It sends its statements without waiting for the answers between them. */
class PgSession implements Session {
  readonly #client: PgClient;
  readonly #breakListeners: (() => void)[] = [];
  readonly #watch: ConnectionWatch;
  readonly #deadlineMs: number;
  readonly #pipelined: boolean;
  #last: Promise<unknown> = Promise.resolve();
  #open = 0;
  #isBroken = false;
  #released = false;

  constructor(client: PgClient, watch: ConnectionWatch, deadlineMs: number) {
    this.#client = client;
    this.#watch = watch;
    this.#deadlineMs = deadlineMs;
    this.#pipelined = client.pipeline !== undefined;
    if (this.#pipelined) client.pipeline = true; // later statements are sent immediately, while the server works on earlier ones
    client.on("error", () => this.#markBroken());
    client.on("end", () => this.#markBroken());
  }

  get broken(): boolean {
    return this.#isBroken || (this.#open === 0 && this.#watch.isSuspect(this.#client));
  }

  async configure(settings: Readonly<Record<string, string>>): Promise<void> {
    for (const [name, value] of Object.entries({ ...ISOLATION, ...settings }))
      await this.run(setConfig, [name, value]);
  }

  async run<R>(
    statement: Statement,
    params: readonly Param[] = [],
    { deadlineMs = this.#deadlineMs }: RunLimits = {},
  ): Promise<Rows<R>> {
    const send = (): Promise<PgResult> =>
      runStatementInTime(this.#client, this.#watch, { statement, params, deadlineMs });
    // Drivers without pipelining deprecate their own queue, so statements are sent one after the other.
    const sent = this.#pipelined || this.#open === 0 ? send() : this.#last.then(send);
    this.#open += 1;
    this.#last = sent.catch(() => undefined);
    try {
      const result = await sent;
      return { rows: result.rows as R[], rowCount: result.rowCount ?? 0, command: result.command };
    } catch (error) {
      if (!sessionSurvives(error)) this.#markBroken();
      throw explainReadOnly(error);
    } finally {
      this.#open -= 1;
    }
  }

  async listen(channel: string, hear: (notification: Notification) => void): Promise<void> {
    this.#client.on("notification", (message) => {
      if (message.channel === channel) hear({ channel, payload: message.payload ?? "" });
    });
    const text = `listen "${channel.replaceAll('"', "")}"`;
    await runTextInTime(this.#client, this.#watch, text, { deadlineMs: this.#deadlineMs }).catch(
      (error: unknown) => {
        if (!sessionSurvives(error)) this.#markBroken();
        throw error;
      },
    );
  }

  onBreak(listener: () => void): void {
    this.#breakListeners.push(listener);
  }

  // The connection has other settings than those of the pool, so it ends with the session.
  release(destroy = false): void {
    if (this.#released) return;
    this.#released = true;
    if (this.#pipelined) this.#client.pipeline = false; // or it would wait for its queries before it ends
    if (this.#open > 0 && !this.#isBroken) cancelStatement(this.#client);
    if (destroy || this.#isBroken || this.#open > 0) destroyClient(this.#client);
    else endClient(this.#client);
  }

  #markBroken(): void {
    if (this.#isBroken) return;
    this.#isBroken = true;
    for (const listener of this.#breakListeners) if (!this.#released) listener();
  }
}
