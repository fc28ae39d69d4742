import type { ConfirmChannel } from "amqplib";
import { SagaboxError } from "../../errors/index.ts";
import { systemClock } from "../../runtime/index.ts";
import type { PublishOutcome } from "../../transport/index.ts";
import { unreachable } from "./connection.ts";
import type { Parcel } from "./properties.ts";

/** One message between its sending and its outcome; the first outcome counts. */
class Sent {
  readonly outcome: Promise<PublishOutcome>;
  returned: string | undefined;
  #settle: (outcome: PublishOutcome) => void = () => undefined;

  constructor() {
    this.outcome = new Promise((resolve) => (this.#settle = resolve));
  }

  /** Answered by the broker, or given up by its channel. */
  answered(error: unknown): void {
    if (error === null)
      this.#settle(this.returned === undefined ? { kind: "published" } : unrouted(this.returned));
    else if (error instanceof Error && error.message === "message nacked") this.#settle(nacked());
    else this.giveUp(unknownFate("The connection to RabbitMQ was lost before it confirmed.", error));
  }

  refuse(cause: Error): void {
    const text = `RabbitMQ's protocol cannot carry this message: ${cause.message}`;
    this.#settle({ kind: "refused", error: new SagaboxError("ENVELOPE_INVALID", text, { cause }) });
  }

  giveUp(error: SagaboxError): void {
    this.#settle({ kind: "unknown", error });
  }
}

/** What one confirm channel has sent and not yet heard of. */
export class InFlight {
  readonly #channel: ConfirmChannel;
  readonly #byId = new Map<string, Set<Sent>>();
  #count = 0;
  #full = false;
  #open = true;
  #answeredAtMs = systemClock.monotonicMs();
  #wake: (() => void)[] = [];

  constructor(channel: ConfirmChannel) {
    this.#channel = channel;
    channel.on("return", ({ fields, properties }) => {
      const { exchange, routingKey } = fields;
      const reason = `exchange ${exchange}, routing key ${routingKey}`;
      for (const sent of this.#byId.get(idOf({ exchange, routingKey, properties })) ?? [])
        sent.returned = reason;
    });
    channel.on("drain", () => {
      this.#full = false;
      this.wake();
    });
    channel.on("close", () => {
      this.#open = false;
      this.wake();
    });
  }

  get open(): boolean {
    return this.#open;
  }

  /** Something is owed, and not one answer came for so long. */
  isStuck(silenceMs: number): boolean {
    return this.#count > 0 && systemClock.monotonicMs() - this.#answeredAtMs >= silenceMs;
  }

  /** All it holds becomes unknown. */
  abandon(): void {
    if (this.#open) this.#channel.close().catch(() => undefined);
  }

  hasRoom(most: number): boolean {
    return !this.#full && this.#count < most;
  }

  /** Resolves when anything may have changed. */
  change(): Promise<void> {
    return new Promise((resolve) => this.#wake.push(resolve));
  }

  wake(): void {
    for (const wake of this.#wake.splice(0)) wake();
  }

  send(parcel: Parcel): Sent {
    const sent = new Sent();
    const id = idOf(parcel);
    this.#remember(id, sent);
    try {
      const { exchange, routingKey, body, properties } = parcel;
      // False means that the buffer is full: this one is taken, the next has to wait.
      if (this.#count === 1) this.#answeredAtMs = systemClock.monotonicMs();
      this.#full = !this.#channel.publish(exchange, routingKey, body, properties, (error: unknown) => {
        this.#answeredAtMs = systemClock.monotonicMs();
        this.#forget(id, sent);
        sent.answered(error);
      });
    } catch (error) {
      this.#forget(id, sent);
      // What the client cannot write, it never will: a header or a text that does not fit.
      if (error instanceof RangeError || error instanceof TypeError) sent.refuse(error);
      else sent.answered(error);
    }
    return sent;
  }

  #remember(id: string, sent: Sent): void {
    const same = this.#byId.get(id);
    if (same === undefined) this.#byId.set(id, new Set([sent]));
    else same.add(sent);
    this.#count += 1;
  }

  #forget(id: string, sent: Sent): void {
    const same = this.#byId.get(id);
    if (same?.delete(sent) !== true) return;
    if (same.size === 0) this.#byId.delete(id);
    this.#count -= 1;
    this.wake();
  }
}

export type { Sent };

// A returned message is known by what it carries; two that are equal in this have the same fate.
function idOf({
  exchange,
  routingKey,
  properties,
}: Pick<Parcel, "exchange" | "routingKey" | "properties">): string {
  return `${exchange}\0${routingKey}\0${properties.messageId ?? ""}`;
}

export function unknownFate(message: string, cause?: unknown): SagaboxError {
  return new SagaboxError("TRANSPORT_TIMEOUT", message, cause === undefined ? {} : { cause });
}

function unrouted(where: string): PublishOutcome {
  const text = `RabbitMQ has no queue for the message: no consumer group has ever subscribed to it (${where}).`;
  return { kind: "rejected", error: new SagaboxError("TRANSPORT_UNROUTABLE", text) };
}

function nacked(): PublishOutcome {
  const text = "RabbitMQ did not take the message over: a queue it belongs to is full or not available.";
  return { kind: "unreachable", error: unreachable(text) };
}
