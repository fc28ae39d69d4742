import { systemClock } from "../runtime/index.ts";
import type { Database, Queryable, Session } from "./database.ts";
import { serverIdentity } from "./statements.ts";

/** Which server answers on a session, and since when: while it does, that server has not crashed. */
export interface SessionOrigin {
  readonly server: string;
  readonly sinceMs: number;
}

const origins = new WeakMap<Queryable, SessionOrigin>();

/** Unknown for one that was not asked, and for one that was opened on a standby. */
export function findOrigin(session: Queryable): SessionOrigin | undefined {
  return origins.get(session);
}

/** Keeps one session open for its owner and opens a new one when the last has broken. */
export class SessionHolder {
  readonly #open: () => Promise<Session>;
  #session: Promise<Session> | undefined;

  /** `knowsOrigin`: its server is asked who it is, and keeps its memory for large answers. */
  constructor(
    database: Database,
    purpose: string,
    settings: Readonly<Record<string, string>> = {},
    { knowsOrigin = false }: { readonly knowsOrigin?: boolean } = {},
  ) {
    this.#open = async () => {
      const session = await database.session(purpose, settings);
      if (knowsOrigin) await readOrigin(session);
      return session;
    };
  }

  async get(): Promise<Session> {
    const known = this.#session;
    const session = await known?.catch(() => undefined);
    if (session !== undefined && !session.broken) return session;
    // Whoever asked at the same time has opened one already; a second would never be given back.
    if (this.#session !== known) return this.get();
    session?.release(true);
    const opened = this.#open();
    this.#session = opened;
    return opened;
  }

  async close(): Promise<void> {
    // One that was opened instead of a broken one while we waited must be given back too.
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

/** Our statements are written for their indexes; a table that grew a minute ago must not change the plan. */
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
 * For statements that name the rows they end. A table that was empty when it was vacuumed looks as if it had one row;
 * the server then walks it from end to end for each of those named. Bitmaps can only be made of what is looked up.
 */
export const settlingPlans: Readonly<Record<string, string>> = {
  ...steadyPlans,
  enable_bitmapscan: "on",
  enable_indexscan: "off",
  enable_indexonlyscan: "off",
  enable_tidscan: "on",
};
