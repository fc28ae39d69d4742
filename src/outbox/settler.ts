import { computeFingerprint } from "../dead-letter/index.ts";
import { errorText } from "../errors/index.ts";
import {
  type BuildSettle,
  type LaneOwnership,
  type LaneReader,
  type LaneRow,
  LockTolerantSettling,
  rowKeyParams,
  type SettleResult,
  type SettleVariants,
} from "../lanes/index.ts";
import { retryWithBackoff, systemClock } from "../runtime/index.ts";
import {
  type Database,
  findOrigin,
  limitLockWait,
  type Param,
  type Queryable,
  quoteSchema,
  SessionHolder,
  SETTLE_LOCK_WAIT_MS,
  settlingPlans,
  sqlState,
  SQLSTATE,
  type Statement,
  toArrayLiteral,
} from "../storage/index.ts";
import type { Observer, TelemetryContext } from "../telemetry/index.ts";
import { applyMove, type MessageFacts, type MoveName } from "./message-state.ts";
import { type SentStatements, settleStatements } from "./statements.ts";

export interface SettlerOptions {
  readonly database: Database;
  readonly schema: string;
  readonly ownership: LaneOwnership;
  readonly reader: LaneReader;
  readonly relay: string;
  readonly sent: SentStatements;
  readonly observer: Observer;
}

export interface FailedRow {
  readonly row: LaneRow;
  readonly delayMs: number;
  readonly error: string;
}

export interface DeadRow {
  readonly row: LaneRow;
  readonly countsAsAttempt: boolean;
  readonly reason: "exhausted" | "rejected" | "expired";
  readonly errorType: string;
  readonly errorMessage: string;
  readonly stack: string | null;
}

/** Delay before a failed or dead row that another session has locked is tried again, in milliseconds. */
export const LOCKED_RECHECK_MS = 1_000;

export interface SettledRows {
  /** Settled under a valid claim. */
  readonly settled: readonly LaneRow[];
  /** Locked by another session: they are settled later. */
  readonly later: readonly LaneRow[];
}

/**
 * Settles batches of rows (sent, failed or dead-lettered), each in one statement guarded by the claims of its
 * lanes. Only "sent" commits asynchronously: losing that mark means one more delivery, while a lost failure
 * or dead letter would be a wrong state.
 */
export class Settler {
  readonly #options: SettlerOptions;
  readonly #sql: ReturnType<typeof settleStatements>;
  readonly #quick: SessionHolder;
  readonly #careful: SessionHolder;
  readonly #locks: LockTolerantSettling;

  constructor(options: SettlerOptions) {
    this.#options = options;
    this.#sql = settleStatements(quoteSchema(options.schema));
    const careful = { ...settlingPlans, ...limitLockWait(SETTLE_LOCK_WAIT_MS) };
    const quick = { ...careful, synchronous_commit: "off" };
    this.#quick = new SessionHolder(options.database, "settle", quick, { knowsOrigin: true });
    this.#careful = new SessionHolder(options.database, "failures", careful);
    this.#locks = new LockTolerantSettling({ ...options, table: "outbox", probe: this.#careful });
  }

  /** Marks rows as sent. Rows that are neither settled nor settled later belong to another relay now. */
  async markSent(rows: readonly LaneRow[]): Promise<SettledRows> {
    const { rows: settled, left } = await this.#settleSent(rows);
    if (left.length > 0) await this.#locks.keepTrying(left, this.#retrySent);
    return { settled, later: left };
  }

  readonly #retrySent = async (rows: readonly LaneRow[]): Promise<readonly LaneRow[]> => {
    const beganMs = systemClock.monotonicMs();
    const { rows: settled, left } = await this.#settleSent(rows);
    const durationMs = systemClock.monotonicMs() - beganMs;
    for (const entry of countByType(settled))
      this.#options.observer.emit("relay.published", { ...entry, durationMs });
    return left;
  };

  async #settleSent(rows: readonly LaneRow[]): Promise<SettleResult> {
    const { sent, relay } = this.#options;
    const byName =
      (statement: Statement): BuildSettle =>
      (own) => ({ statement, params: [...rowKeyParams(own), relay] });
    const plain = byName(sent.sent);
    const past = byName(sent.sentPast);
    const { sentInPlace } = sent;
    if (sentInPlace === undefined) return this.#settle(this.#quick, rows, { plain, past });
    try {
      const settleInPlace: BuildSettle = (own, session) =>
        this.#settleInPlace(sentInPlace, own, session) ?? plain(own, session);
      return await this.#settle(this.#quick, rows, { plain: settleInPlace, past });
    } catch (error) {
      if (sqlState(error) !== SQLSTATE.invalidText) throw error;
      return this.#settle(this.#quick, rows, { plain, past }); // a row that was changed after its read has a new ctid
    }
  }

  /**
   * Settles rows by ctid, if they were read on the same server and the session has been open since. After a
   * crash or a failover the server may reuse sequence numbers, so only ids identify a row then.
   */
  #settleInPlace(
    statement: Statement,
    rows: readonly LaneRow[],
    session: Queryable,
  ): ReturnType<BuildSettle> | undefined {
    const opened = findOrigin(session);
    if (opened === undefined) return undefined;
    const { server, sinceMs } = opened;
    if (!rows.every(({ origin }) => origin.server === server && origin.atMs > sinceMs)) return undefined;
    const seqs = rows.map(({ seq }) => seq).sort((a, b) => a - b);
    const ctids = toArrayLiteral(rows.map(({ ctid }) => ctid));
    return { statement, params: [ctids, toArrayLiteral(seqs), this.#options.relay] };
  }

  /**
   * Marks rows as failed. Returns the rows that another session has locked: their failure is not recorded and
   * counts no attempt.
   */
  async markFailed(failures: readonly FailedRow[]): Promise<readonly LaneRow[]> {
    const byRow = new Map(failures.map((failure) => [failure.row, failure]));
    const params = (rows: readonly LaneRow[]): Param[] => [
      ...rowKeyParams(rows),
      toArrayLiteral(rows.map((row) => byRow.get(row)?.delayMs ?? 0)),
      toArrayLiteral(rows.map((row) => byRow.get(row)?.error ?? "")),
    ];
    const own = await this.#run(this.#careful, [...byRow.keys()], {
      plain: (rows) => ({ statement: this.#sql.failed, params: params(rows) }),
      past: (rows) => ({ statement: this.#sql.failedPast, params: params(rows) }),
    });
    for (const row of own.rows) this.#options.reader.putBack([row], byRow.get(row)?.delayMs ?? 0);
    this.#options.reader.putBack(own.left, LOCKED_RECHECK_MS);
    return own.left;
  }

  /** Dead-letters rows. Rows that are neither settled nor tried later belong to another relay now. */
  async markDeadLettered(deaths: readonly DeadRow[]): Promise<SettledRows> {
    const byRow = new Map(deaths.map((death) => [death.row, death]));
    const params = (rows: readonly LaneRow[]): Param[] => {
      const list = (pick: (death: DeadRow) => string | boolean | null): string =>
        toArrayLiteral(rows.map((row) => pick(byRow.get(row) as DeadRow)));
      return [
        ...rowKeyParams(rows),
        list((death) => death.countsAsAttempt),
        list((death) => death.reason),
        list((death) => death.errorType),
        list((death) => death.errorMessage),
        list((death) => death.stack),
        list(({ row, ...death }) => computeFingerprint({ consumer: null, type: row.type, ...death })),
      ];
    };
    const { rows, left } = await this.#settle(this.#careful, [...byRow.keys()], {
      plain: (own) => ({ statement: this.#sql.dead, params: params(own) }),
      past: (own) => ({ statement: this.#sql.deadPast, params: params(own) }),
    });
    this.#options.reader.putBack(left, LOCKED_RECHECK_MS);
    return { settled: rows, later: left };
  }

  /** Puts back the rows that other sessions have locked, and stops waiting for them. */
  async giveUpLocked(): Promise<void> {
    await this.#locks.close();
  }

  async close(): Promise<void> {
    await Promise.all([this.#quick.close(), this.#careful.close()]);
    this.#locks.reopen();
  }

  async #settle(
    holder: SessionHolder,
    rows: readonly LaneRow[],
    variants: SettleVariants,
  ): Promise<SettleResult> {
    const settled = await this.#run(holder, rows, variants);
    this.#options.reader.settle(settled.rows, settled.xid);
    return settled;
  }

  async #run(
    holder: SessionHolder,
    rows: readonly LaneRow[],
    variants: SettleVariants,
  ): Promise<SettleResult> {
    const settled = await this.#locks.settle(holder, rows, variants);
    if (settled.woken.length > 0) this.#options.sent.wake(settled.woken);
    return settled;
  }
}

interface TypedMessage {
  readonly type: string;
  readonly topic: string;
}

/**
 * Counts messages per type and topic, so that metrics are emitted once per batch instead of once per message.
 */
export function countByType(
  messages: readonly TypedMessage[],
): (TypedMessage & { readonly count: number })[] {
  const counts: (TypedMessage & { count: number })[] = [];
  let last: (TypedMessage & { count: number }) | undefined;
  for (const { type, topic } of messages) {
    if (last?.type !== type || last.topic !== topic) {
      last = counts.find((seen) => seen.type === type && seen.topic === topic);
      if (last === undefined) counts.push((last = { type, topic, count: 0 }));
    }
    last.count += 1;
  }
  return counts;
}

const MAX_TEXT_LENGTH = 2_000;

/** Returns the error text as one line without control characters, at most 2,000 characters. */
export function printableErrorText(error: unknown): string {
  const text = errorText(error);
  return printable(text).slice(0, MAX_TEXT_LENGTH);
}

/** The moves of a claimed row that becomes a dead letter. */
const deadLetterMoves: Readonly<Record<DeadRow["reason"], readonly MoveName[]>> = {
  exhausted: ["publish_failed", "move_to_dlq"],
  rejected: ["reject"],
  expired: ["reject"],
};

/**
 * Creates the dead-letter entry of a row from the error that caused it. Throws OUTBOX_ILLEGAL_MOVE if an exhausted row
 * has attempts left.
 */
export function toDeadRow(row: LaneRow, reason: DeadRow["reason"], error?: Error): DeadRow {
  const { attempts, maxAttempts } = row;
  const claimed: MessageFacts = { state: "claimed", attempts, maxAttempts, due: true };
  const dead = deadLetterMoves[reason].reduce(applyMove, claimed);
  return {
    row,
    countsAsAttempt: dead.attempts > attempts,
    reason,
    errorType: error?.name ?? "MessageExpired",
    errorMessage:
      error === undefined ? "its time to live ended before it was sent" : printableErrorText(error),
    stack: error?.stack === undefined ? null : printable(error.stack, "\n").slice(0, 8_000),
  };
}

function printable(text: string, keep = ""): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}]/gu, (sign) => (keep.includes(sign) ? sign : " "));
}

/** Settles rows, retries until the database accepts it or the lanes are lost, and emits the result. */
export class PersistentSettler {
  readonly #settler: Settler;
  readonly #ownership: LaneOwnership;
  readonly #observer: Observer;

  constructor(settler: Settler, ownership: LaneOwnership, observer: Observer) {
    this.#settler = settler;
    this.#ownership = ownership;
    this.#observer = observer;
  }

  /** `doing` names the step in the event of a failed attempt. Returns undefined if the lanes were lost. */
  markSent(doing: string, rows: readonly LaneRow[]): Promise<SettledRows | undefined> {
    return this.#retryUntilLost(doing, () => this.#settler.markSent(rows));
  }

  /** Emits the sent rows, and how many another relay owns now. */
  emitSent(rows: readonly LaneRow[], sent: SettledRows | undefined, durationMs: number): void {
    const { settled, later } = sent ?? { settled: [], later: [] };
    for (const entry of countByType(settled))
      this.#observer.emit("relay.published", { ...entry, durationMs });
    const lost = rows.length - settled.length - later.length;
    if (lost > 0) this.#observer.emit("relay.lost", { lanes: 0, count: lost });
  }

  /** Returns the rows whose failure could not be recorded, because another session has locked them. */
  async markFailed(failed: readonly FailedRow[]): Promise<readonly LaneRow[]> {
    const locked =
      (await this.#retryUntilLost("recording failures", () => this.#settler.markFailed(failed))) ?? [];
    emitFailed(
      this.#observer,
      locked.length === 0 ? failed : failed.filter(({ row }) => !locked.includes(row)),
    );
    return locked;
  }

  /** Returns the rows that could not be dead-lettered, because another session has locked them. */
  async markDeadLettered(deadRows: readonly DeadRow[]): Promise<readonly LaneRow[]> {
    const { settled, later } = (await this.#retryUntilLost("dead-lettering messages", () =>
      this.#settler.markDeadLettered(deadRows),
    )) ?? {
      settled: [],
      later: [],
    };
    const deadLettered = new Set(settled);
    emitDeadLettered(
      this.#observer,
      deadRows.filter((death) => deadLettered.has(death.row)),
    );
    return later;
  }

  /** Emits `storage.failed`. */
  reportFailure(doing: string, error: unknown, retryInMs = 100): void {
    this.#observer.emit("storage.failed", { doing, error: printableErrorText(error), retryInMs });
  }

  // A sent row must be settled. Retries stop only when the lanes are lost: their new owner sends the rows
  // again.
  #retryUntilLost<T>(doing: string, work: () => Promise<T>): Promise<T | undefined> {
    return retryWithBackoff(work, {
      shouldContinue: () => this.#ownership.size > 0 || this.#ownership.remainingMs() > 0,
      onFailure: ({ error, retryInMs }) => this.reportFailure(doing, error, retryInMs),
    });
  }
}

function emitFailed(observer: Observer, failures: readonly FailedRow[]): void {
  for (const { row, delayMs, error } of failures) {
    const attempt = row.attempts + 1;
    observer.emit(
      "relay.failed",
      { ...messageNames(row), attempt, delayMs, reason: "rejected", error },
      telemetryContext(row),
    );
  }
}

function emitDeadLettered(observer: Observer, deadRows: readonly DeadRow[]): void {
  for (const { row, reason, errorMessage: error } of deadRows) {
    observer.emit(
      "dead_letter.buried",
      { origin: "outbox", consumer: null, ...messageNames(row), reason, error },
      telemetryContext(row),
    );
  }
}

function messageNames({ messageId, type, topic }: LaneRow): { id: string; type: string; topic: string } {
  return { id: messageId, type, topic };
}

function telemetryContext({ message }: LaneRow): TelemetryContext {
  return { traceparent: message?.traceparent, sagaId: message?.sagaId };
}
