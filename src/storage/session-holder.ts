import { systemClock } from "../runtime/index.ts";
import { isBrief } from "./brief-sessions.ts";
import type { Database, Queryable, Session } from "./database.ts";
import { serverIdentity } from "./statements.ts";

/** Identifies the server of a session by its start time and address. While it is unchanged, the server has not crashed. */
export interface SessionOrigin {
  readonly server: string;
  readonly sinceMs: number;
}

const origins = new WeakMap<Queryable, SessionOrigin>();

/** Undefined for a session without `knowsOrigin`, or one that was opened on a standby. */
export function findOrigin(session: Queryable): SessionOrigin | undefined {
  return origins.get(session);
}

/** Keeps one session open for its owner and opens a new one when the last has broken. */
export class SessionHolder {
  readonly #open: () => Promise<Session>;
  #session: Promise<Session> | undefined;

  /** With `knowsOrigin`, each new session reads which server it is on, and the server keeps memory for large answers. */
  constructor(
    database: Database,
    purpose: string,
    settings: Readonly<Record<string, string>> = {},
    { knowsOrigin = false }: { readonly knowsOrigin?: boolean } = {},
  ) {
    this.#open = async () => {
      const session = await database.session(purpose, settings);
      if (knowsOrigin && !isBrief(session)) await readOrigin(session);
      return session;
    };
  }

  async get(): Promise<Session> {
    const known = this.#session;
    const session = await known?.catch(() => undefined);
    if (session !== undefined && !session.broken) return session;
    // Another caller may have opened a session in the meantime; a second one would never be released.
    if (this.#session !== known) return this.get();
    session?.release(true);
    const opened = this.#open();
    this.#session = opened;
    return opened;
  }

  async close(): Promise<void> {
    // A session that replaced a broken one in the meantime must be released, too.
    while (this.#session !== undefined) {
      const closing = this.#session;
      const session = await closing.catch(() => undefined);
      if (this.#session === closing) this.#session = undefined;
      session?.release();
    }
  }
}

async function readOrigin(session: Session): Promise<void> {
  try {
    const { rows } = await session.run<{ server: string | null }>(serverIdentity);
    const server = rows[0]?.server ?? undefined;
    if (server !== undefined) origins.set(session, { server, sinceMs: systemClock.monotonicMs() });
  } catch (error) {
    session.release();
    throw error;
  }
}

/**
 * How long the statements that settle rows wait for a lock of another session, in milliseconds. After that they settle
 * what is not locked. Well below the shortest deadline of a statement (1 second): a statement that is given up at its
 * deadline does not say that it waited for a lock.
 */
export const SETTLE_LOCK_WAIT_MS = 500;

/**
 * How long the statements that read lanes and renew leases wait for a lock, in milliseconds. They share one session, so a
 * wait must stay well below the shortest lease.
 */
export const LEASE_LOCK_WAIT_MS = 250;

/** The session setting that limits each wait for a lock to this many milliseconds. */
export function limitLockWait(ms: number): Readonly<Record<string, string>> {
  return { lock_timeout: `${Math.ceil(ms)}ms` };
}

/**
 * Settings that keep plans on indexes: our statements are written for them, and a table that just grew must not change
 * that.
 */
export const steadyPlans: Readonly<Record<string, string>> = {
  datestyle: "ISO",
  jit: "off",
  enable_seqscan: "off",
  enable_bitmapscan: "off",
  enable_hashjoin: "off",
  enable_mergejoin: "off",
  plan_cache_mode: "force_generic_plan",
};

/**
 * Settings for statements that settle rows by their keys. The planner expects one row in a table that was empty when it was
 * vacuumed, and would then scan the whole index for each key. A bitmap scan can only look keys up.
 */
export const settlingPlans: Readonly<Record<string, string>> = {
  ...steadyPlans,
  enable_bitmapscan: "on",
  enable_indexscan: "off",
  enable_indexonlyscan: "off",
  enable_tidscan: "on",
};
