import { every, Loop, withDeadline, type CancelTimer } from "../../runtime/index.ts";
import type { Message } from "../../message/index.ts";
import type {
  Consumption,
  DeadLetterNote,
  Delivery,
  Subscription,
  TopicRequest,
} from "../../transport/index.ts";
import type { ConsumerInfo, JsMsg } from "@nats-io/jetstream";
import { heartbeatMsFor } from "./consumers.ts";
import { MessageCopier } from "./message-copier.ts";
import {
  checkStream,
  declareRetries,
  declareShared,
  declareSlots,
  type GroupParts,
} from "./declare-group.ts";
import { Dispatcher } from "./dispatcher.ts";
import { describeFailure } from "./failure.ts";
import { groupRecord } from "./group-record.ts";
import { unreachableError, type Link, type Session } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { Ownership } from "./ownership.ts";
import type { PartitionReader } from "./partition-reader.ts";
import { SharedReader } from "./shared-reader.ts";
import { TermOpener } from "./term.ts";
import { groupNames, streamNames } from "./topology.ts";

export interface SubscriberParts {
  readonly link: Link;
  readonly settings: NatsSettings;
  readonly subscription: Subscription;
  readonly receive: (delivery: Delivery) => void;
  readonly closed: (subscriber: Subscriber) => void;
}

const MAX_CONCURRENT = 100;

/** One member of a consumer group, through as many connections as it takes. */
export class Subscriber implements Consumption {
  readonly #parts: SubscriberParts;
  readonly #group: GroupParts;
  readonly #copies: MessageCopier;
  readonly #dispatcher: Dispatcher;
  readonly #ownership: Ownership | undefined;
  readonly #partitions = new Set<PartitionReader>();
  readonly #loop: Loop;
  readonly #stopListening: () => void;
  readonly #stopTicking: CancelTimer;
  #shared: SharedReader[] = [];
  #session: Session | undefined;
  #lastError: string | undefined;
  /** When the stream of messages was created that this member reads. */
  #streamCreated: string | undefined;
  #closed: Promise<void> | undefined;

  constructor(parts: SubscriberParts) {
    const { link, settings, subscription } = parts;
    const { service, group, topics, prefetch, ordered } = subscription;
    const names = groupNames(settings.prefix, service, group);
    const record = groupRecord(streamNames(settings.prefix).groups, names.record);
    const window = Math.max(4, Math.ceil((2 * prefetch) / settings.partitions));
    this.#parts = parts;
    this.#group = { settings, names, record, topics, window, streamCreated: () => this.#streamCreated };
    this.#copies = new MessageCopier(settings, names);
    this.#dispatcher = new Dispatcher({
      prefetch,
      ordered,
      receive: parts.receive,
      maxBytes: () => 2 * link.maxPayload,
      settled: () => this.#ownership?.checkDrained(),
      copyToRetry: (...of) => this.#copyToRetry(...of),
      copyToDeadLetters: (msg, note) => this.#copyToDeadLetters(msg, note),
    });
    this.#ownership = ordered ? this.#createOwnership() : undefined;
    this.#loop = new Loop({
      step: () => this.#runStep(),
      onError: (error) => this.#recordError(error),
      maxBackoffMs: 2_000,
    });
    this.#stopListening = link.onChange(() => this.#onLinkChange());
    this.#stopTicking = every(settings.ackWaitMs / 3, () => this.#keepAlive(), { unref: true });
  }

  /** Fails when the broker cannot be asked now; afterwards it helps itself. */
  async start(): Promise<void> {
    try {
      await this.#runStep();
      if (this.#session === undefined) throw this.#parts.link.trouble;
    } catch (error) {
      await this.close();
      throw error;
    }
    await this.#loop.start();
  }

  async deadLetter(message: Message, note: DeadLetterNote): Promise<void> {
    await this.#copies.copyMessageToDeadLetters(this.#requireSession(), message, note);
  }

  async pause(): Promise<void> {
    this.#dispatcher.pause();
    for (const reader of this.#shared) reader.pause();
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  health(): { readonly ok: boolean; readonly detail?: string } {
    const { link } = this.#parts;
    if (link.session === undefined) return { ok: false, detail: link.trouble.message };
    if (this.#lastError !== undefined) return { ok: false, detail: this.#lastError };
    if (this.#session === undefined) return { ok: false, detail: "connected, and about to subscribe again" };
    if (this.#ownership === undefined) return { ok: true };
    if (!this.#ownership.isValid()) return { ok: false, detail: "its lease is over, and not yet renewed" };
    if (this.#ownership.partitions > 0) return { ok: true };
    return { ok: true, detail: "stands by: other members serve all partitions" };
  }

  #createOwnership(): Ownership {
    const { settings, names, record, topics, window } = this.#group;
    const opener = new TermOpener({
      settings,
      names,
      window,
      valid: () => this.#ownership?.isValid() === true,
      arrived: () => this.#dispatcher.dispatch(),
      gone: (key) => this.#ownership?.dropTerm(key),
    });
    return new Ownership({
      record,
      hint: names.hint,
      topics: topics.map(({ topic }) => topic),
      leaseMs: settings.leaseMs,
      opener,
      checkStream: (session) => checkStream(session, this.#group),
      begin: (reader) => {
        this.#partitions.add(reader);
        this.#dispatcher.add(reader);
      },
      end: (reader) => {
        this.#partitions.delete(reader);
        this.#dispatcher.remove(reader);
      },
      holds: (reader) => this.#dispatcher.holds(reader),
      failed: (error) => this.#recordError(error),
      fine: () => (this.#lastError = undefined),
    });
  }

  /** Declares and reads everything anew whenever there is another connection. */
  async #runStep(): Promise<number> {
    const { session } = this.#parts.link;
    if (session === undefined || session === this.#session) return Infinity;
    await this.#startReading(session);
    if (session.over.aborted) return 0;
    this.#session = session;
    this.#lastError = undefined;
    return Infinity;
  }

  async #startReading(session: Session): Promise<void> {
    const { topics, settings } = this.#group;
    this.#dropConnection();
    const { created } = await session.jsm.streams.info(streamNames(settings.prefix).messages);
    const readers = topics.flatMap((request) => this.#createReaders(session, request));
    await Promise.all(readers.map((reader) => reader.declare()));
    if (this.#ownership !== undefined) await declareSlots(session, this.#group);
    if (session.over.aborted || this.#closed !== undefined) return;
    for (const reader of readers) this.#dispatcher.add(reader);
    this.#shared = readers;
    for (const reader of readers) await reader.start();
    await this.#ownership?.start(session);
    this.#streamCreated = created;
  }

  #createReaders(session: Session, request: TopicRequest): SharedReader[] {
    const { topic } = request;
    const retries = this.#createReader(session, topic, () => declareRetries(session, this.#group, topic));
    if (this.#ownership !== undefined) return [retries];
    return [retries, this.#createReader(session, topic, () => declareShared(session, this.#group, request))];
  }

  #createReader(session: Session, topic: string, declare: () => Promise<ConsumerInfo>): SharedReader {
    return new SharedReader({
      session,
      topic,
      declare,
      heartbeatMs: heartbeatMsFor(this.#parts.settings),
      batch: Math.min(MAX_CONCURRENT, this.#parts.subscription.prefetch),
      arrived: () => this.#dispatcher.dispatch(),
      failed: (error) => this.#recordError(error),
      fine: () => (this.#lastError = undefined),
    });
  }

  #onLinkChange(): void {
    if (this.#parts.link.session !== this.#session) this.#dropConnection();
    this.#loop.wake();
  }

  // What came through a connection that is gone is no longer ours, wherever it is now.
  #dropConnection(): void {
    this.#session = undefined;
    for (const reader of this.#shared.splice(0)) {
      void reader.stop();
      this.#dispatcher.remove(reader);
    }
    this.#ownership?.dropConnection();
  }

  async #close(): Promise<void> {
    const { settings, closed } = this.#parts;
    this.#dispatcher.pause();
    this.#stopListening();
    this.#stopTicking();
    const session = this.#session;
    const ended = (async () => {
      await this.#loop.stop();
      await this.#ownership?.leave();
      await Promise.all(this.#shared.map((reader) => reader.close()));
      await session?.nc.flush();
    })();
    await withDeadline(ended, settings.timeoutMs, () => undefined).catch(() => undefined);
    this.#dropConnection();
    closed(this);
  }

  #keepAlive(): void {
    if (this.#session === undefined) return;
    for (const reader of [...this.#shared, ...this.#partitions]) reader.keepAlive();
  }

  async #copyToRetry(msg: JsMsg, topic: string, attempt: number, delayMs: number): Promise<void> {
    await this.#copies.copyToRetry(this.#requireSession(), msg, topic, attempt, delayMs);
  }

  async #copyToDeadLetters(msg: JsMsg, note: DeadLetterNote): Promise<void> {
    await this.#copies.copyToDeadLetters(this.#requireSession(), msg, note);
  }

  #requireSession(): Session {
    const { link } = this.#parts;
    if (link.session === undefined) throw unreachableError("The connection to NATS is lost.");
    return link.session;
  }

  #recordError(error: unknown): void {
    const { link } = this.#parts;
    this.#lastError = link.missingStream?.message ?? describeFailure(error);
    if (link.session !== undefined) link.checkStreams(link.session);
  }
}
