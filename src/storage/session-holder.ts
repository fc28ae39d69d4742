import type { Database, Session } from "./database.ts";

/** Keeps one session open for its owner and opens a new one when the last has broken. */
export class SessionHolder {
  readonly #open: () => Promise<Session>;
  #session: Promise<Session> | undefined;

  constructor(database: Database, purpose: string, settings: Readonly<Record<string, string>> = {}) {
    this.#open = () => database.session(purpose, settings);
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
};
