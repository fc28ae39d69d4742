import { sleep, systemClock } from "../runtime/index.ts";
import {
  LockWatch,
  quoteSchema,
  SQLSTATE,
  sqlState,
  type Database,
  type SessionHolder,
} from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { LaneRow } from "./lane-row.ts";
import type { LaneOwnership } from "./ownership.ts";
import type { LaneReader } from "./reader.ts";
import { settleUnderClaims, type BuildSettle, type SettleResult } from "./settle.ts";
import { probeStatements, type LaneTable } from "./statements.ts";

export interface LockToleranceOptions {
  readonly database: Database;
  readonly schema: string;
  readonly table: LaneTable;
  readonly ownership: LaneOwnership;
  readonly reader: LaneReader;
  readonly observer: Observer;
  /** A session on which waiting for a lock delays nothing urgent. */
  readonly probe: SessionHolder;
}

/** One settle as two statements with the same meaning. */
export interface SettleVariants {
  /** Waits for locks, up to the lock timeout of its session. */
  readonly plain: BuildSettle;
  /** Waits for no row: it leaves out the rows that other sessions have locked, and lists them. */
  readonly past: BuildSettle;
}

/** Settles what it can of the rows and returns those that are still locked. */
export type RetrySettle = (rows: readonly LaneRow[]) => Promise<readonly LaneRow[]>;

interface WaitingRow {
  readonly retry: RetrySettle;
  readonly sinceMs: number;
}

/** With this many locked rows no further batch is finished until some of them are free. */
const MAX_WAITING = 1_000;
/** After a lock was met, statements pass over locks for this long instead of waiting for them first. */
const WARY_MS = 5_000;
const PAUSE_MS = 50;
const FAILURE_PAUSE_MS = 1_000;

/**
 * Settles rows although other sessions hold locks on some of them. The usual statement waits for locks up to a timeout.
 * Then, and for a while afterwards, another one settles everything that is not locked. The rows that were left out stay in
 * flight, which holds back the later rows of their keys, and are settled as soon as their locks are gone. Nothing of this
 * counts as an attempt.
 */
export class LockTolerantSettling {
  readonly #options: LockToleranceOptions;
  readonly #sql: ReturnType<typeof probeStatements>;
  readonly #watch: LockWatch;
  readonly #waiting = new Map<LaneRow, WaitingRow>();
  #roomListeners: (() => void)[] = [];
  #retrying: Promise<void> | undefined;
  #waryUntilMs = -Infinity;
  #isClosing = false;

  constructor(options: LockToleranceOptions) {
    this.#options = options;
    const { database, observer, table } = options;
    this.#sql = probeStatements(quoteSchema(options.schema), table);
    this.#watch = new LockWatch({ database, observer, doing: `settling rows of the ${table}` });
  }

  /** Throws what the database throws; a lock timeout only where a whole table is locked, so that nothing can be left out. */
  async settle(holder: SessionHolder, rows: readonly LaneRow[], ways: SettleVariants): Promise<SettleResult> {
    const { ownership, reader } = this.#options;
    const sinceMs = systemClock.monotonicMs();
    if (!this.#isWary(sinceMs)) {
      try {
        return await settleUnderClaims({ ownership, reader, holder }, rows, ways.plain);
      } catch (error) {
        if (sqlState(error) !== SQLSTATE.lockNotAvailable) throw error;
        this.#beWary();
      }
    }
    const settled = await settleUnderClaims(
      {
        ownership,
        reader,
        holder,
        run: (session, statement, params) => this.#watch.run(session, statement, params, { sinceMs }),
      },
      rows,
      ways.past,
    );
    if (settled.left.length > 0) this.#beWary();
    return settled;
  }

  /** Keeps the rows in flight and settles them with `retry` once their locks are gone. Resolves while there is room for more. */
  async keepTrying(rows: readonly LaneRow[], retry: RetrySettle): Promise<void> {
    if (this.#isClosing) return this.#options.reader.putBack(rows, 0);
    const sinceMs = systemClock.monotonicMs();
    for (const row of rows) this.#waiting.set(row, { retry, sinceMs });
    if (rows.length > 0) this.#retrying ??= this.#retryAll();
    while (this.#waiting.size >= MAX_WAITING && !this.#isClosing)
      await new Promise<void>((resolve) => this.#roomListeners.push(resolve));
  }

  /** Gives back the rows that are still locked. The next reader settles or sends them again. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#options.reader.putBack([...this.#waiting.keys()], 0);
    this.#waiting.clear();
    this.#announceRoom();
    await this.#retrying;
  }

  /** Accepts rows again after `close`. */
  reopen(): void {
    this.#isClosing = false;
  }

  async #retryAll(): Promise<void> {
    for (let round = 0; this.#waiting.size > 0; round++) {
      await this.#waitForLock(round);
      this.#dropOrphans();
      const isTroubled = !(await this.#retryRound());
      this.#announceRoom();
      if (this.#waiting.size > 0) await sleep(isTroubled ? FAILURE_PAUSE_MS : PAUSE_MS);
    }
    this.#retrying = undefined;
  }

  /** Waits for the lock on one of the rows, holding nothing else meanwhile, so that its holder can be named. */
  async #waitForLock(round: number): Promise<void> {
    const entries = [...this.#waiting];
    const [row, { sinceMs } = { sinceMs: 0 }] = entries[round % entries.length] ?? [];
    if (row === undefined) return;
    const about = { rows: entries.length, sinceMs };
    try {
      const session = await this.#options.probe.get();
      await this.#watch.run(session, this.#sql.lane, [row.lane], about);
      await this.#watch.run(session, this.#sql.row, [row.lane, String(row.seq)], about);
    } catch {
      // It is still locked, or the database has other troubles: the settle that follows finds out.
    }
  }

  /** Forgets rows of lost lanes. Gives back those of lanes that are handed over: their new owner settles or sends them again. */
  #dropOrphans(): void {
    const { reader, ownership } = this.#options;
    for (const row of this.#waiting.keys()) {
      if (reader.holds(row) && !ownership.isDraining(row.lane)) continue;
      this.#waiting.delete(row);
      reader.putBack([row], 0);
    }
  }

  /** False when the database failed. */
  async #retryRound(): Promise<boolean> {
    const byRetry = new Map<RetrySettle, LaneRow[]>();
    for (const [row, { retry }] of this.#waiting) byRetry.set(retry, [...(byRetry.get(retry) ?? []), row]);
    try {
      for (const [retry, rows] of byRetry) {
        const left = new Set(await retry(rows));
        for (const row of rows) if (!left.has(row)) this.#waiting.delete(row);
      }
      return true;
    } catch {
      return false;
    }
  }

  #isWary(nowMs: number): boolean {
    return this.#waiting.size > 0 || nowMs < this.#waryUntilMs;
  }

  #beWary(): void {
    this.#waryUntilMs = systemClock.monotonicMs() + WARY_MS;
  }

  #announceRoom(): void {
    if (this.#waiting.size >= MAX_WAITING && !this.#isClosing) return;
    for (const resolve of this.#roomListeners.splice(0)) resolve();
  }
}
