import type { ConsumerInfo, ConsumerMessages, JsMsg } from "@nats-io/jetstream";
import type { Source } from "./delivery.ts";
import type { Session } from "./link.ts";
import { say } from "./say.ts";

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
  /** False once the lease is over: nothing may be handed out then. */
  readonly valid: () => boolean;
  readonly arrived: () => void;
  /** The consumer is gone: somebody else took over, or deleted it. */
  readonly gone: () => void;
}

const rememberedMost = 2_000;

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
    const { session, info, window } = this.#parts;
    const consumer = session.js.consumers.getConsumerFromInfo(info);
    const messages = await consumer.consume({
      max_messages: window,
      expires: 30_000,
      callback: (msg) => this.#receive(msg),
    });
    if (this.#over) {
      messages.stop();
      return;
    }
    this.#messages = messages;
    void this.#watch(messages);
  }

  take(): JsMsg | undefined {
    if (this.#draining || this.#over || !this.#parts.valid()) return undefined;
    return this.#waiting.shift();
  }

  done(msg: JsMsg): void {
    if (this.#over || !this.#unsettled.delete(msg.seq)) return;
    this.#remember(msg.seq);
    say(() => msg.ack());
  }

  back(msg: JsMsg): void {
    if (this.#over || !this.#unsettled.has(msg.seq)) return;
    const place = this.#waiting.findIndex((later) => later.seq > msg.seq);
    this.#waiting.splice(place < 0 ? this.#waiting.length : place, 0, msg);
  }

  /** Tells the server that the messages here are being worked on. */
  keepAlive(): void {
    for (const msg of this.#unsettled.values()) say(() => msg.working());
  }

  /** Hands out nothing more. */
  drain(): void {
    this.#draining = true;
    this.#messages?.stop();
  }

  /** Where a successor has to begin, and what it need not do again. */
  position(): { readonly at: number; readonly done: readonly number[] } {
    const at = this.#first() ?? this.#seen + 1;
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
      if (!this.#unsettled.has(seq)) say(() => msg.ack()); // its acknowledgement was lost
      return;
    }
    this.#seen = seq;
    if (this.#settled.has(seq)) return say(() => msg.ack());
    this.#unsettled.set(seq, msg);
    this.#waiting.push(msg);
    this.#parts.arrived();
  }

  #first(): number | undefined {
    const { value } = this.#unsettled.keys().next();
    return value;
  }

  // Only what lies behind something unsettled needs to be remembered.
  #remember(seq: number): void {
    const first = this.#first() ?? Infinity;
    if (seq > first) {
      if (this.#settled.size < rememberedMost) this.#settled.add(seq);
      return;
    }
    for (const old of this.#settled) if (old < first && old <= this.#seen) this.#settled.delete(old);
  }

  async #watch(messages: ConsumerMessages): Promise<void> {
    for await (const { type } of messages.status()) {
      if (type === "consumer_deleted" || type === "consumer_not_found" || type === "stream_not_found") {
        if (!this.#over) this.#parts.gone();
        return;
      }
    }
  }
}
