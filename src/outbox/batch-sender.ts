import type { LaneOwnership, LaneReader, LaneRow } from "../lanes/index.ts";
import type { Message } from "../message/index.ts";
import { decideRetry, type RetryPolicy } from "../retry/index.ts";
import { random, sleep, systemClock } from "../runtime/index.ts";
import { endSend, type Observer, type Spans, type TelemetryContext } from "../telemetry/index.ts";
import type { LocalHop, Transport } from "../transport/index.ts";
import { recordOutcomes, type SendBatch } from "./batches.ts";
import { countByType } from "./count-by-type.ts";
import type { Destinations } from "./destinations.ts";
import { printableErrorText, toDeadRow } from "./failures.ts";
import type { OutboxSettings } from "./options.ts";
import { publishBatch, type SendOutcome, type SortedOutcomes, sortOutcomes } from "./publish-batch.ts";
import {
  type DeadRow,
  type FailedRow,
  LOCKED_RECHECK_MS,
  type SettledRows,
  type Settler,
} from "./settler.ts";

export interface BatchSenderOptions {
  readonly transport: Transport;
  readonly hop?: LocalHop | undefined;
  readonly settings: OutboxSettings;
  readonly destinations: Destinations;
  readonly observer: Observer;
  readonly spans?: Spans;
}

const ORPHAN_RECHECK_MS = 5_000;
const BROKEN_RECHECK_MS = 1_000;

type WholeRow = LaneRow & { readonly message: Message };

function isWhole(row: LaneRow): row is WholeRow {
  return row.message !== null;
}

/** Sends the rows that a relay has read, and settles them by their outcome. */
export class BatchSender {
  readonly #options: BatchSenderOptions;
  readonly #ownership: LaneOwnership;
  readonly #reader: LaneReader;
  readonly #settler: Settler;

  constructor(
    options: BatchSenderOptions,
    parts: { readonly ownership: LaneOwnership; readonly reader: LaneReader; readonly settler: Settler },
  ) {
    this.#options = options;
    this.#ownership = parts.ownership;
    this.#reader = parts.reader;
    this.#settler = parts.settler;
  }

  /** Never rejects: the relay does not await it, and a failing batch must not end the process. */
  async deliver(batch: SendBatch<LaneRow>): Promise<void> {
    try {
      await this.#deliver(batch);
    } catch (error) {
      this.#reader.putBack(batch.rows, BROKEN_RECHECK_MS);
      if (batch.trial !== undefined) this.#options.destinations.cancelTrial(batch.trial);
      this.#reportFailure("delivering a batch", error);
    }
  }

  async #deliver(batch: SendBatch<LaneRow>): Promise<void> {
    const began = systemClock.monotonicMs();
    const expired = batch.rows.filter((row) => row.expired);
    const alive = expired.length === 0 ? batch.rows : batch.rows.filter((row) => !row.expired);
    if (expired.length > 0) await this.#deadLetter(expired.map((row) => toDeadRow(row, "expired")));
    if (alive.length > 0) {
      await (this.#options.hop === undefined ? this.#publish({ ...batch, rows: alive }) : this.#hop(alive));
    }
    this.#options.observer.emit("relay.batch", {
      count: batch.rows.length,
      durationMs: systemClock.monotonicMs() - began,
    });
  }

  async #hop(rows: readonly LaneRow[]): Promise<void> {
    const began = systemClock.monotonicMs();
    const messages = rows.flatMap((row) => row.message ?? []);
    const sending = messages.length === 0 ? undefined : this.#options.spans?.send(messages, "relay");
    const settled = await this.#retryUntilLost("handing a batch over", () => this.#settler.markSent(rows));
    if (sending !== undefined) endSend(sending, () => undefined);
    this.#emitSent(rows, settled, systemClock.monotonicMs() - began);
  }

  async #publish(batch: SendBatch<LaneRow>): Promise<void> {
    const began = systemClock.monotonicMs();
    const { destinations, transport, settings, spans } = this.#options;
    const readable = await this.#withoutUnreadable(batch.rows);
    const rows = this.#withoutOrphans(readable);
    const send = (): Promise<SendOutcome[]> =>
      publishBatch(transport, rows, {
        timeoutMs: settings.publishTimeoutMs,
        gathered: true,
        mayContinue: () => this.#ownership.remainingMs() > 0 && rows.every((row) => this.#reader.holds(row)),
        ...(spans === undefined ? {} : { traced: { spans, via: "relay" } }),
      });
    const turn = batch.suspect === true ? await destinations.turns.take(send) : undefined;
    const outcomes = turn?.result ?? (await send());
    const sharedTurn = turn?.alone === false;
    const { waitMs, outcomes: judged } = recordOutcomes(
      destinations,
      { ...batch, rows, sharedTurn },
      outcomes,
    );
    const sorted = sortOutcomes(rows, judged);
    for (const { row } of sorted.unanswered) this.#reader.putBack([row], waitMs(row));
    await this.#settle(sorted, systemClock.monotonicMs() - began);
  }

  // A message that cannot be decoded is dead-lettered, because a retry would fail as well. Other rows of its
  // key are read again after that: the dead letter may hold the key.
  async #withoutUnreadable(rows: readonly LaneRow[]): Promise<readonly LaneRow[]> {
    if (rows.every((row) => row.flaw === undefined)) return rows;
    const deadRows = rows.flatMap((row) =>
      row.flaw === undefined ? [] : toDeadRow(row, "rejected", row.flaw),
    );
    const unreadable = new Set(deadRows.map(({ row }) => row));
    const streams = new Set(deadRows.flatMap(({ row }) => row.stream ?? []));
    await this.#deadLetter(deadRows);
    const others = rows.filter((row) => !unreadable.has(row));
    this.#reader.putBack(
      others.filter(({ stream }) => stream !== null && streams.has(stream)),
      0,
    );
    return others.filter(({ stream }) => stream === null || !streams.has(stream));
  }

  // A row without its message is read again later, with its successors: the message may just be moving to a
  // newer partition. If the message is lost, each read reports the row.
  #withoutOrphans(rows: readonly LaneRow[]): readonly WholeRow[] {
    if (rows.every(isWhole)) return rows;
    const orphans = rows.filter((row) => !isWhole(row));
    const streams = new Set(orphans.map((row) => row.stream ?? row.seq));
    const back = rows.filter((row) => streams.has(row.stream ?? row.seq));
    this.#reader.putBack(back, ORPHAN_RECHECK_MS);
    this.#reportFailure(
      "finding the message of an outbox row",
      new Error(`no message ${orphans[0]?.messageId}`),
    );
    return rows.filter(isWhole).filter((row) => !streams.has(row.stream ?? row.seq));
  }

  async #settle(sorted: SortedOutcomes, durationMs: number): Promise<void> {
    const decisions = retryOrDeadLetter(sorted, this.#options.settings.retry, random);
    if (sorted.sent.length > 0) {
      const settled = await this.#retryUntilLost("settling a batch", () =>
        this.#settler.markSent(sorted.sent),
      );
      this.#emitSent(sorted.sent, settled, durationMs);
    }
    const locked = [
      ...(decisions.failed.length > 0 ? await this.#recordFailures(decisions.failed) : []),
      ...(decisions.dead.length > 0 ? await this.#deadLetter(decisions.dead) : []),
    ];
    // If the failure of a row could not be recorded, its key waits too: otherwise the row would be sent again
    // immediately.
    const streams = new Set(locked.map(({ stream }) => stream));
    for (const row of sorted.skipped)
      this.#reader.putBack([row], streams.has(row.stream) ? LOCKED_RECHECK_MS : 0);
  }

  /** Returns the rows whose failure could not be recorded, because another session has locked them. */
  async #recordFailures(failed: readonly FailedRow[]): Promise<readonly LaneRow[]> {
    const locked =
      (await this.#retryUntilLost("recording failures", () => this.#settler.markFailed(failed))) ?? [];
    emitFailed(
      this.#options.observer,
      locked.length === 0 ? failed : failed.filter(({ row }) => !locked.includes(row)),
    );
    return locked;
  }

  /** Returns the rows that could not be dead-lettered, because another session has locked them. */
  async #deadLetter(deadRows: readonly DeadRow[]): Promise<readonly LaneRow[]> {
    const { settled, later } = (await this.#retryUntilLost("dead-lettering messages", () =>
      this.#settler.markDeadLettered(deadRows),
    )) ?? {
      settled: [],
      later: [],
    };
    const deadLettered = new Set(settled);
    emitDeadLettered(
      this.#options.observer,
      deadRows.filter((death) => deadLettered.has(death.row)),
    );
    return later;
  }

  // A sent row must be settled. Retries stop only when the lanes are lost: their new owner sends the rows
  // again.
  async #retryUntilLost<T>(doing: string, work: () => Promise<T>): Promise<T | undefined> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await work();
      } catch (error) {
        this.#reportFailure(doing, error);
        await sleep(Math.min(2_000, 50 * 2 ** Math.min(attempt, 6)) * (0.5 + random() / 2));
        if (this.#ownership.size === 0 && this.#ownership.remainingMs() <= 0) return undefined;
      }
    }
  }

  #emitSent(rows: readonly LaneRow[], sent: SettledRows | undefined, durationMs: number): void {
    const { observer } = this.#options;
    const { settled, later } = sent ?? { settled: [], later: [] };
    for (const entry of countByType(settled)) observer.emit("relay.published", { ...entry, durationMs });
    const lost = rows.length - settled.length - later.length;
    if (lost > 0) observer.emit("relay.lost", { lanes: 0, count: lost });
  }

  #reportFailure(doing: string, error: unknown): void {
    this.#options.observer.emit("storage.failed", {
      doing,
      error: printableErrorText(error),
      retryInMs: 100,
    });
  }
}

/** Pure: decides which failed rows are retried and which are dead-lettered. */
export function retryOrDeadLetter(
  sorted: Pick<SortedOutcomes, "rejected" | "refused">,
  policy: RetryPolicy,
  random: () => number,
): { readonly failed: FailedRow[]; readonly dead: DeadRow[] } {
  const failed: FailedRow[] = [];
  const dead: DeadRow[] = sorted.refused.map(({ row, error }) => toDeadRow(row, "rejected", error));
  for (const { row, error } of sorted.rejected) {
    const own = { ...policy, maxAttempts: row.maxAttempts };
    const decision = decideRetry(
      own,
      { attempt: row.attempts + 1, unchargedBefore: 0 },
      { kind: "retryable" },
      random,
    );
    if (decision.kind === "dead") dead.push(toDeadRow(row, "exhausted", error));
    else failed.push({ row, delayMs: decision.delayMs, error: printableErrorText(error) });
  }
  return { failed, dead };
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
