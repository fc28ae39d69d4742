import type { Channel } from "amqplib";
import type { Message } from "../../message/index.ts";
import { allProblems, type Environment, readBrokerEnvironment } from "../../options/index.ts";
import {
  assertCanBegin,
  type BrokerObject,
  type BrokerTopology,
  type Capabilities,
  type Consumption,
  type Delivery,
  type Lag,
  type PlannedGroup,
  type PublishOptions,
  type PublishOutcome,
  type Subscription,
  type Transport,
} from "../../transport/index.ts";
import { amqp, Link, type LiveConnection, unreachableError } from "./link.ts";
import { MessageCopier } from "./message-copier.ts";
import { type RabbitMQOptions, rabbitSettings, type RabbitSettings } from "./options.ts";
import { rabbitPermissions } from "./permissions.ts";
import { Publisher } from "./publisher.ts";
import { Subscriber } from "./subscriber.ts";
import { groupNames, offsetQueue, routeFor, sharedExchanges } from "./topology.ts";

/** The transport over RabbitMQ. Create it with `rabbitmq()`. */
export class RabbitMQTransport implements Transport {
  readonly name = "rabbitmq";
  readonly capabilities: Capabilities;
  readonly #settings: RabbitSettings;
  readonly #publishing: Link;
  readonly #consuming: Link;
  readonly #publisher: Publisher;
  readonly #copier: MessageCopier;
  readonly #subscribers = new Set<Subscriber>();

  constructor(settings: RabbitSettings) {
    this.#settings = settings;
    this.#publishing = new Link(settings, "publish");
    this.#consuming = new Link(settings, "consume");
    this.#publisher = new Publisher(this.#publishing, settings);
    // Copies use their own channel, because a queue that does not confirm blocks everything behind it on a channel.
    const copies = new Publisher(this.#publishing, settings);
    this.#copier = new MessageCopier({ link: this.#publishing, publisher: copies, settings });
    this.capabilities = Object.freeze({
      ordersByKey: true,
      ordersRetries: false,
      failsLaterOfKey: false,
      delaysRedelivery: true,
      keepsUnrouted: false,
      rejectsUnrouted: settings.unrouted === "reject",
      // Only streams can be replayed. Events and commands begin when their queue is bound.
      replays: false,
      replaysFromTime: true,
      reportsLag: true,
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
    // Subscribing succeeds while the broker is away: the subscriber keeps trying and reports it in health().
    await Promise.allSettled([this.#publishing.open(), this.#consuming.open()]);
    const subscriber = new Subscriber({
      link: this.#consuming,
      copier: this.#copier,
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

  /** Counts only groups of this process and of the `watch` option: AMQP does not list the readers of a topic. */
  async depths(topics: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const { watch, prefix, partitions } = this.#settings;
    const watched = watch.map((group) => ({
      topics: group.topics,
      queues: groupNames(prefix, group, group.ordered === false ? undefined : partitions).queues,
    }));
    return readDepths(this.#publishing, topics, [...this.#subscribers, ...watched]);
  }

  async lags(groups: readonly PlannedGroup[]): Promise<readonly Lag[]> {
    return readLags(this.#publishing, groups, this.#settings);
  }

  async close(): Promise<void> {
    await Promise.all([...this.#subscribers].map((subscriber) => subscriber.close()));
    this.#subscribers.clear();
    await Promise.all([this.#consuming.close(), this.#publishing.close()]);
  }
}

/**
 * Creates the RabbitMQ transport: `createBus({ transport: rabbitmq({ url: "amqps://…" }) })`. Options left out are
 * read from the environment. Throws OPTIONS_INVALID if an option is invalid.
 */
export function rabbitmq(options: RabbitMQOptions = {}): RabbitMQTransport {
  const settings = allProblems("The options of rabbitmq()", () =>
    rabbitSettings(withEnvironment(options, process.env)),
  );
  return new RabbitMQTransport(settings);
}

/** Fills in options that were left out from the environment. */
function withEnvironment(options: RabbitMQOptions, env: Environment): RabbitMQOptions {
  const { address, credentials, ca, format } = readBrokerEnvironment("rabbitmq", env);
  return {
    ...(address !== undefined && { url: address.split(",") }),
    ...(credentials !== undefined && { credentials }),
    ...(ca !== undefined && { tls: { ca } }),
    ...(format !== undefined && { format }),
    ...options,
  };
}

interface Group {
  readonly topics: readonly string[];
  readonly queues: readonly string[];
}

/** Returns depths by topic. A group's queues hold all its topics together, so a topic's depth is an upper bound. */
async function readDepths(
  link: Link,
  topics: readonly string[],
  groups: readonly Group[],
): Promise<ReadonlyMap<string, number>> {
  const { live } = link;
  if (live === undefined) throw unreachableError(`RabbitMQ cannot be reached: ${link.trouble}`);
  const depths = new Map<string, number>();
  for (const group of groups) {
    const found = group.topics.filter((topic) => topics.includes(topic));
    if (found.length === 0) continue;
    const depth = await readDepth(link, live, group.queues);
    if (depth === undefined) continue;
    for (const topic of found) depths.set(topic, Math.max(depth, depths.get(topic) ?? 0));
  }
  return depths;
}

/**
 * Counts the waiting messages of a group's queues. A queue that is missing, or whose node is down, is left out; if all
 * others are empty, the depth is unknown and undefined is returned.
 */
async function readDepth(
  link: Link,
  live: LiveConnection,
  queues: readonly string[],
): Promise<number | undefined> {
  const { messages, missing } = await countMessages(link, live, queues);
  return missing > 0 && messages === 0 ? undefined : messages;
}

/** Counts the messages that wait in these queues, without those in flight, and the queues that are missing. */
async function countMessages(
  link: Link,
  live: LiveConnection,
  queues: readonly string[],
): Promise<{ readonly messages: number; readonly missing: number }> {
  let messages = 0;
  let missing = 0;
  let channel: Channel | undefined;
  for (const queue of queues) {
    channel ??= await link.openChannel(live);
    try {
      messages += (await link.request(live, "counting messages", channel.checkQueue(queue))).messageCount;
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === 404)) throw error;
      missing += 1;
      channel = undefined; // the broker closes the channel when the queue does not exist
    }
  }
  if (channel !== undefined) await link.request(live, "closing a channel", channel.close());
  return { messages, missing };
}

/**
 * Counts the messages that wait for each group. Its queues hold all its topics together, and the age of a message is not
 * known before it is delivered. How far a group has read a stream is not known either.
 */
async function readLags(
  link: Link,
  groups: readonly PlannedGroup[],
  { prefix, partitions }: RabbitSettings,
): Promise<readonly Lag[]> {
  const { live } = link;
  if (live === undefined) throw unreachableError(`RabbitMQ cannot be reached: ${link.trouble}`);
  const lags: Lag[] = [];
  for (const planned of groups) {
    const { group } = planned;
    const queued = planned.topics.filter(({ kind }) => kind !== "stream").map(({ topic }) => topic);
    for (const { topic, kind } of planned.topics) {
      if (kind === "stream") lags.push({ group, topic, waiting: "unknown", oldestAgeSeconds: "unknown" });
    }
    const [first = null, ...more] = queued;
    if (first === null) continue;
    const { queues } = groupNames(prefix, planned, planned.ordered ? partitions : undefined);
    const { messages, missing } = await countMessages(link, live, queues);
    const waiting = missing > 0 ? "unknown" : messages;
    const oldestAgeSeconds = waiting === 0 ? 0 : "unknown";
    lags.push({ group, topic: more.length === 0 ? first : null, waiting, oldestAgeSeconds });
  }
  return lags;
}

/** Lists the objects that `declareGroup` creates for these groups. */
function planRabbitTopology(
  { prefix, partitions, broadcasts }: Pick<RabbitSettings, "prefix" | "partitions" | "broadcasts">,
  groups: readonly PlannedGroup[],
): BrokerTopology {
  const objects = new Map<string, BrokerObject>();
  const addObject = (kind: string, name: string, detail: string): void =>
    void objects.set(`${kind} ${name}`, { kind, name, detail });
  for (const planned of groups) {
    const names = groupNames(prefix, planned, planned.ordered ? partitions : undefined);
    for (const { topic, kind } of planned.topics) {
      const route = routeFor(topic, kind, { prefix, broadcasts });
      addObject("exchange", route.exchange, `${route.exchangeType}, durable`);
      if (route.streamQueue === undefined) {
        addObject("binding", `${route.exchange} → ${names.exchange}`, route.binding);
        continue;
      }
      addObject("queue", route.streamQueue, "stream, durable");
      addObject(
        "queue",
        offsetQueue(prefix, names.id, route.streamQueue),
        `how far ${planned.group} has read`,
      );
    }
    addObject(
      "exchange",
      names.exchange,
      `${planned.ordered ? "topic" : "fanout"}, copies for ${planned.group}`,
    );
    if (names.restExchange !== undefined)
      addObject("exchange", names.restExchange, "fanout, messages without a lane");
    for (const queue of names.queues) addObject("queue", queue, `durable, of ${planned.group}`);
    addObject("queue", names.deadLetterQueue, `dead letters of ${planned.group}`);
    addObject("queue", names.membersQueue, `counts the members of ${planned.group}`);
  }
  const shared = sharedExchanges(prefix);
  if (groups.length > 0) {
    addObject("exchange", shared.deadLetter, "direct, shared");
    addObject("exchange", shared.retry, "topic, shared");
    addObject("exchange", shared.back, "topic, shared");
  }
  return {
    objects: [...objects.values()],
    permissions: permissionLines({ prefix, partitions, broadcasts }, groups),
  };
}

function permissionLines(
  { prefix, partitions, broadcasts }: Pick<RabbitSettings, "prefix" | "partitions" | "broadcasts">,
  groups: readonly PlannedGroup[],
): string[] {
  const [first] = groups;
  if (first === undefined) return [];
  const { configure, write, read } = rabbitPermissions({
    service: first.service,
    consumes: groups.map(({ group, topics, ordered }) => ({ group, topics, ordered })),
    prefix,
    partitions,
    broadcasts: [...broadcasts],
  });
  return [`rabbitmqctl set_permissions <user> '${configure}' '${write}' '${read}'`];
}
