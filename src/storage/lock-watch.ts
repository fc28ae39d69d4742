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
/** Unchanged blockers are reported again after this long. */
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
    const pid = await this.#findPid(session);
    return watchBlockers(
      this.#options.database,
      pid,
      () => session.run<R>(statement, params),
      (blockers) => this.#report(blockers, rows, sinceMs),
    );
  }

  #report(blockers: readonly Blocker[], count: number, sinceMs: number): void {
    const { observer, doing } = this.#options;
    const nowMs = this.#clock.monotonicMs();
    const pids = blockers.map(({ pid }) => pid).join();
    const last = this.#reported;
    if (last !== undefined && last.pids === pids && nowMs - last.atMs < REPORT_EVERY_MS) return;
    this.#reported = { pids, atMs: nowMs };
    const waitedMs = Math.round(nowMs - sinceMs);
    observer.emit("locks.blocked", { doing, count, blockedBy: describeBlockers(blockers), waitedMs });
  }

  #findPid(session: Queryable): Promise<number | undefined> {
    const known = this.#pids.get(session);
    if (known !== undefined) return known;
    const asked = pidOf(session);
    this.#pids.set(session, asked);
    return asked;
  }
}

/**
 * Runs a statement on a session with a lock timeout. If the wait for a lock ends in that timeout, calls `onTimeout` with a
 * text that names the blocking sessions and rethrows. Looks for them on another connection, every `lookEveryMs`.
 */
export async function nameBlockers<R>(
  database: Database,
  session: Queryable,
  { lookEveryMs, onTimeout }: { lookEveryMs: number; onTimeout: (blockedBy: string) => void },
  run: () => Promise<R>,
): Promise<R> {
  const pid = await pidOf(session);
  return watchBlockers(database, pid, run, (blockers) => onTimeout(describeBlockers(blockers)), lookEveryMs);
}

async function watchBlockers<R>(
  database: Database,
  pid: number | undefined,
  run: () => Promise<R>,
  onTimeout: (blockers: readonly Blocker[]) => void,
  lookEveryMs = LOOK_EVERY_MS,
): Promise<R> {
  let blockers: readonly Blocker[] = [];
  let isLooking = false;
  const checkBlockers = async (): Promise<void> => {
    if (pid === undefined || isLooking || blockers.length > 0) return;
    isLooking = true;
    blockers = await blockersOf(database, pid);
    isLooking = false;
  };
  const stop = every(lookEveryMs, () => void checkBlockers());
  try {
    return await run();
  } catch (error) {
    if (sqlState(error) === SQLSTATE.lockNotAvailable) onTimeout(blockers);
    throw error;
  } finally {
    stop();
  }
}

/** Empty if no session blocks, or the database does not answer. */
async function blockersOf(database: Database, pid: number): Promise<readonly Blocker[]> {
  try {
    return (await database.run<Blocker>(blockingSessions, [pid])).rows;
  } catch {
    return [];
  }
}

function pidOf(session: Queryable): Promise<number | undefined> {
  return session.run<{ pid: number }>(backendPid).then(
    ({ rows }) => rows[0]?.pid,
    () => undefined,
  );
}

function describeBlockers(blockers: readonly Blocker[]): string {
  return blockers.length === 0 ? UNKNOWN : blockers.map(describeBlocker).join("; ");
}

/** Exported for its test. A prepared transaction belongs to no session: the server reports it as pid 0. */
export function describeBlocker({ pid, application, open_ms: openMs }: Blocker): string {
  if (pid === 0) return "a prepared transaction (see pg_prepared_xacts)";
  const name = application === "" ? "no application name" : application;
  const age = openMs === null ? "" : `, transaction open for ${(openMs / 1_000).toFixed(1)} s`;
  return `pid ${pid} (${name})${age}`;
}
