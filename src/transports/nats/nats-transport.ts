import { isSagaboxError } from "../../errors/index.ts";
import type { Message } from "../../message/index.ts";
import { allProblems } from "../../options/index.ts";
import type {
  BrokerTopology,
  PlannedGroup,
  Capabilities,
  Consumption,
  Delivery,
  PublishOptions,
  PublishOutcome,
  Subscription,
  Transport,
} from "../../transport/index.ts";
import { planNatsTopology } from "./planned-topology.ts";
import { readDepths } from "./depths.ts";
import { Link, unreachableError } from "./link.ts";
import { withEnvironment } from "./environment.ts";
import { natsSettings, type NatsOptions, type NatsSettings } from "./options.ts";
import { Publisher } from "./publisher.ts";
import { Subscriber } from "./subscriber.ts";

/** NATS JetStream as the carrier of messages. */
export function nats(options: NatsOptions = {}): Transport {
  const settings = allProblems("The options of nats()", () =>
    natsSettings(withEnvironment(options, process.env)),
  );
  return new NatsTransport(settings);
}

/** What a message needs besides its data: envelope and headers. */
const ENVELOPE_BYTES = 16_384;

class NatsTransport implements Transport {
  readonly name = "nats";
  readonly capabilities: Capabilities;
  readonly #settings: NatsSettings;
  readonly #link: Link;
  readonly #publisher: Publisher;
  readonly #subscribers = new Set<Subscriber>();

  constructor(settings: NatsSettings) {
    const link = new Link(settings);
    this.#settings = settings;
    this.#link = link;
    this.#publisher = new Publisher(link, settings);
    this.capabilities = {
      ordersByKey: true,
      ordersRetries: false,
      failsLaterOfKey: false,
      delaysRedelivery: true,
      keepsUnrouted: true,
      rejectsUnrouted: false,
      replays: true,
      replaysFromTime: true,
      get maxBytes() {
        return Math.max(1_024, link.maxPayload - ENVELOPE_BYTES);
      },
    };
  }

  declares(groups: readonly PlannedGroup[]): BrokerTopology {
    return planNatsTopology(this.#settings, groups);
  }

  async open(): Promise<void> {
    await this.#link.open();
  }

  async publish(batch: readonly Message[], options: PublishOptions): Promise<readonly PublishOutcome[]> {
    return this.#publisher.publish(batch, options);
  }

  async subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption> {
    await this.#link.open();
    const subscriber = new Subscriber({
      link: this.#link,
      settings: this.#settings,
      subscription,
      receive,
      closed: (ended) => this.#subscribers.delete(ended),
    });
    this.#subscribers.add(subscriber);
    try {
      await subscriber.start();
    } catch (error) {
      await subscriber.close();
      // A connection that breaks while streams are being declared is an outage like any other.
      throw isSagaboxError(error)
        ? error
        : unreachableError("NATS was lost while a group subscribed.", error);
    }
    return subscriber;
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.#subscribers, (subscriber) => subscriber.close()));
    await this.#link.close();
  }

  async depths(topics: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const { session } = this.#link;
    if (session === undefined) throw this.#link.trouble;
    return readDepths(session, this.#settings, topics);
  }
}
