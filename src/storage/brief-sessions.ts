import { SagaboxError } from "../errors/index.ts";
import type { Database, Param, Queryable, Rows, RunLimits, Session } from "./database.ts";
import type { Statement } from "./statement.ts";
import { setLocal } from "./statements.ts";

const brief = new WeakSet<Queryable>();

/** True for a session of `withBriefSessions`, whose statements may each run on another connection. */
export function isBrief(session: Queryable): boolean {
  return brief.has(session);
}

/**
 * Wraps a database so that its sessions hold no connection. Each statement borrows one of the pool, in a transaction that
 * begins with the settings of the session. This costs no extra round trip, and works behind a pooler in transaction mode.
 * Every commit waits for the disk, whatever the session asks for.
 */
export function withBriefSessions(database: Database): Database {
  return {
    isPooled: database.isPooled === true,
    get size() {
      return database.size;
    },
    usage: () => database.usage?.(),
    run: (statement, params, limits) => database.run<never>(statement, params, limits),
    session: (_purpose, settings, limits) => Promise.resolve(new BriefSession(database, settings, limits)),
    begin: (options) => database.begin(options),
    runImmediately: (statement, params, limits) =>
      database.runImmediately?.(statement, params, limits) ?? database.run(statement, params, limits),
    close: () => database.close(),
  };
}

class BriefSession implements Session {
  readonly broken = false;
  readonly #database: Database;
  readonly #settings: string;
  readonly #limits: RunLimits;

  constructor(database: Database, settings: Readonly<Record<string, string>> = {}, limits: RunLimits = {}) {
    this.#database = database;
    this.#settings = JSON.stringify({ ...settings, synchronous_commit: undefined });
    this.#limits = limits;
    brief.add(this);
  }

  async run<R>(
    statement: Statement,
    params: readonly Param[] = [],
    limits: RunLimits = {},
  ): Promise<Rows<R>> {
    const { deadlineMs } = { ...this.#limits, ...limits };
    const tx = await this.#database.begin(deadlineMs === undefined ? {} : { statementMs: deadlineMs });
    try {
      const settings = { statement: setLocal, params: [this.#settings] };
      const [, answer] = await tx.commit([settings, { statement, params }]);
      return answer as Rows<R>;
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  }

  listen(): Promise<void> {
    return Promise.reject(
      new SagaboxError("STORAGE_UNAVAILABLE", "This session holds no connection, so it cannot listen."),
    );
  }

  onBreak(): void {
    // There is no connection that could break.
  }

  release(): void {
    // There is no connection to give back.
  }
}
