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
  type PlannedGroup,
  type PublishOptions,
  type PublishOutcome,
  type Subscription,
  type Transport,
} from "../../transport/index.ts";
import { amqp } from "./client.ts";
import { Link, type LiveConnection, unreachableError } from "./link.ts";
import { MessageCopier } from "./message-copier.ts";
import { type RabbitMQOptions, rabbitSettings, type RabbitSettings } from "./options.ts";
import { rabbitPermissions } from "./permissions.ts";
import { Publisher } from "./publisher.ts";
import { Subscriber } from "./subscriber.ts";
import { groupNames, offsetQueue, routeFor, sharedExchanges } from "./topology.ts";

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

/** The options, with what the environment says about whatever they leave open. */
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

/** A group's queues hold all its topics together, so the depth of each is at most what is told. */
async function readDepths(
  link: Link,
  topics: readonly string[],
  groups: readonly Group[],
): Promise<ReadonlyMap<string, number>> {
  const { live } = link;
  if (live === undefined) throw unreachableError(`RabbitMQ cannot be reached: ${link.trouble}`);
  const depths = new Map<string, number>();
  for (const group of groups) {
    const asked = group.topics.filter((topic) => topics.includes(topic));
    if (asked.length === 0) continue;
    const depth = await readDepth(link, live, group.queues);
    if (depth === undefined) continue;
    for (const topic of asked) depths.set(topic, Math.max(depth, depths.get(topic) ?? 0));
  }
  return depths;
}

/**
 * At least so many wait. A queue that is missing, or whose node is down, tells nothing: the others still count, and when
 * they are empty, or there are none, nothing is known.
 */
async function readDepth(
  link: Link,
  live: LiveConnection,
  queues: readonly string[],
): Promise<number | undefined> {
  let depth = 0;
  let silent = 0;
  let channel: Channel | undefined;
  for (const queue of queues) {
    channel ??= await link.openChannel(live);
    try {
      depth += (await link.request(live, "counting messages", channel.checkQueue(queue))).messageCount;
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === 404)) throw error;
      silent += 1;
      channel = undefined; // asking for what is not there costs the channel
    }
  }
  if (channel !== undefined) await link.request(live, "closing a channel", channel.close());
  return silent > 0 && depth === 0 ? undefined : depth;
}

/** What `declareGroup` makes for these groups, as a list. */
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
