import type { LaneOwnership, LaneRow } from "../lanes/index.ts";
import { retryWithBackoff } from "../runtime/index.ts";
import type { Observer, TelemetryContext } from "../telemetry/index.ts";
import { countByType, type DeadRow, type FailedRow, type SettledRows, type Settler } from "./settler.ts";
import { printableErrorText } from "./failures.ts";

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
