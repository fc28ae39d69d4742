import type { LaneOwnership, LaneReader, LaneRow } from "../lanes/index.ts";
import type { Message } from "../message/index.ts";
import { decideRetry, type RetryPolicy } from "../retry/index.ts";
import { random, systemClock } from "../runtime/index.ts";
import { quoteSchema } from "../storage/index.ts";
import { endSend, type Observer, type Spans } from "../telemetry/index.ts";
import type { LocalHop, Transport } from "../transport/index.ts";
import {
  planBatches,
  publishBatch,
  recordOutcomes,
  type SendBatch,
  type SendOutcome,
  type SortedOutcomes,
  sortOutcomes,
} from "./batches.ts";
import type { Destinations } from "./destinations.ts";
import {
  type DeadRow,
  type FailedRow,
  LOCKED_RECHECK_MS,
  type PersistentSettler,
  printableErrorText,
  toDeadRow,
} from "./settler.ts";
import type { OutboxSettings } from "./options.ts";
import { type SentStatements, sentStatements } from "./statements.ts";

export interface BatchSenderOptions {
  readonly schema: string;
  readonly transport: Transport;
  readonly hop?: LocalHop | undefined;
  readonly settings: OutboxSettings;
  readonly destinations: Destinations;
  readonly observer: Observer;
  readonly spans?: Spans;
}

interface SenderParts {
  readonly ownership: LaneOwnership;
  readonly reader: LaneReader;
  readonly settler: PersistentSettler;
}

interface SendPlan {
  /** Batches that count against the relay's limit of concurrent batches. */
  readonly batches: readonly SendBatch<LaneRow>[];
  /** Batches that test a broker or contain suspect messages. A slow one must not stop the others. */
  readonly trials: readonly SendBatch<LaneRow>[];
  readonly waiting: readonly LaneRow[];
}

/** How a relay sends rows: through a broker, or by a local hop into the queue of its own database. */
export interface BatchSender {
  /** Splits rows that were read into batches to be sent now, and rows that wait for their destination. */
  plan(rows: readonly LaneRow[]): SendPlan;
  /** Sends a batch without expired rows, and settles its rows. */
  deliver(batch: SendBatch<LaneRow>): Promise<void>;
}

interface SenderChoice {
  /** Whether rows must be read together with their messages. */
  readonly readsMessages: boolean;
  readonly sent: SentStatements;
  readonly connect: (parts: SenderParts) => BatchSender;
}

/** Chooses the local hop if the transport has one, else the broker. */
export function chooseSender(options: BatchSenderOptions): SenderChoice {
  const { hop, spans } = options;
  const sent = sentStatements(quoteSchema(options.schema), hop);
  if (hop === undefined)
    return { readsMessages: true, sent, connect: (parts) => new BrokerSender(options, parts) };
  const readsMessages = spans?.enabled === true; // spans need the message
  return { readsMessages, sent, connect: ({ settler }) => new HopSender(settler, spans) };
}

/** Settling a row with the statements of the hop delivers it, so the broker's breakers and outcomes do not exist. */
class HopSender implements BatchSender {
  readonly #settler: PersistentSettler;
  readonly #spans: Spans | undefined;

  constructor(settler: PersistentSettler, spans: Spans | undefined) {
    this.#settler = settler;
    this.#spans = spans;
  }

  plan(rows: readonly LaneRow[]): SendPlan {
    return { batches: [{ rows }], trials: [], waiting: [] };
  }

  async deliver({ rows }: SendBatch<LaneRow>): Promise<void> {
    const began = systemClock.monotonicMs();
    const messages = rows.flatMap((row) => row.message ?? []);
    const sending = messages.length === 0 ? undefined : this.#spans?.send(messages, "relay");
    const settled = await this.#settler.markSent("handing a batch over", rows);
    if (sending !== undefined) endSend(sending, () => undefined);
    this.#settler.emitSent(rows, settled, systemClock.monotonicMs() - began);
  }
}

const ORPHAN_RECHECK_MS = 5_000;

type WholeRow = LaneRow & { readonly message: Message };

function isWhole(row: LaneRow): row is WholeRow {
  return row.message !== null;
}

/** Publishes rows through the transport, and settles each by its outcome. */
class BrokerSender implements BatchSender {
  readonly #options: BatchSenderOptions;
  readonly #ownership: LaneOwnership;
  readonly #reader: LaneReader;
  readonly #settler: PersistentSettler;

  constructor(options: BatchSenderOptions, parts: SenderParts) {
    this.#options = options;
    this.#ownership = parts.ownership;
    this.#reader = parts.reader;
    this.#settler = parts.settler;
  }

  // Expired rows get a batch of their own: they are not sent, so no breaker holds them back.
  plan(rows: readonly LaneRow[]): SendPlan {
    const expired = rows.filter((row) => row.expired);
    const alive = expired.length === 0 ? rows : rows.filter((row) => !row.expired);
    const { batches, waiting } = planBatches(alive, this.#options.destinations);
    const mainCount = batches[0]?.trial === undefined ? 1 : 0;
    const main = batches.slice(0, mainCount);
    return {
      batches: expired.length === 0 ? main : [...main, { rows: expired }],
      trials: batches.slice(mainCount),
      waiting,
    };
  }

  async deliver(batch: SendBatch<LaneRow>): Promise<void> {
    const began = systemClock.monotonicMs();
    const { destinations, transport, settings, spans } = this.#options;
    const readable = await this.#withoutUnreadable(batch.rows);
    const rows = this.#withoutOrphans(readable);
    const publish = (): Promise<SendOutcome[]> =>
      publishBatch(transport, rows, {
        timeoutMs: settings.publishTimeoutMs,
        gathered: true,
        mayContinue: () => this.#ownership.remainingMs() > 0 && rows.every((row) => this.#reader.holds(row)),
        ...(spans === undefined ? {} : { traced: { spans, via: "relay" } }),
      });
    const turn = batch.suspect === true ? await destinations.turns.take(publish) : undefined;
    const outcomes = turn?.result ?? (await publish());
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
    await this.#settler.markDeadLettered(deadRows);
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
    this.#settler.reportFailure(
      "finding the message of an outbox row",
      new Error(`no message ${orphans[0]?.messageId}`),
    );
    return rows.filter(isWhole).filter((row) => !streams.has(row.stream ?? row.seq));
  }

  async #settle(sorted: SortedOutcomes, durationMs: number): Promise<void> {
    const decisions = retryOrDeadLetter(sorted, this.#options.settings.retry, random);
    if (sorted.sent.length > 0) {
      const settled = await this.#settler.markSent("settling a batch", sorted.sent);
      this.#settler.emitSent(sorted.sent, settled, durationMs);
    }
    const locked = [
      ...(decisions.failed.length > 0 ? await this.#settler.markFailed(decisions.failed) : []),
      ...(decisions.dead.length > 0 ? await this.#settler.markDeadLettered(decisions.dead) : []),
    ];
    // If the failure of a row could not be recorded, its key waits too: otherwise the row would be sent again
    // immediately.
    const streams = new Set(locked.map(({ stream }) => stream));
    for (const row of sorted.skipped)
      this.#reader.putBack([row], streams.has(row.stream) ? LOCKED_RECHECK_MS : 0);
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
      { attempt: row.attempts + 1, uncountedBefore: 0 },
      { kind: "retryable" },
      random,
    );
    if (decision.kind === "dead") dead.push(toDeadRow(row, "exhausted", error));
    else failed.push({ row, delayMs: decision.delayMs, error: printableErrorText(error) });
  }
  return { failed, dead };
}
