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

/** Takes what was read through the transport, and settles it by what became of it. */
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

  /** Never rejects: nobody waits for it, and a process must not end over a batch. */
  async deliver(lot: SendBatch<LaneRow>): Promise<void> {
    try {
      await this.#deliver(lot);
    } catch (error) {
      this.#reader.putBack(lot.rows, BROKEN_RECHECK_MS);
      if (lot.trial !== undefined) this.#options.destinations.cancelTrial(lot.trial);
      this.#reportFailure("delivering a batch", error);
    }
  }

  async #deliver(lot: SendBatch<LaneRow>): Promise<void> {
    const began = systemClock.monotonicMs();
    const expired = lot.rows.filter((row) => row.expired);
    const alive = expired.length === 0 ? lot.rows : lot.rows.filter((row) => !row.expired);
    if (expired.length > 0) await this.#bury(expired.map((row) => toDeadRow(row, "expired")));
    if (alive.length > 0) {
      await (this.#options.hop === undefined ? this.#publish({ ...lot, rows: alive }) : this.#hop(alive));
    }
    this.#options.observer.emit("relay.batch", {
      count: lot.rows.length,
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

  async #publish(lot: SendBatch<LaneRow>): Promise<void> {
    const began = systemClock.monotonicMs();
    const { destinations, transport, settings, spans } = this.#options;
    const readable = await this.#withoutUnreadable(lot.rows);
    const rows = this.#withoutOrphans(readable);
    const send = (): Promise<SendOutcome[]> =>
      publishBatch(transport, rows, {
        timeoutMs: settings.publishTimeoutMs,
        gathered: true,
        mayGoOn: () => this.#ownership.remainingMs() > 0 && rows.every((row) => this.#reader.holds(row)),
        ...(spans === undefined ? {} : { traced: { spans, via: "relay" } }),
      });
    const turn = lot.doubted === true ? await destinations.turns.take(send) : undefined;
    const outcomes = turn?.result ?? (await send());
    const accompanied = turn?.alone === false;
    const { waitMs, outcomes: judged } = recordOutcomes(
      destinations,
      { ...lot, rows, accompanied },
      outcomes,
    );
    const sorted = sortOutcomes(rows, judged);
    for (const { row } of sorted.uncharged) this.#reader.putBack([row], waitMs(row));
    await this.#settle(sorted, systemClock.monotonicMs() - began);
  }

  // Nobody can send what cannot be read, and no later try makes it better. The others of its key come again when its
  // death is noted, since it may hold them back.
  async #withoutUnreadable(rows: readonly LaneRow[]): Promise<readonly LaneRow[]> {
    if (rows.every((row) => row.flaw === undefined)) return rows;
    const deaths = rows.flatMap((row) =>
      row.flaw === undefined ? [] : toDeadRow(row, "rejected", row.flaw),
    );
    const dying = new Set(deaths.map(({ row }) => row));
    const streams = new Set(deaths.flatMap(({ row }) => row.stream ?? []));
    await this.#bury(deaths);
    const others = rows.filter((row) => !dying.has(row));
    this.#reader.putBack(
      others.filter(({ stream }) => stream !== null && streams.has(stream)),
      0,
    );
    return others.filter(({ stream }) => stream === null || !streams.has(stream));
  }

  // A row whose message was not found goes back, with its successors: the message may just be on its way into a younger
  // partition. If it is really gone, the log says so again and again.
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
      ...(decisions.dead.length > 0 ? await this.#bury(decisions.dead) : []),
    ];
    // Behind a row whose failure could not be noted the key waits too, or that row would be sent again at once.
    const streams = new Set(locked.map(({ stream }) => stream));
    for (const row of sorted.skipped)
      this.#reader.putBack([row], streams.has(row.stream) ? LOCKED_RECHECK_MS : 0);
  }

  /** Returns the rows whose failure could not be noted, since another session has locked them. */
  async #recordFailures(failed: readonly FailedRow[]): Promise<readonly LaneRow[]> {
    const locked =
      (await this.#retryUntilLost("noting failures", () => this.#settler.markFailed(failed))) ?? [];
    emitFailed(
      this.#options.observer,
      locked.length === 0 ? failed : failed.filter(({ row }) => !locked.includes(row)),
    );
    return locked;
  }

  /** Returns the rows that could not be dead-lettered, since another session has locked them. */
  async #bury(deaths: readonly DeadRow[]): Promise<readonly LaneRow[]> {
    const { settled, later } = (await this.#retryUntilLost("burying messages", () =>
      this.#settler.markDeadLettered(deaths),
    )) ?? {
      settled: [],
      later: [],
    };
    const buried = new Set(settled);
    emitDeadLettered(
      this.#options.observer,
      deaths.filter((death) => buried.has(death.row)),
    );
    return later;
  }

  // What went out must be noted. Only the loss of the lanes ends the trying: then others will send it again.
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

  #emitSent(asked: readonly LaneRow[], sent: SettledRows | undefined, durationMs: number): void {
    const { observer } = this.#options;
    const { settled, later } = sent ?? { settled: [], later: [] };
    for (const entry of countByType(settled)) observer.emit("relay.published", { ...entry, durationMs });
    const lost = asked.length - settled.length - later.length;
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

/** Pure: which of a batch's failures get another attempt, and which have had their last. */
export function retryOrDeadLetter(
  sorted: Pick<SortedOutcomes, "charged" | "refused">,
  policy: RetryPolicy,
  random: () => number,
): { readonly failed: FailedRow[]; readonly dead: DeadRow[] } {
  const failed: FailedRow[] = [];
  const dead: DeadRow[] = sorted.refused.map(({ row, error }) => toDeadRow(row, "rejected", error));
  for (const { row, error } of sorted.charged) {
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

/** What people hear of rows that did not get through. */
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

function emitDeadLettered(observer: Observer, deaths: readonly DeadRow[]): void {
  for (const { row, reason, errorMessage: error } of deaths) {
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
