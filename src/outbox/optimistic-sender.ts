import { toError } from "../errors/index.ts";
import { systemClock, withDeadline } from "../runtime/index.ts";
import {
  type Database,
  limitLockWait,
  quoteSchema,
  type Rows,
  SessionHolder,
  SETTLE_LOCK_WAIT_MS,
  settlingPlans,
  SQLSTATE,
  sqlState,
  toArrayLiteral,
} from "../storage/index.ts";
import { endSend, type Observer, silentSpans, type Spans, type TelemetryEvents } from "../telemetry/index.ts";
import type { LocalHop, Transport } from "../transport/index.ts";
import { planBatches, publishBatch, recordOutcomes, type SendBatch, type SendOutcome } from "./batches.ts";
import type { Destinations } from "./destinations.ts";
import { countByType, printableErrorText } from "./settler.ts";
import type { OutboxSettings } from "./options.ts";
import { type SentStatements, sentStatements, settleStatements } from "./statements.ts";
import type { LeasedMessage } from "./writer.ts";

export interface OptimisticSenderOptions {
  readonly database: Database;
  readonly schema: string;
  readonly worker: string;
  readonly transport: Transport;
  readonly hop?: LocalHop | undefined;
  readonly settings: OutboxSettings;
  readonly destinations: Destinations;
  readonly observer: Observer;
  readonly spans?: Spans;
  /** Called with the lanes of rows that were returned to the relay. */
  readonly onReleased: (lanes: readonly number[]) => void;
}

interface AddressedMessage {
  readonly topic: string;
  readonly messageId: string;
  readonly stream: string | null;
  readonly leased: LeasedMessage;
}

type ReleaseReason = TelemetryEvents["optimistic.failed"]["reason"];

interface WaitingMessage {
  readonly message: LeasedMessage;
  /** On the monotonic clock. After this time the message must not be sent from here. */
  readonly sendUntilMs: number;
}

/** How messages are sent: through the broker, or by the local hop of the transport. */
interface SendRoute {
  readonly open?: () => Promise<void>;
  /** Returns the messages that were not sent. */
  readonly send: (messages: readonly LeasedMessage[]) => Promise<readonly LeasedMessage[]>;
}

interface SettleAnswer {
  readonly woken?: readonly number[] | null;
  readonly left_out?: readonly string[];
}

/**
 * After a locked row was met, locked rows are skipped for this long instead of waited for, in milliseconds.
 */
const WARY_MS = 5_000;
const LOCKED = "another database session has locked its row, or that of an earlier message of its key";

/** Above this number of waiting messages, new ones are left to the relay. */
const MAX_WAITING = 1_000;
const MAX_BATCH_SIZE = 200;

/**
 * Sends messages that this process has just committed, without waiting for a relay to find them. The rows
 * were inserted with a lease of this process, so no relay touches them. If sending fails, the lease is
 * released and the relay takes over. The caller never waits for this and never fails because of it.
 */
export class OptimisticSender {
  readonly #options: OptimisticSenderOptions;
  readonly #sql: ReturnType<typeof settleStatements>;
  readonly #sent: SentStatements;
  readonly #route: SendRoute;
  readonly #session: SessionHolder;
  readonly #waiting: WaitingMessage[] = [];
  #sending: Promise<void> | undefined;
  #opening: Promise<void> | undefined;
  #closed = false;
  #waryUntilMs = -Infinity;

  constructor(options: OptimisticSenderOptions) {
    this.#options = options;
    const schema = quoteSchema(options.schema);
    this.#sql = settleStatements(schema);
    this.#sent = sentStatements(schema, options.hop);
    this.#route =
      options.hop === undefined
        ? { open: () => this.#ensureOpen(), send: (messages) => this.#publish(messages) }
        : { send: (messages) => this.#hop(messages) };
    const lockWaitMs = Math.min(SETTLE_LOCK_WAIT_MS, options.settings.optimisticTimeoutMs / 2);
    this.#session = new SessionHolder(options.database, "optimistic", {
      ...settlingPlans,
      ...limitLockWait(lockWaitMs),
      synchronous_commit: "off",
    });
  }

  /** True if a new message may be leased to this process. */
  get ready(): boolean {
    return this.#options.settings.optimistic && !this.#closed && this.#waiting.length < MAX_WAITING;
  }

  /**
   * Returns true if all these messages may be leased. Messages that could not be sent in time are left to the
   * relay from the start.
   */
  accepts(outgoing: readonly { readonly message: { readonly topic: string } }[]): boolean {
    const { destinations } = this.#options;
    const hasRoom = this.#waiting.length + outgoing.length <= MAX_WAITING;
    return this.ready && hasRoom && outgoing.every(({ message }) => destinations.accepts(message.topic));
  }

  /**
   * Length of the lease in milliseconds: twice the time to send, because half of it must be left when sending
   * starts.
   */
  get leaseMs(): number {
    return this.#options.settings.optimisticTimeoutMs * 2 + 500;
  }

  /**
   * Starts sending. `writtenAtMs` is the monotonic time before the INSERT was sent: the lease cannot have
   * started earlier.
   */
  send(messages: readonly LeasedMessage[], writtenAtMs: number): void {
    const sendUntilMs = writtenAtMs + this.leaseMs / 2;
    for (const message of messages) this.#waiting.push({ message, sendUntilMs });
    if (messages.length > 0) this.#sending ??= this.#sendAll();
  }

  /** True if no message is being sent. */
  get isIdle(): boolean {
    return this.#sending === undefined;
  }

  /** Waits for the messages in flight; the rest is left to the relay. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#sending;
    await this.#session.close();
  }

  async #sendAll(): Promise<void> {
    // Streams with a message that was left to the relay: later messages of the stream must not overtake it.
    const left = new Set<string>();
    while (this.#waiting.length > 0) {
      // Before the lease is checked, because opening the transport takes time out of the lease.
      if (this.#route.open !== undefined) await this.#route.open();
      const nowMs = systemClock.monotonicMs();
      const fresh: LeasedMessage[] = [];
      const late: LeasedMessage[] = [];
      for (const { message, sendUntilMs } of this.#waiting.splice(0, MAX_BATCH_SIZE)) {
        const mayGo = sendUntilMs > nowMs && !left.has(message.stream ?? "");
        (mayGo ? fresh : late).push(message);
        if (!mayGo) leaveToRelay([message], left);
      }
      try {
        // Fresh messages first: they must not become late while the others are released.
        if (fresh.length > 0) leaveToRelay(await this.#route.send(fresh), left);
        if (late.length > 0)
          await this.#release(
            late,
            "late",
            "half of its lease was over, or an earlier message of its key was left to the relay",
          );
      } catch (error) {
        leaveToRelay(fresh, left);
        this.#emitFailed(fresh.length + late.length, "error", printableErrorText(error)); // the leases expire
      }
    }
    this.#sending = undefined;
    if (this.#closed) await this.#session.close(); // the last message was committed while the bus stopped, after close()
  }

  /** Returns the messages that were not sent. */
  async #publish(messages: readonly LeasedMessage[]): Promise<readonly LeasedMessage[]> {
    const addressed = messages.map((leased) => ({
      topic: leased.message.topic,
      messageId: leased.message.id,
      stream: leased.stream,
      leased,
    }));
    const { batches, waiting } = planBatches(addressed, this.#options.destinations);
    const left = await Promise.all(batches.map((batch) => this.#publishBatch(batch)));
    const back = waiting.map(({ leased }) => leased);
    if (back.length > 0) await this.#release(back, "resting", "its destination does not answer, or is full");
    return [...left.flat(), ...back];
  }

  // In a process that only publishes, nothing else opens the transport. Never throws.
  async #ensureOpen(): Promise<void> {
    const { transport, settings } = this.#options;
    this.#opening ??= (async () => transport.open())().catch(() => void (this.#opening = undefined));
    await withDeadline(this.#opening, settings.optimisticTimeoutMs / 2, () => undefined);
  }

  async #hop(messages: readonly LeasedMessage[]): Promise<readonly LeasedMessage[]> {
    const { observer, settings, spans = silentSpans } = this.#options;
    const began = systemClock.monotonicMs();
    observer.emit("optimistic.attempted", { count: messages.length });
    const sending = spans.enabled
      ? spans.send(
          messages.map(({ message }) => message),
          "optimistic",
        )
      : undefined;
    let failure: Error | undefined;
    let left: readonly LeasedMessage[] = [];
    try {
      left = await withDeadline(this.#settle(messages), settings.optimisticTimeoutMs, () => {
        throw new Error(`no answer within ${settings.optimisticTimeoutMs} ms`);
      });
    } catch (error) {
      failure = toError(error);
      throw error;
    } finally {
      if (sending !== undefined) endSend(sending, () => failure);
    }
    const durationMs = systemClock.monotonicMs() - began;
    const sent = left.length === 0 ? messages : messages.filter((message) => !left.includes(message));
    if (sent.length > 0) this.#emitSent(sent, durationMs);
    if (left.length > 0) await this.#release(left, "error", LOCKED);
    return left;
  }

  async #publishBatch(batch: SendBatch<AddressedMessage>): Promise<readonly LeasedMessage[]> {
    const { observer, settings, transport, destinations, spans } = this.#options;
    const messages = batch.rows.map(({ leased }) => leased);
    const began = systemClock.monotonicMs();
    observer.emit("optimistic.attempted", { count: messages.length });
    // At least half of the lease is left, which covers this timeout: no relay can be sending these messages.
    const outcomes = await publishBatch(transport, messages, {
      timeoutMs: settings.optimisticTimeoutMs,
      wholeBatch: true,
      mayContinue: () => true,
      ...(spans === undefined ? {} : { traced: { spans, via: "optimistic" } }),
    });
    recordOutcomes(destinations, batch, outcomes);
    const sent = messages.filter((_, i) => outcomes[i]?.kind === "published");
    const durationMs = systemClock.monotonicMs() - began;
    if (sent.length > 0) await this.#settle(sent); // a relay sends a locked row again after its lease
    if (sent.length > 0) this.#emitSent(sent, durationMs);
    return this.#releaseUnsent(messages, outcomes);
  }

  async #releaseUnsent(
    messages: readonly LeasedMessage[],
    outcomes: readonly SendOutcome[],
  ): Promise<readonly LeasedMessage[]> {
    const left = messages.filter((_, i) => outcomes[i]?.kind !== "published");
    if (left.length === 0) return left;
    const cause = outcomes.find((outcome) => "error" in outcome);
    const reason = cause?.kind === "unknown" ? "timeout" : "error";
    await this.#release(
      left,
      reason,
      cause !== undefined && "error" in cause ? printableErrorText(cause.error) : "not attempted",
    );
    return left;
  }

  /** Returns the messages whose rows another session has locked, and those behind them on the same key. */
  async #settle(messages: readonly LeasedMessage[]): Promise<readonly LeasedMessage[]> {
    const session = await this.#session.get();
    const { worker } = this.#options;
    const params = [...leasedRowKeys(messages), worker];
    try {
      if (systemClock.monotonicMs() >= this.#waryUntilMs) {
        this.#wake(await session.run<SettleAnswer>(this.#sent.sentLeased, params));
        return [];
      }
    } catch (error) {
      if (sqlState(error) !== SQLSTATE.lockNotAvailable) throw error;
      this.#waryUntilMs = systemClock.monotonicMs() + WARY_MS;
    }
    const answer = await session.run<SettleAnswer>(this.#sent.sentLeasedPast, params);
    this.#wake(answer);
    const left = new Set(answer.rows[0]?.left_out?.map(Number));
    return messages.filter(({ seq }) => left.has(Number(seq)));
  }

  #wake({ rows }: Rows<SettleAnswer>): void {
    const woken = rows[0]?.woken;
    if (woken?.length) this.#sent.wake(woken);
  }

  async #release(messages: readonly LeasedMessage[], reason: ReleaseReason, error: string): Promise<void> {
    const session = await this.#session.get();
    await session.run(this.#sql.releaseLeased, leasedRowKeys(messages));
    this.#emitFailed(messages.length, reason, error);
    this.#options.onReleased([...new Set(messages.map((message) => message.lane))]);
  }

  #emitSent(messages: readonly LeasedMessage[], durationMs: number): void {
    const { observer } = this.#options;
    observer.emit("optimistic.succeeded", { count: messages.length, durationMs });
    for (const entry of countByType(messages.map(({ message }) => message))) {
      observer.emit("relay.published", { ...entry, durationMs });
    }
  }

  #emitFailed(count: number, reason: ReleaseReason, error: string): void {
    this.#options.observer.emit("optimistic.failed", { count, reason, error });
  }
}

function leaveToRelay(messages: readonly LeasedMessage[], streams: Set<string>): void {
  for (const { stream } of messages) if (stream !== null) streams.add(stream);
}

function leasedRowKeys(messages: readonly LeasedMessage[]): [string, string, string] {
  return [
    toArrayLiteral(messages.map(({ lane }) => lane)),
    toArrayLiteral(messages.map(({ seq }) => seq)),
    toArrayLiteral(messages.map(({ message }) => message.id)),
  ];
}

/** Above this number of unflushed messages the oldest are left to the relay. */
const MAX_UNFLUSHED = 10_000;

interface UnflushedMessage {
  readonly message: LeasedMessage;
  readonly writtenAtMs: number;
}

/**
 * Sends messages that were written in the caller's own transaction and leased to this process, once the
 * caller says that it has committed. Only rows that are committed are sent, so a rolled-back message never
 * is.
 */
export class Flusher {
  readonly #database: Database;
  readonly #sender: OptimisticSender;
  readonly #sql: ReturnType<typeof settleStatements>;
  #waiting: UnflushedMessage[] = [];

  constructor(database: Database, schema: string, sender: OptimisticSender) {
    this.#database = database;
    this.#sender = sender;
    this.#sql = settleStatements(quoteSchema(schema));
  }

  keep(messages: readonly LeasedMessage[], writtenAtMs: number): void {
    for (const message of messages) this.#waiting.push({ message, writtenAtMs });
    if (this.#waiting.length > MAX_UNFLUSHED) this.#waiting.splice(0, this.#waiting.length - MAX_UNFLUSHED);
  }

  async flush(): Promise<void> {
    const oldestMs = systemClock.monotonicMs() - this.#sender.leaseMs / 2;
    const waiting = this.#waiting.filter((entry) => entry.writtenAtMs > oldestMs);
    this.#waiting = [];
    if (waiting.length === 0) return;
    const { rows } = await this.#database.run<{ seq: string }>(
      this.#sql.committedLeased,
      leasedRowKeys(waiting.map(({ message }) => message)),
    );
    const committed = new Set(rows.map((row) => Number(row.seq)));
    for (const entry of waiting) {
      if (committed.has(entry.message.seq)) this.#sender.send([entry.message], entry.writtenAtMs);
      else this.#waiting.push(entry); // its transaction may still be open
    }
  }
}
