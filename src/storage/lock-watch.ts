import { every, systemClock, type Clock } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { Database, Param, Queryable, Rows } from "./database.ts";
import { SQLSTATE, sqlState } from "./postgres-errors.ts";
import type { Statement } from "./statement.ts";
import { backendPid, blockingSessions } from "./statements.ts";

export interface LockWatchOptions {
  /** Asked who blocks, while the watched session itself waits. */
  readonly database: Database;
  readonly observer: Observer;
  /** What the watched statements do, for the log. */
  readonly doing: string;
  readonly clock?: Clock;
}

interface Blocker {
  readonly pid: number;
  readonly application: string;
  readonly open_ms: number | null;
}

/** A statement that has not answered after this long may be waiting for a lock. */
const LOOK_EVERY_MS = 200;
/** The same blockers are reported again after this long. */
const REPORT_EVERY_MS = 30_000;
const UNKNOWN = "a session that could not be identified";

/** Runs statements that may wait for locks of other sessions, and reports who holds those locks. */
export class LockWatch {
  readonly #options: LockWatchOptions;
  readonly #clock: Clock;
  readonly #pids = new WeakMap<Queryable, Promise<number | undefined>>();
  #reported: { readonly pids: string; readonly atMs: number } | undefined;

  constructor(options: LockWatchOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /**
   * Runs a statement on a session with a lock timeout. If the wait for a lock ends in that timeout, emits `locks.blocked`
   * with the blocking sessions and rethrows. `rows` counts the rows that wait; `sinceMs` says since when, on the monotonic
   * clock.
   */
  async run<R>(
    session: Queryable,
    statement: Statement,
    params: readonly Param[],
    { rows = 0, sinceMs = this.#clock.monotonicMs() }: { rows?: number; sinceMs?: number } = {},
  ): Promise<Rows<R>> {
    const pid = await this.#pidOf(session);
    let blockers: readonly Blocker[] = [];
    let isLooking = false;
    const look = async (): Promise<void> => {
      if (pid === undefined || isLooking || blockers.length > 0) return;
      isLooking = true;
      blockers = await this.#blockersOf(pid);
      isLooking = false;
    };
    const stop = every(LOOK_EVERY_MS, () => void look());
    try {
      return await session.run<R>(statement, params);
    } catch (error) {
      if (sqlState(error) === SQLSTATE.lockNotAvailable) this.#report(blockers, rows, sinceMs);
      throw error;
    } finally {
      stop();
    }
  }

  /** Empty if no session blocks, or the database does not answer. */
  async #blockersOf(pid: number): Promise<readonly Blocker[]> {
    try {
      return (await this.#options.database.run<Blocker>(blockingSessions, [pid])).rows;
    } catch {
      return [];
    }
  }

  #report(blockers: readonly Blocker[], count: number, sinceMs: number): void {
    const { observer, doing } = this.#options;
    const nowMs = this.#clock.monotonicMs();
    const pids = blockers.map(({ pid }) => pid).join();
    const last = this.#reported;
    if (last !== undefined && last.pids === pids && nowMs - last.atMs < REPORT_EVERY_MS) return;
    this.#reported = { pids, atMs: nowMs };
    const blockedBy = blockers.length === 0 ? UNKNOWN : blockers.map(describeBlocker).join("; ");
    observer.tell("locks.blocked", { doing, count, blockedBy, waitedMs: Math.round(nowMs - sinceMs) });
  }

  #pidOf(session: Queryable): Promise<number | undefined> {
    const known = this.#pids.get(session);
    if (known !== undefined) return known;
    const asked = session.run<{ pid: number }>(backendPid).then(
      ({ rows }) => rows[0]?.pid,
      () => undefined,
    );
    this.#pids.set(session, asked);
    return asked;
  }
}

/** Exported for its test. A prepared transaction belongs to no session: the server reports it as pid 0. */
export function describeBlocker({ pid, application, open_ms: openMs }: Blocker): string {
  if (pid === 0) return "a prepared transaction (see pg_prepared_xacts)";
  const name = application === "" ? "no application name" : application;
  const age = openMs === null ? "" : `, transaction open for ${(openMs / 1_000).toFixed(1)} s`;
  return `pid ${pid} (${name})${age}`;
}
