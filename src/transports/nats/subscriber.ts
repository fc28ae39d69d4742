import type { ConsumerInfo, JsMsg } from "@nats-io/jetstream";
import type { Message } from "../../message/index.ts";
import { type CancelTimer, every, Loop, withDeadline } from "../../runtime/index.ts";
import {
  cloudEventBindings,
  type Consumption,
  type DeadLetterNote,
  type Delivery,
  type Subscription,
  type TopicRequest,
  toWire,
} from "../../transport/index.ts";
import { heartbeatMsFor } from "./consumers.ts";
import {
  checkStream,
  declareRetries,
  declareShared,
  declareSlots,
  type GroupParts,
} from "./declare-group.ts";
import { type DeliveryParts, NatsDelivery, type Source } from "./delivery.ts";
import { describeFailure } from "./failure.ts";
import { groupRecord } from "./group-record.ts";
import { fromNatsHeaders, headerBytes, toNatsHeaders, transportHeaders } from "./header-mapping.ts";
import { type Link, type Session, unreachableError } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { tooLargeError } from "./outcome.ts";
import { Ownership } from "./ownership.ts";
import type { PartitionReader } from "./partition-reader.ts";
import { SharedReader } from "./shared-reader.ts";
import { TermOpener } from "./term.ts";
import { groupNames, type GroupNames, streamNames } from "./topology.ts";

export interface SubscriberParts {
  readonly link: Link;
  readonly settings: NatsSettings;
  readonly subscription: Subscription;
  readonly receive: (delivery: Delivery) => void;
  readonly closed: (subscriber: Subscriber) => void;
}

const MAX_CONCURRENT = 100;

/** One member of a consumer group. Subscribes again after each reconnect. */
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
  /** Creation time of the message stream that this member reads. */
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

  /** Subscribes. Rejects if the broker cannot be reached now; after that it recovers in the background. */
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
    if (this.#session === undefined) return { ok: false, detail: "connected, subscribing again" };
    if (this.#ownership === undefined) return { ok: true };
    if (!this.#ownership.isValid()) return { ok: false, detail: "its lease expired and is not renewed yet" };
    if (this.#ownership.partitions > 0) return { ok: true };
    return { ok: true, detail: "standby: other members read all partitions" };
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

  /** Declares the consumers and starts the readers again after each reconnect. */
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

  // Messages that were received through a lost connection will be redelivered, so their deliveries are abandoned.
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

interface DispatcherParts extends Pick<DeliveryParts, "ordered" | "copyToRetry" | "copyToDeadLetters"> {
  readonly prefetch: number;
  readonly maxBytes: () => number;
  readonly receive: (delivery: Delivery) => void;
  /** Called when a delivery is closed. */
  readonly settled: () => void;
}

/** Hands out messages of its sources in turn, with at most `prefetch` deliveries open. */
class Dispatcher {
  readonly #parts: DispatcherParts;
  readonly #open = new Set<NatsDelivery>();
  readonly #sources: Source[] = [];
  #turn = 0;
  #isPaused = false;
  #pumping = false;

  constructor(parts: DispatcherParts) {
    this.#parts = parts;
  }

  get paused(): boolean {
    return this.#isPaused;
  }

  add(source: Source): void {
    this.#sources.push(source);
  }

  pause(): void {
    this.#isPaused = true;
  }

  /** Removes a source and abandons its open deliveries. */
  remove(source: Source): void {
    const index = this.#sources.indexOf(source);
    if (index >= 0) this.#sources.splice(index, 1);
    for (const delivery of Array.from(this.#open)) if (delivery.source === source) delivery.abandon();
    this.dispatch();
  }

  /** Returns true if a delivery of this source is still open. */
  holds(source: Source): boolean {
    for (const delivery of this.#open) if (delivery.source === source) return true;
    return false;
  }

  // The receiver may settle within the call, which calls this method again.
  dispatch(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    try {
      while (!this.#isPaused && this.#open.size < this.#parts.prefetch && this.#deliverNext());
    } finally {
      this.#pumping = false;
    }
  }

  #deliverNext(): boolean {
    const count = this.#sources.length;
    for (let step = 0; step < count; step++) {
      const source = this.#sources[(this.#turn + step) % count];
      const msg = source?.takeNext();
      if (source === undefined || msg === undefined) continue;
      this.#turn = (this.#turn + step + 1) % count;
      this.#deliver(source, msg);
      return true;
    }
    return false;
  }

  #deliver(source: Source, msg: JsMsg): void {
    const { ordered, copyToRetry, copyToDeadLetters: copyToDead, maxBytes, receive } = this.#parts;
    const onClosed = (delivery: NatsDelivery): void => {
      this.#open.delete(delivery);
      this.#parts.settled();
      queueMicrotask(() => this.dispatch());
    };
    const delivery = new NatsDelivery({
      msg,
      source,
      ordered,
      maxBytes: maxBytes(),
      copyToRetry,
      copyToDeadLetters: copyToDead,
      onClosed,
    });
    this.#open.add(delivery);
    receive(delivery);
  }
}

/** Bytes reserved for the headers that the server reads, such as the copy's id. */
const SERVER_HEADER_BYTES = 1_024;

interface MessageCopy {
  readonly body: Uint8Array;
  /** Identifies the original message; equal for all its copies. */
  readonly original: string;
}

// The timestamp distinguishes messages with equal sequences if the stream was deleted and created again.
function toCopy(msg: JsMsg): MessageCopy {
  return { body: msg.data, original: `${msg.info.stream}/${msg.seq}/${msg.timestampNanos}` };
}

type HeaderTexts = Readonly<Record<string, string>>;

/**
 * Writes copies of a message for one group, with the original body and some more headers. A copy is confirmed before
 * the original is acknowledged. If a crash comes between the two, the next copy has the same id and the server drops it
 * as a duplicate.
 */
class MessageCopier {
  readonly #settings: NatsSettings;
  readonly #names: GroupNames;

  constructor(settings: NatsSettings, names: GroupNames) {
    this.#settings = settings;
    this.#names = names;
  }

  async copyToRetry(
    session: Session,
    msg: JsMsg,
    topic: string,
    attempt: number,
    delayMs: number,
  ): Promise<void> {
    const headers = {
      ...fromNatsHeaders(msg.headers),
      [transportHeaders.attempt]: String(attempt),
      [transportHeaders.delay]: String(Math.ceil(delayMs)),
    };
    const bytes = msg.data.length + headerBytes(headers) + SERVER_HEADER_BYTES;
    if (bytes > session.maxPayload) throw tooLargeError(bytes, session.maxPayload);
    const { retries } = streamNames(this.#settings.prefix);
    await this.#publishCopy(session, toCopy(msg), this.#names.retry(topic), retries, headers);
  }

  copyToDeadLetters(session: Session, msg: JsMsg, note: DeadLetterNote): Promise<void> {
    return this.#publishDeadLetter(session, toCopy(msg), fromNatsHeaders(msg.headers), note);
  }

  /** Writes a dead letter for a message that is no longer stored at the server. */
  copyMessageToDeadLetters(session: Session, message: Message, note: DeadLetterNote): Promise<void> {
    const { body, headers } = toWire(message, {
      format: this.#settings.format,
      binding: cloudEventBindings.nats,
    });
    return this.#publishDeadLetter(session, { body, original: message.id }, headers, note);
  }

  #publishDeadLetter(
    session: Session,
    copy: MessageCopy,
    own: HeaderTexts,
    note: DeadLetterNote,
  ): Promise<void> {
    const room = session.maxPayload - copy.body.length - headerBytes(own) - SERVER_HEADER_BYTES;
    const { dead } = streamNames(this.#settings.prefix);
    return this.#publishCopy(session, copy, this.#names.dead, dead, {
      ...own,
      ...fitNote({ ...note }, room),
    });
  }

  async #publishCopy(
    session: Session,
    copy: MessageCopy,
    subject: string,
    stream: string,
    headers: HeaderTexts,
  ): Promise<void> {
    const { timeoutMs } = this.#settings;
    const confirmed = session.js.publish(subject, copy.body, {
      headers: toNatsHeaders(headers),
      msgID: `${subject}/${copy.original}`,
      expect: { streamName: stream },
      timeout: timeoutMs,
    });
    await withDeadline(confirmed, timeoutMs + 100, () => {
      throw unreachableError(`NATS did not confirm a copy to ${subject}.`);
    }).catch((error: unknown) => {
      throw unreachableError(`NATS did not accept a copy to ${subject}.`, error);
    });
  }
}

const uncutFields = [
  "error_type",
  "retry_count",
  "failed_at",
  "source_topic",
  "consumer_group",
  "original_timestamp",
];

/**
 * Shortens the dead-letter headers to `room` bytes. Cuts the error message and the stack; returns no headers if even
 * the rest does not fit.
 */
export function fitNote(note: HeaderTexts, room: number): HeaderTexts {
  const entries = Object.entries(note);
  const kept = Object.fromEntries(
    entries.map(([name, value]) => [name, uncutFields.includes(name) ? value : ""]),
  );
  for (const name of ["error_message", "stack_trace"]) {
    let value = note[name] ?? "";
    while (value !== "" && headerBytes({ ...kept, [name]: value }) > room) {
      value = value.slice(0, Math.floor(value.length / 2));
    }
    kept[name] = value;
  }
  return headerBytes(kept) > room ? {} : kept;
}
