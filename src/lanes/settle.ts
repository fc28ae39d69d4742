import { sleep, systemClock } from "../runtime/index.ts";
import {
  type Database,
  LockWatch,
  type Param,
  type Queryable,
  quoteSchema,
  type Rows,
  type SessionHolder,
  sqlState,
  SQLSTATE,
  type Statement,
  toArrayLiteral,
} from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { LaneRow } from "./lane-row.ts";
import type { Claim, LaneOwnership } from "./ownership.ts";
import type { LaneReader } from "./reader.ts";
import { claimParams, type LaneTable, probeStatements } from "./statements.ts";

export interface SettleContext {
  readonly ownership: LaneOwnership;
  readonly reader: LaneReader;
  readonly holder: SessionHolder;
  /** Runs a statement on the session. Default: `session.run`. */
  readonly run?: Run | undefined;
}

export type Run = <R>(session: Queryable, statement: Statement, params: readonly Param[]) => Promise<Rows<R>>;

export interface SettleResult {
  /** Rows settled under a valid claim. Rows of the batch in neither list belong to another worker now. */
  readonly rows: LaneRow[];
  /**
   * Rows that another session has locked, or that follow such a row in their stream. They are still in the table.
   */
  readonly left: LaneRow[];
  readonly xid?: { readonly value: string; readonly reads: number };
  /** Queue lanes that received new deliveries, if the statement reports them. */
  readonly woken: readonly number[];
}

/** Builds the settle statement for these rows and this session. */
export type BuildSettle = (
  own: readonly LaneRow[],
  session: Queryable,
) => {
  readonly statement: Statement;
  readonly params: readonly Param[];
};

interface SettleAnswer {
  readonly xid: string;
  readonly owned: readonly number[];
  readonly woken?: readonly number[] | null;
  /** Only from statements that skip locked rows: the locked lanes, and the seqs of the rows that were left out. */
  readonly busy?: readonly number[];
  readonly left_out?: readonly string[];
}

/**
 * Runs a settle statement under the claims of the rows' lanes. If a claim is no longer valid, the statement changes
 * nothing, and the remaining rows are settled without that lane. If the reply is lost, the statement may be
 * repeated: rows that it has settled already are gone.
 */
export async function settleUnderClaims(
  { ownership, reader, holder, run = runPlainly }: SettleContext,
  batch: readonly LaneRow[],
  buildSettle: BuildSettle,
): Promise<SettleResult> {
  for (;;) {
    // Read the claims again after waiting for the session: a lane may be lost meanwhile. Without claims, do not
    // connect.
    const session = findClaims(ownership, batch).length === 0 ? undefined : await holder.get();
    const claims = findClaims(ownership, batch);
    if (session === undefined || claims.length === 0) return { rows: [], left: [], woken: [] };
    const ours = new Set(claims.map((claim) => claim.lane));
    const rows = batch.filter((row) => ours.has(row.lane));
    const reads = reader.reads();
    const { statement, params } = buildSettle(rows, session);
    const answer = await run<SettleAnswer>(session, statement, [...claimParams(claims), ...params]);
    const { xid, owned, woken, busy = [], left_out: leftOut } = answer.rows[0] ?? NO_ANSWER;
    const good = new Set([...owned, ...busy]);
    if (good.size < claims.length) ownership.lose(claims.filter((claim) => !good.has(claim.lane)));
    // A statement that waits for locks changes nothing unless every claim is valid; one that skips locks decides
    // per lane.
    if (good.size < claims.length && leftOut === undefined) continue;
    const isLeft = matchLeftOut(busy, leftOut ?? []);
    const [left, settled] = [rows.filter(isLeft), rows.filter((row) => good.has(row.lane) && !isLeft(row))];
    return { rows: settled, left, xid: { value: xid, reads }, woken: woken ?? [] };
  }
}

const runPlainly: Run = (session, statement, params) => session.run(statement, params);

function matchLeftOut(busy: readonly number[], leftOut: readonly string[]): (row: LaneRow) => boolean {
  if (busy.length === 0 && leftOut.length === 0) return () => false;
  const [lanes, seqs] = [new Set(busy), new Set(leftOut.map(Number))];
  return (row) => lanes.has(row.lane) || seqs.has(row.seq);
}

const NO_ANSWER: SettleAnswer = { xid: "0", owned: [] };

/** The keys of the rows, as the parameters that follow the claims in every settle statement. */
export function rowKeyParams(rows: readonly LaneRow[]): [string, string, string] {
  return [
    toArrayLiteral(rows.map((row) => row.lane)),
    toArrayLiteral(rows.map((row) => row.seq)),
    toArrayLiteral(rows.map((row) => row.messageId)),
  ];
}

function findClaims(ownership: LaneOwnership, rows: readonly LaneRow[]): Claim[] {
  const lanes = new Set<number>();
  for (const row of rows) lanes.add(row.lane);
  const sorted = [...lanes].sort((a, b) => a - b);
  return sorted.flatMap((lane) => ownership.claimToSettle(lane) ?? []);
}

export interface LockToleranceOptions {
  readonly database: Database;
  readonly schema: string;
  readonly table: LaneTable;
  readonly ownership: LaneOwnership;
  readonly reader: LaneReader;
  readonly observer: Observer;
  /** A session for lock waits, so that they do not delay other statements. */
  readonly probe: SessionHolder;
}

/** Two statements for one settle. */
export interface SettleVariants {
  /** Waits for locks, up to the lock timeout of its session. */
  readonly plain: BuildSettle;
  /** Does not wait: leaves out rows that other sessions have locked and returns their seqs. */
  readonly past: BuildSettle;
}

/** Settles the rows that are not locked and returns the others. */
export type RetrySettle = (rows: readonly LaneRow[]) => Promise<readonly LaneRow[]>;

interface WaitingRow {
  readonly retry: RetrySettle;
  readonly sinceMs: number;
}

/** With this many locked rows, `keepTrying` does not resolve until some of them are settled. */
const MAX_WAITING = 1_000;
/** After a lock timeout, statements skip locked rows for this long instead of waiting first, in milliseconds. */
const WARY_MS = 5_000;
const PAUSE_MS = 50;
const FAILURE_PAUSE_MS = 1_000;

/**
 * Settles rows even if other sessions have locked some of them. The plain statement waits for locks up to a
 * timeout. After a timeout, a second statement settles every row that is not locked. The locked rows stay in
 * flight, which holds back the later rows of their keys, and are settled when their locks are released. None of
 * this counts as an attempt.
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

  /**
   * Throws database errors. Throws a lock timeout only if a whole table is locked, because then no row can be
   * skipped.
   */
  async settle(
    holder: SessionHolder,
    rows: readonly LaneRow[],
    variants: SettleVariants,
  ): Promise<SettleResult> {
    const { ownership, reader } = this.#options;
    const sinceMs = systemClock.monotonicMs();
    if (!this.#isWary(sinceMs)) {
      try {
        return await settleUnderClaims({ ownership, reader, holder }, rows, variants.plain);
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
      variants.past,
    );
    if (settled.left.length > 0) this.#beWary();
    return settled;
  }

  /**
   * Keeps the rows in flight and settles them with `retry` once their locks are released. Resolves when there is
   * room for more locked rows.
   */
  async keepTrying(rows: readonly LaneRow[], retry: RetrySettle): Promise<void> {
    if (this.#isClosing) return this.#options.reader.putBack(rows, 0);
    const sinceMs = systemClock.monotonicMs();
    for (const row of rows) this.#waiting.set(row, { retry, sinceMs });
    if (rows.length > 0) this.#retrying ??= this.#retryAll();
    while (this.#waiting.size >= MAX_WAITING && !this.#isClosing)
      await new Promise<void>((resolve) => this.#roomListeners.push(resolve));
  }

  /** Puts back the rows that are still locked. The next reader settles or sends them again. */
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

  /**
   * Waits for the lock on one of the rows and holds no other lock meanwhile, so that the blocking session can be
   * named.
   */
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
      // The row is still locked or the database fails: the settle that follows reports it.
    }
  }

  /** Forgets rows of lost lanes, and puts back rows of draining lanes for their next owner. */
  #dropOrphans(): void {
    const { reader, ownership } = this.#options;
    for (const row of this.#waiting.keys()) {
      if (reader.holds(row) && !ownership.isDraining(row.lane)) continue;
      this.#waiting.delete(row);
      reader.putBack([row], 0);
    }
  }

  /** Returns false if the database failed. */
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
