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
  /** The durable consumer of this term. */
  readonly info: ConsumerInfo;
  /** The first sequence that this reader may hand out. */
  readonly at: number;
  /** Sequences from `at` on that were settled in an earlier term. */
  readonly settled: readonly number[];
  readonly window: number;
  /** Interval of the server's heartbeats while there is nothing to deliver, in milliseconds. */
  readonly heartbeatMs: number;
  /** Returns false once the lease has expired; nothing may be handed out then. */
  readonly valid: () => boolean;
  readonly arrived: () => void;
  /** Called when the consumer no longer exists: another member took over, or an operator deleted it. */
  readonly gone: () => void;
}

const MAX_REMEMBERED = 2_000;

/**
 * Reads one partition of one topic during one term, in stream order. A redelivered message is recognised by its
 * sequence and not handed out again.
 */
export class PartitionReader implements Source {
  readonly topic: string;
  readonly #parts: PartitionReaderParts;
  /** Messages that were received and are not settled, in order of their sequence. */
  readonly #unsettled = new Map<number, JsMsg>();
  readonly #settled: Set<number>;
  /** Reply subjects of the last acknowledgements, as many as the window holds. */
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
      // Without `bind`, the client looks up the consumer before each pull and waits 30 s after a failed lookup.
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
    const index = this.#waiting.findIndex((later) => later.seq > msg.seq);
    this.#waiting.splice(index < 0 ? this.#waiting.length : index, 0, msg);
  }

  /** Reports progress on all messages in flight, so that the server does not redeliver them. */
  keepAlive(): void {
    for (const msg of this.#unsettled.values()) trySend(() => msg.working());
  }

  /** Stops handing out messages. */
  drain(): void {
    this.#draining = true;
    this.#messages?.stop();
  }

  /** Returns the start sequence for the next term and the sequences above it that are already settled. */
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
      if (!this.#unsettled.has(seq)) this.#acknowledge(msg); // the server did not get the acknowledgement
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

  // Only sequences above an unsettled message need to be remembered.
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
   * Called when the consumer went silent: its leader died, or it was deleted. The client pulls again on its own.
   * Acknowledgements sent while there was no leader are sent again, because those messages would fill the window until
   * `ackWait` expires. Returns false if the consumer does not exist any more.
   */
  async #resume(): Promise<boolean> {
    const { session, info } = this.#parts;
    try {
      if ((await findConsumer(session.jsm, info.stream_name, info.name)) === undefined) return false;
    } catch (error) {
      return !isApiError(error, apiCodes.streamNotFound); // on no answer, the next missed heartbeat checks again
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

// The client sends at most one acknowledgement per message and does not expose the reply subject in its types.
function readAckSubject(msg: JsMsg): string | undefined {
  const { reply } = msg as JsMsg & { readonly reply?: string };
  return reply === "" ? undefined : reply;
}
