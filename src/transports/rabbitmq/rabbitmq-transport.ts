import type { Message } from "../../message/index.ts";
import { allProblems } from "../../options/index.ts";
import {
  type BrokerTopology,
  type PlannedGroup,
  assertCanBegin,
  type Capabilities,
  type Consumption,
  type Delivery,
  type PublishOptions,
  type PublishOutcome,
  type Subscription,
  type Transport,
} from "../../transport/index.ts";
import { planRabbitTopology } from "./planned-topology.ts";
import { amqp } from "./client.ts";
import { Link } from "./link.ts";
import { MessageCopier } from "./message-copier.ts";
import { readDepths } from "./depths.ts";
import { withEnvironment } from "./environment.ts";
import { rabbitSettings, type RabbitMQOptions, type RabbitSettings } from "./options.ts";
import { Publisher } from "./publisher.ts";
import { Subscriber } from "./subscriber.ts";
import { groupNames } from "./topology.ts";

/** Messages carried by RabbitMQ. */
export class RabbitMQTransport implements Transport {
  readonly name = "rabbitmq";
  readonly capabilities: Capabilities;
  readonly #settings: RabbitSettings;
  readonly #publishing: Link;
  readonly #consuming: Link;
  readonly #publisher: Publisher;
  readonly #courier: MessageCopier;
  readonly #subscribers = new Set<Subscriber>();

  constructor(settings: RabbitSettings) {
    this.#settings = settings;
    this.#publishing = new Link(settings, "publish");
    this.#consuming = new Link(settings, "consume");
    this.#publisher = new Publisher(this.#publishing, settings);
    // On a channel of its own: a queue that does not answer holds up everything behind it.
    const copies = new Publisher(this.#publishing, settings);
    this.#courier = new MessageCopier({ link: this.#publishing, publisher: copies, settings });
    this.capabilities = Object.freeze({
      ordersByKey: true,
      ordersRetries: false,
      failsLaterOfKey: false,
      delaysRedelivery: true,
      keepsUnrouted: false,
      rejectsUnrouted: settings.unrouted === "reject",
      // Streams do; events and commands begin when their queue is bound.
      replays: false,
      replaysFromTime: true,
      maxBytes: settings.maxBytes,
    });
  }

  declares(groups: readonly PlannedGroup[]): BrokerTopology {
    return planRabbitTopology(this.#settings, groups);
  }

  async open(): Promise<void> {
    await amqp.load();
    await this.#publishing.open();
  }

  publish(batch: readonly Message[], { signal }: PublishOptions): Promise<readonly PublishOutcome[]> {
    return this.#publisher.publish(batch, signal);
  }

  async subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption> {
    assertCanBegin(this, subscription.topics);
    await amqp.load();
    // A broker that is away keeps nobody from subscribing: the subscriber goes on trying and says so.
    await Promise.allSettled([this.#publishing.open(), this.#consuming.open()]);
    const subscriber = new Subscriber({
      link: this.#consuming,
      courier: this.#courier,
      settings: this.#settings,
      subscription,
      receive,
    });
    await subscriber.start();
    this.#subscribers.add(subscriber);
    return {
      pause: () => subscriber.pause(),
      deadLetter: (message, note) => subscriber.deadLetter(message, note),
      health: () => subscriber.health(),
      close: async () => {
        this.#subscribers.delete(subscriber);
        await subscriber.close();
      },
    };
  }

  /** Of groups this process is a member of or was told to watch: AMQP does not tell who else reads a topic. */
  async depths(topics: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const { watch, prefix, partitions } = this.#settings;
    const watched = watch.map((group) => ({
      topics: group.topics,
      queues: groupNames(prefix, group, group.ordered === false ? undefined : partitions).queues,
    }));
    return readDepths(this.#publishing, topics, [...this.#subscribers, ...watched]);
  }

  async close(): Promise<void> {
    await Promise.all([...this.#subscribers].map((subscriber) => subscriber.close()));
    this.#subscribers.clear();
    await Promise.all([this.#consuming.close(), this.#publishing.close()]);
  }
}

/** `createBus({ transport: rabbitmq({ url: "amqps://…" }) })` */
export function rabbitmq(options: RabbitMQOptions = {}): RabbitMQTransport {
  const settings = allProblems("The options of rabbitmq()", () =>
    rabbitSettings(withEnvironment(options, process.env)),
  );
  return new RabbitMQTransport(settings);
}
