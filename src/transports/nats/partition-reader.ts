import type { ConsumerInfo, ConsumerMessages, JsMsg } from "@nats-io/jetstream";
import { apiCodes } from "./client.ts";
import { findConsumer } from "./consumers.ts";
import type { Source } from "./delivery.ts";
import type { Session } from "./link.ts";
import { trySend } from "./try-send.ts";
import { isApiError } from "./streams.ts";

export interface PartitionReaderParts {
  readonly session: Session;
  readonly topic: string;
  /** The durable consumer of this term of office. */
  readonly info: ConsumerInfo;
  /** The first sequence it may see. */
  readonly at: number;
  /** Sequences from there on that were settled before. */
  readonly settled: readonly number[];
  readonly window: number;
  /** How often the server sends a sign of life while there is nothing to deliver. */
  readonly heartbeatMs: number;
  /** False once the lease is over: nothing may be handed out then. */
  readonly valid: () => boolean;
  readonly arrived: () => void;
  /** The consumer is gone: somebody else took over, or deleted it. */
  readonly gone: () => void;
}

const MAX_REMEMBERED = 2_000;

/**
 * Reads one partition of one topic during one term of office. Messages come in the order of the stream; whatever the
 * server delivers a second time is recognised by its sequence and not handed out again.
 */
export class PartitionReader implements Source {
  readonly topic: string;
  readonly #parts: PartitionReaderParts;
  /** In order of sequence: what was received and is neither settled nor lost. */
  readonly #unsettled = new Map<number, JsMsg>();
  readonly #settled: Set<number>;
  /** Where the last acknowledgements went, as many as the window holds. */
  readonly #acknowledged: string[] = [];
  #waiting: JsMsg[] = [];
  #seen: number;
  #messages: ConsumerMessages | undefined;
  #draining = false;
  #over = false;

  constructor(parts: PartitionReaderParts) {
    this.topic = parts.topic;
    this.#parts = parts;
    this.#seen = parts.at - 1;
    this.#settled = new Set(parts.settled);
  }

  async start(): Promise<void> {
    const { session, info, window, heartbeatMs } = this.#parts;
    const consumer = session.js.consumers.getConsumerFromInfo(info);
    const messages = await consumer.consume({
      max_messages: window,
      expires: 30_000,
      idle_heartbeat: heartbeatMs,
      // Without it the client asks for the consumer before it pulls again, and waits 30 s after each failed question.
      bind: true,
      callback: (msg) => this.#receive(msg),
    });
    if (this.#over) {
      messages.stop();
      return;
    }
    this.#messages = messages;
    void this.#watch(messages);
  }

  takeNext(): JsMsg | undefined {
    if (this.#draining || this.#over || !this.#parts.valid()) return undefined;
    return this.#waiting.shift();
  }

  complete(msg: JsMsg): void {
    if (this.#over || !this.#unsettled.delete(msg.seq)) return;
    this.#remember(msg.seq);
    this.#acknowledge(msg);
  }

  putBack(msg: JsMsg): void {
    if (this.#over || !this.#unsettled.has(msg.seq)) return;
    const place = this.#waiting.findIndex((later) => later.seq > msg.seq);
    this.#waiting.splice(place < 0 ? this.#waiting.length : place, 0, msg);
  }

  /** Tells the server that the messages here are being worked on. */
  keepAlive(): void {
    for (const msg of this.#unsettled.values()) trySend(() => msg.working());
  }

  /** Hands out nothing more. */
  drain(): void {
    this.#draining = true;
    this.#messages?.stop();
  }

  /** Where a successor has to begin, and what it need not do again. */
  readPosition(): { readonly at: number; readonly done: readonly number[] } {
    const at = this.#firstUnsettled() ?? this.#seen + 1;
    return { at, done: [...this.#settled].filter((seq) => seq > at) };
  }

  stop(): void {
    this.#over = true;
    this.#messages?.stop();
    this.#waiting = [];
    this.#unsettled.clear();
  }

  #receive(msg: JsMsg): void {
    if (this.#over || this.#draining) return;
    const { seq } = msg;
    if (seq <= this.#seen) {
      if (!this.#unsettled.has(seq)) this.#acknowledge(msg); // its acknowledgement was lost
      return;
    }
    this.#seen = seq;
    if (this.#settled.has(seq)) return this.#acknowledge(msg);
    this.#unsettled.set(seq, msg);
    this.#waiting.push(msg);
    this.#parts.arrived();
  }

  #firstUnsettled(): number | undefined {
    const { value } = this.#unsettled.keys().next();
    return value;
  }

  // Only what lies behind something unsettled needs to be remembered.
  #remember(seq: number): void {
    const first = this.#firstUnsettled() ?? Infinity;
    if (seq > first) {
      if (this.#settled.size < MAX_REMEMBERED) this.#settled.add(seq);
      return;
    }
    for (const old of this.#settled) if (old < first && old <= this.#seen) this.#settled.delete(old);
  }

  async #watch(messages: ConsumerMessages): Promise<void> {
    for await (const { type } of messages.status()) {
      const isStalled = type === "heartbeats_missed" || type === "no_responders";
      if (type === "consumer_deleted" || (isStalled && !(await this.#resume()))) {
        if (!this.#over) this.#parts.gone();
        return;
      }
    }
  }

  /**
   * The consumer went silent: its leader died, or it was deleted. The client pulls again on its own. What was
   * acknowledged while there was no leader is acknowledged again, since it fills the window until `ackWait` is over.
   * Returns false if the consumer does not exist any more.
   */
  async #resume(): Promise<boolean> {
    const { session, info } = this.#parts;
    try {
      if ((await findConsumer(session.jsm, info.stream_name, info.name)) === undefined) return false;
    } catch (error) {
      return !isApiError(error, apiCodes.streamNotFound); // without an answer the next missed heartbeat asks again
    }
    for (const subject of this.#acknowledged) trySend(() => session.nc.publish(subject, "+ACK"));
    return true;
  }

  #acknowledge(msg: JsMsg): void {
    const subject = readAckSubject(msg);
    if (subject !== undefined && this.#acknowledged.push(subject) > this.#parts.window)
      this.#acknowledged.shift();
    trySend(() => msg.ack());
  }
}

// The client acknowledges a message once at most, and keeps the subject out of its types.
function readAckSubject(msg: JsMsg): string | undefined {
  const { reply } = msg as JsMsg & { readonly reply?: string };
  return reply === "" ? undefined : reply;
}
