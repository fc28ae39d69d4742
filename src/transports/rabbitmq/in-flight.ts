import type { ConfirmChannel } from "amqplib";
import { SagaboxError } from "../../errors/index.ts";
import { systemClock } from "../../runtime/index.ts";
import type { PublishOutcome } from "../../transport/index.ts";
import { unreachableError } from "./link.ts";
import type { OutgoingMessage } from "./properties.ts";

const PUBLISHED: PublishOutcome = Object.freeze({ kind: "published" });

/** One message between its sending and its outcome; the first outcome counts. */
class SentMessage {
  readonly parcel: OutgoingMessage;
  readonly outcome: Promise<PublishOutcome>;
  returned: string | undefined;
  #settle: (outcome: PublishOutcome) => void = () => undefined;

  constructor(parcel: OutgoingMessage) {
    this.parcel = parcel;
    this.outcome = new Promise((resolve) => (this.#settle = resolve));
  }

  /** Answered by the broker, or given up by its channel. */
  settleWithAnswer(error: unknown): void {
    if (error === null)
      this.#settle(this.returned === undefined ? PUBLISHED : unroutedOutcome(this.returned));
    else if (error instanceof Error && error.message === "message nacked") this.#settle(nackedOutcome());
    else this.settleUnknown(timeoutError("The connection to RabbitMQ was lost before it confirmed.", error));
  }

  settleRefused(cause: Error): void {
    const text = `RabbitMQ's protocol cannot carry this message: ${cause.message}`;
    this.#settle({ kind: "refused", error: new SagaboxError("ENVELOPE_INVALID", text, { cause }) });
  }

  settleUnknown(error: SagaboxError): void {
    this.#settle({ kind: "unknown", error });
  }
}

/** What one confirm channel has sent and not yet heard of. */
export class InFlight {
  readonly #channel: ConfirmChannel;
  readonly #unanswered = new Set<SentMessage>();
  #full = false;
  #isOpen = true;
  #answeredAtMs = systemClock.monotonicMs();
  #wake: (() => void)[] = [];

  constructor(channel: ConfirmChannel) {
    this.#channel = channel;
    channel.on("return", ({ fields, properties }) => {
      const { exchange, routingKey } = fields;
      const reason = `exchange ${exchange}, routing key ${routingKey}`;
      for (const sent of this.#unanswered)
        if (isSame(sent.parcel, { exchange, routingKey, properties })) sent.returned = reason;
    });
    channel.on("drain", () => {
      this.#full = false;
      this.wake();
    });
    channel.on("close", () => {
      this.#isOpen = false;
      this.wake();
    });
  }

  get open(): boolean {
    return this.#isOpen;
  }

  /** Something is owed, and not one answer came for so long. */
  isStuck(silenceMs: number): boolean {
    return this.#unanswered.size > 0 && systemClock.monotonicMs() - this.#answeredAtMs >= silenceMs;
  }

  /** All it holds becomes unknown. */
  abandon(): void {
    if (this.#isOpen) this.#channel.close().catch(() => undefined);
  }

  hasRoom(most: number): boolean {
    return !this.#full && this.#unanswered.size < most;
  }

  /** Resolves when anything may have changed. */
  waitForChange(): Promise<void> {
    return new Promise((resolve) => this.#wake.push(resolve));
  }

  wake(): void {
    if (this.#wake.length === 0) return;
    for (const wake of this.#wake.splice(0)) wake();
  }

  send(parcel: OutgoingMessage): SentMessage {
    const sent = new SentMessage(parcel);
    this.#unanswered.add(sent);
    try {
      const { exchange, routingKey, body, properties } = parcel;
      // False means that the buffer is full: this one is taken, the next has to wait.
      if (this.#unanswered.size === 1) this.#answeredAtMs = systemClock.monotonicMs();
      this.#full = !this.#channel.publish(exchange, routingKey, body, properties, (error: unknown) => {
        this.#answeredAtMs = systemClock.monotonicMs();
        this.#forget(sent);
        sent.settleWithAnswer(error);
      });
    } catch (error) {
      this.#forget(sent);
      // What the client cannot write, it never will: a header or a text that does not fit.
      if (error instanceof RangeError || error instanceof TypeError) sent.settleRefused(error);
      else sent.settleWithAnswer(error);
    }
    return sent;
  }

  #forget(sent: SentMessage): void {
    if (this.#unanswered.delete(sent)) this.wake();
  }
}

export type { SentMessage };

type ReturnedFields = Pick<OutgoingMessage, "exchange" | "routingKey" | "properties">;

// A returned message is known by what it carries; two that are equal in this have the same fate.
function isSame(one: ReturnedFields, other: ReturnedFields): boolean {
  return (
    (one.properties.messageId ?? "") === (other.properties.messageId ?? "") &&
    one.routingKey === other.routingKey &&
    one.exchange === other.exchange
  );
}

export function timeoutError(message: string, cause?: unknown): SagaboxError {
  return new SagaboxError("TRANSPORT_TIMEOUT", message, cause === undefined ? {} : { cause });
}

function unroutedOutcome(where: string): PublishOutcome {
  const text = `RabbitMQ has no queue for the message: no consumer group has ever subscribed to it (${where}).`;
  return { kind: "rejected", error: new SagaboxError("TRANSPORT_UNROUTABLE", text) };
}

function nackedOutcome(): PublishOutcome {
  const text = "RabbitMQ did not take the message over: a queue it belongs to is full or not available.";
  return { kind: "unreachable", error: unreachableError(text) };
}
