import type { ConsumeMessage } from "amqplib";
import type { Message } from "../../message/index.ts";
import {
  type DeadLetterNote,
  type Delivery,
  fromWire,
  type RetryOptions,
  type Subscription,
} from "../../transport/index.ts";
import type { RabbitSettings } from "./options.ts";
import { attemptHeader, readCount, topicHeader, toTextHeaders } from "./properties.ts";
import type { Route } from "./topology.ts";

export interface DeliveryCallbacks {
  /** Acknowledges the message at the broker. */
  ack(): void;
  /** Publishes a copy for the retry and resolves when the broker has confirmed it. */
  retry(options: RetryOptions): Promise<void>;
  release(): Promise<void>;
  deadLetter(note: DeadLetterNote): Promise<void>;
  /** Called once when the delivery is settled or abandoned, so that it no longer counts towards the prefetch. */
  onClosed(): void;
}

interface DeliveryContents {
  readonly message: Message;
  readonly flaw?: Error;
  readonly attempt: number;
  readonly orderKey: string | null;
}

/** A message in flight to a consumer. It is settled once; an attempt to settle it that fails can be repeated. */
export class RabbitDelivery implements Delivery {
  readonly message: Message;
  readonly flaw?: Error;
  readonly attempt: number;
  readonly orderKey: string | null;
  readonly #callbacks: DeliveryCallbacks;
  readonly #lost = new AbortController();
  #state: "open" | "settling" | "settled" = "open";

  constructor(contents: DeliveryContents, callbacks: DeliveryCallbacks) {
    this.message = contents.message;
    if (contents.flaw !== undefined) this.flaw = contents.flaw;
    this.attempt = contents.attempt;
    this.orderKey = contents.orderKey;
    this.#callbacks = callbacks;
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  ack(): Promise<void> {
    return this.#settle(async () => this.#callbacks.ack());
  }

  retry(options: RetryOptions): Promise<void> {
    return this.#settle(async () => {
      await this.#callbacks.retry(options);
      this.#callbacks.ack();
    });
  }

  release(): Promise<void> {
    return this.#settle(() => this.#callbacks.release());
  }

  deadLetter(note: DeadLetterNote): Promise<void> {
    return this.#settle(async () => {
      await this.#callbacks.deadLetter(note);
      this.#callbacks.ack();
    });
  }

  /** Aborts the delivery because the broker delivers the message again. Later calls that settle it do nothing. */
  abandon(): void {
    if (this.#state === "settled") return;
    const settling = this.#state === "settling";
    this.#state = "settled";
    this.#lost.abort();
    if (!settling) this.#callbacks.onClosed();
  }

  async #settle(action: () => Promise<void>): Promise<void> {
    if (this.#state !== "open") return;
    this.#state = "settling";
    try {
      await action();
    } catch (error) {
      if (!this.#lost.signal.aborted) {
        this.#state = "open";
        throw error;
      }
    }
    this.#state = "settled";
    this.#callbacks.onClosed();
  }
}

/** A received message with what a delivery needs. */
export interface ReceivedDelivery {
  readonly message: Message;
  readonly flaw?: Error;
  readonly attempt: number;
  readonly orderKey: string | null;
  /** The attempts counted by retries; `attempt` also counts redeliveries beyond half of the delivery limit. */
  readonly attempts: number;
  readonly redeliveries: number;
  readonly topic: string;
}

interface Context {
  readonly subscription: Subscription;
  /** The routes of the subscription's topics, in their order. */
  readonly routes: readonly Route[];
  readonly settings: RabbitSettings;
}

/** Decodes a received message. A message that cannot be decoded has a `flaw`. */
export function readRaw(raw: ConsumeMessage, context: Context): ReceivedDelivery {
  const { subscription, settings } = context;
  const { headers } = raw.properties;
  const contentType = raw.properties.contentType as string | undefined;
  const topic = findTopic(raw, context);
  const texts = toTextHeaders(headers);
  const { message, flaw } = fromWire({ body: raw.content, headers: texts, contentType, topic, key: null });
  const redeliveries = readCount(headers, "x-delivery-count");
  const attempts = Math.max(1, readCount(headers, attemptHeader));
  const keyed = subscription.ordered && message.key !== null && flaw === undefined;
  return {
    message,
    ...(flaw === undefined ? {} : { flaw }),
    // From half of the delivery limit on, each redelivery counts as an attempt, so that a message that is never settled
    // runs out of attempts before the broker dead-letters it.
    attempt: attempts + Math.max(0, redeliveries - halfDeliveryLimit(settings)),
    orderKey: keyed ? `${message.topic}/${message.key}` : null,
    attempts,
    redeliveries,
    topic,
  };
}

/** Number of redeliveries that do not count as attempts. */
export const halfDeliveryLimit = ({ deliveryLimit }: RabbitSettings): number => Math.floor(deliveryLimit / 2);

// The topic is needed only for foreign messages, whose body does not name one. It must stay the same after a retry.
function findTopic({ fields, properties }: ConsumeMessage, { subscription, routes }: Context): string {
  const kept: unknown = properties.headers?.[topicHeader];
  if (typeof kept === "string") return kept;
  const { exchange, routingKey } = fields;
  const type = routingKey.slice(routingKey.indexOf(".") + 1, routingKey.lastIndexOf("."));
  const binding = `*.${type}.*`;
  const index = routes.findIndex(
    (route) =>
      route.exchange === exchange &&
      (route.binding === binding || route.binding === routingKey || route.binding === ""),
  );
  return subscription.topics[index]?.topic ?? routingKey;
}
