import type { ConsumerInfo, ConsumerMessages, JsMsg } from "@nats-io/jetstream";
import { Loop, systemClock } from "../../runtime/index.ts";
import type { Source } from "./delivery.ts";
import { transportHeaders } from "./header-mapping.ts";
import type { Session } from "./link.ts";
import { trySend } from "./try-send.ts";

export interface SharedReaderParts {
  readonly session: Session;
  readonly topic: string;
  /** Creates the consumer, or returns the existing one. */
  readonly declare: () => Promise<ConsumerInfo>;
  /** Interval of the server's heartbeats while there is nothing to deliver, in milliseconds. */
  readonly heartbeatMs: number;
  /** Maximum number of messages per pull. */
  readonly batch: number;
  readonly arrived: () => void;
  readonly failed: (error: unknown) => void;
  readonly fine: () => void;
}

const PULL_EXPIRES_MS = 10_000;

/** Reads a consumer that all members share: for retries, and for topics of groups without ordering. */
export class SharedReader implements Source {
  readonly topic: string;
  readonly #parts: SharedReaderParts;
  readonly #loop: Loop;
  readonly #unsettled = new Set<JsMsg>();
  #waiting: JsMsg[] = [];
  #info: ConsumerInfo | undefined;
  #messages: ConsumerMessages | undefined;
  #over = false;

  constructor(parts: SharedReaderParts) {
    this.topic = parts.topic;
    this.#parts = parts;
    this.#loop = new Loop({
      step: () => this.#step(),
      onError: (error) => {
        this.#info = undefined; // the consumer may have been deleted
        parts.failed(error);
      },
      maxBackoffMs: 5_000,
    });
  }

  async declare(): Promise<void> {
    this.#info = await this.#parts.declare();
  }

  async start(): Promise<void> {
    await this.#loop.start();
  }

  takeNext(): JsMsg | undefined {
    if (this.#over) return undefined;
    const msg = this.#waiting.shift();
    if (msg !== undefined && this.#waiting.length === 0) this.#loop.wake();
    return msg;
  }

  complete(msg: JsMsg): void {
    if (this.#unsettled.delete(msg) && !this.#over) trySend(() => msg.ack());
  }

  putBack(msg: JsMsg): void {
    if (this.#unsettled.delete(msg) && !this.#over) trySend(() => msg.nak());
  }

  keepAlive(): void {
    for (const msg of this.#unsettled) trySend(() => msg.working());
  }

  /** Stops pulling. */
  pause(): void {
    this.#messages?.stop();
    void this.#loop.stop();
  }

  /** Stops pulling and returns all messages in flight to the server. */
  async close(): Promise<void> {
    for (const msg of this.#unsettled) trySend(() => msg.nak());
    await this.stop();
  }

  /** Drops all messages in flight after the connection was lost. */
  async stop(): Promise<void> {
    this.#over = true;
    this.#unsettled.clear();
    this.#waiting = [];
    this.#messages?.stop();
    await this.#loop.stop();
  }

  async #step(): Promise<number> {
    if (this.#over) return Infinity;
    if (this.#waiting.length > 0) return Infinity;
    const { session, batch, heartbeatMs, declare, fine } = this.#parts;
    this.#info ??= await declare();
    const consumer = session.js.consumers.getConsumerFromInfo(this.#info);
    const pull = { max_messages: batch, expires: PULL_EXPIRES_MS, idle_heartbeat: heartbeatMs };
    const messages = await consumer.fetch(pull);
    this.#messages = messages;
    try {
      for await (const msg of messages) this.#receive(msg);
    } catch (error) {
      if (!hasLostLeader(error)) throw error;
      this.#info = undefined; // pull again once the consumer is found
    }
    this.#messages = undefined;
    fine();
    return 0;
  }

  // Servers before 2.12 cannot schedule messages: a copy that is not due yet is returned with its remaining delay.
  #receive(msg: JsMsg): void {
    if (this.#over) return;
    const waitMs = remainingDelayMs(msg);
    if (waitMs > 0) return trySend(() => msg.nak(waitMs));
    this.#unsettled.add(msg);
    this.#waiting.push(msg);
    this.#parts.arrived();
  }
}

// The leader of the consumer died or stepped down. That ends the current pull; the consumer still exists.
function hasLostLeader(error: unknown): boolean {
  return error instanceof Error && /^(heartbeats missed|leadership change)$/i.test(error.message);
}

// On the first delivery the delay counts from now, so clocks are not compared. A redelivered copy may come too early,
// because a member died before returning it or the server restarted; then the remaining delay counts from when the copy
// was stored.
function remainingDelayMs({ headers, info }: JsMsg): number {
  const delayMs = Number(headers?.get(transportHeaders.delay) || "0");
  if (!(delayMs > 0) || info.deliveryCount === 1) return delayMs;
  const storedMs = info.timestampNanos / 1_000_000;
  return Math.min(delayMs, Math.ceil(storedMs + delayMs - systemClock.wallMs()));
}
