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
import { heartbeatOf } from "./consumers.ts";
import { Copies } from "./copies.ts";
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
import { unreachable, type Link, type Session } from "./link.ts";
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

const mostAtOnce = 100;

/** One member of a consumer group, through as many connections as it takes. */
export class Subscriber implements Consumption {
  readonly #parts: SubscriberParts;
  readonly #group: GroupParts;
  readonly #copies: Copies;
  readonly #dispatcher: Dispatcher;
  readonly #ownership: Ownership | undefined;
  readonly #partitions = new Set<PartitionReader>();
  readonly #tending: Loop;
  readonly #stopListening: () => void;
  readonly #stopTicking: CancelTimer;
  #shared: SharedReader[] = [];
  #session: Session | undefined;
  #trouble: string | undefined;
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
    this.#copies = new Copies(settings, names);
    this.#dispatcher = new Dispatcher({
      prefetch,
      ordered,
      receive: parts.receive,
      maxBytes: () => 2 * link.maxPayload,
      settled: () => this.#ownership?.settled(),
      copyToRetry: (...of) => this.#retry(...of),
      copyToDead: (msg, note) => this.#bury(msg, note),
    });
    this.#ownership = ordered ? this.#own() : undefined;
    this.#tending = new Loop({
      step: () => this.#tend(),
      onError: (error) => this.#failed(error),
      maxBackoffMs: 2_000,
    });
    this.#stopListening = link.onChange(() => this.#changed());
    this.#stopTicking = every(settings.ackWaitMs / 3, () => this.#keepAlive(), { unref: true });
  }

  /** Fails when the broker cannot be asked now; afterwards it helps itself. */
  async start(): Promise<void> {
    try {
      await this.#tend();
      if (this.#session === undefined) throw this.#parts.link.trouble;
    } catch (error) {
      await this.close();
      throw error;
    }
    await this.#tending.start();
  }

  async deadLetter(message: Message, note: DeadLetterNote): Promise<void> {
    await this.#copies.deadMessage(this.#connected(), message, note);
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
    if (this.#trouble !== undefined) return { ok: false, detail: this.#trouble };
    if (this.#session === undefined) return { ok: false, detail: "connected, and about to subscribe again" };
    if (this.#ownership === undefined) return { ok: true };
    if (!this.#ownership.valid()) return { ok: false, detail: "its lease is over, and not yet renewed" };
    if (this.#ownership.partitions > 0) return { ok: true };
    return { ok: true, detail: "stands by: other members serve all partitions" };
  }

  #own(): Ownership {
    const { settings, names, record, topics, window } = this.#group;
    const opener = new TermOpener({
      settings,
      names,
      window,
      valid: () => this.#ownership?.valid() === true,
      arrived: () => this.#dispatcher.pump(),
      gone: (key) => this.#ownership?.gone(key),
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
      failed: (error) => this.#failed(error),
      fine: () => (this.#trouble = undefined),
    });
  }

  /** Declares and reads everything anew whenever there is another connection. */
  async #tend(): Promise<number> {
    const { session } = this.#parts.link;
    if (session === undefined || session === this.#session) return Infinity;
    await this.#begin(session);
    if (session.over.aborted) return 0;
    this.#session = session;
    this.#trouble = undefined;
    return Infinity;
  }

  async #begin(session: Session): Promise<void> {
    const { topics, settings } = this.#group;
    this.#cut();
    const { created } = await session.jsm.streams.info(streamNames(settings.prefix).messages);
    const readers = topics.flatMap((request) => this.#readers(session, request));
    await Promise.all(readers.map((reader) => reader.declare()));
    if (this.#ownership !== undefined) await declareSlots(session, this.#group);
    if (session.over.aborted || this.#closed !== undefined) return;
    for (const reader of readers) this.#dispatcher.add(reader);
    this.#shared = readers;
    for (const reader of readers) await reader.start();
    await this.#ownership?.begin(session);
    this.#streamCreated = created;
  }

  #readers(session: Session, request: TopicRequest): SharedReader[] {
    const { topic } = request;
    const retries = this.#reader(session, topic, () => declareRetries(session, this.#group, topic));
    if (this.#ownership !== undefined) return [retries];
    return [retries, this.#reader(session, topic, () => declareShared(session, this.#group, request))];
  }

  #reader(session: Session, topic: string, declare: () => Promise<ConsumerInfo>): SharedReader {
    return new SharedReader({
      session,
      topic,
      declare,
      heartbeatMs: heartbeatOf(this.#parts.settings),
      batch: Math.min(mostAtOnce, this.#parts.subscription.prefetch),
      arrived: () => this.#dispatcher.pump(),
      failed: (error) => this.#failed(error),
      fine: () => (this.#trouble = undefined),
    });
  }

  #changed(): void {
    if (this.#parts.link.session !== this.#session) this.#cut();
    this.#tending.wake();
  }

  // What came through a connection that is gone is no longer ours, wherever it is now.
  #cut(): void {
    this.#session = undefined;
    for (const reader of this.#shared.splice(0)) {
      void reader.stop();
      this.#dispatcher.remove(reader);
    }
    this.#ownership?.cut();
  }

  async #close(): Promise<void> {
    const { settings, closed } = this.#parts;
    this.#dispatcher.pause();
    this.#stopListening();
    this.#stopTicking();
    const session = this.#session;
    const ended = (async () => {
      await this.#tending.stop();
      await this.#ownership?.leave();
      await Promise.all(this.#shared.map((reader) => reader.close()));
      await session?.nc.flush();
    })();
    await withDeadline(ended, settings.timeoutMs, () => undefined).catch(() => undefined);
    this.#cut();
    closed(this);
  }

  #keepAlive(): void {
    if (this.#session === undefined) return;
    for (const reader of [...this.#shared, ...this.#partitions]) reader.keepAlive();
  }

  async #retry(msg: JsMsg, topic: string, attempt: number, delayMs: number): Promise<void> {
    await this.#copies.retry(this.#connected(), msg, topic, attempt, delayMs);
  }

  async #bury(msg: JsMsg, note: DeadLetterNote): Promise<void> {
    await this.#copies.deadLetter(this.#connected(), msg, note);
  }

  #connected(): Session {
    const { link } = this.#parts;
    if (link.session === undefined) throw unreachable("The connection to NATS is lost.");
    return link.session;
  }

  #failed(error: unknown): void {
    const { link } = this.#parts;
    this.#trouble = link.missingStream?.message ?? describeFailure(error);
    if (link.session !== undefined) link.checkStreams(link.session);
  }
}
