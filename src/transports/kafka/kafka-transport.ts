import { SagaboxError } from "../../errors/index.ts";
import type { Message } from "../../message/index.ts";
import { allProblems, type Environment, readBrokerEnvironment } from "../../options/index.ts";
import { withDeadline } from "../../runtime/index.ts";
import type {
  BrokerObject,
  BrokerTopology,
  Capabilities,
  Consumption,
  Delivery,
  Lag,
  PlannedGroup,
  PublishOptions,
  PublishOutcome,
  Subscription,
  Transport,
} from "../../transport/index.ts";
import { describeConnectionError, platformatic } from "./connections.ts";
import type { KafkaDriver } from "./driver.ts";
import { measureGroupLags } from "./group-lag.ts";
import { GroupLags } from "./group-offsets.ts";
import { type KafkaOptions, kafkaSettings, type KafkaSettings } from "./options.ts";
import { kafkaAclArguments, kafkaPermissions } from "./permissions.ts";
import { Publisher } from "./publisher.ts";
import { RecordCopier } from "./record-copier.ts";
import { Subscriber } from "./subscriber.ts";
import { planTopic, TopicDirectory, type TopicPurpose } from "./topic-directory.ts";
import { Topology } from "./topology.ts";
import { WireDriver } from "./wire-driver.ts";

const GROUP_HEARTBEAT = 68;
/** Bytes reserved for the envelope and the headers of a message. */
const MAX_ENVELOPE_BYTES = 65_536;

/** The transport over Apache Kafka 4. Create it with `kafka()`. */
export class KafkaTransport implements Transport {
  readonly name = "kafka";
  readonly capabilities: Capabilities;
  readonly #settings: KafkaSettings;
  readonly #driver: KafkaDriver;
  readonly #topology: Topology;
  readonly #directory: TopicDirectory;
  readonly #publisher: Publisher;
  readonly #lags: GroupLags;
  readonly #subscribers = new Set<Subscriber>();

  constructor(settings: KafkaSettings, driver: KafkaDriver = new WireDriver(settings)) {
    this.#settings = settings;
    this.#driver = driver;
    this.#topology = new Topology(settings.prefix);
    this.#directory = new TopicDirectory(driver, settings);
    this.#publisher = new Publisher(driver, this.#directory, settings, this.#topology);
    this.#lags = new GroupLags(driver);
    this.capabilities = Object.freeze({
      ordersByKey: true,
      ordersRetries: false,
      failsLaterOfKey: true,
      delaysRedelivery: true,
      keepsUnrouted: true,
      rejectsUnrouted: false,
      replays: true,
      replaysFromTime: true,
      reportsLag: true,
      maxBytes: Math.max(1_024, settings.topics.maxBytes - MAX_ENVELOPE_BYTES),
    });
  }

  declares(groups: readonly PlannedGroup[]): BrokerTopology {
    return planKafkaTopology(this.#settings, groups);
  }

  async open(): Promise<void> {
    await platformatic.load();
    const { connectTimeoutMs } = this.#settings;
    const request = this.#driver.describe([]).then(() => this.#driver.version(GROUP_HEARTBEAT));
    const version = await withDeadline(request, 2 * connectTimeoutMs, () => {
      throw new Error(`no answer within ${2 * connectTimeoutMs} ms`);
    }).catch((error: unknown) => {
      throw new SagaboxError(
        "TRANSPORT_UNREACHABLE",
        `Kafka cannot be reached: ${describeConnectionError(error)}`,
        {
          cause: error,
        },
      );
    });
    if (version === undefined || version < 1)
      throw new SagaboxError(
        "TRANSPORT_UNREACHABLE",
        "Kafka 4.0 or newer is needed for its consumer groups.",
      );
  }

  publish(batch: readonly Message[], options: PublishOptions): Promise<readonly PublishOutcome[]> {
    return this.#publisher.publish(batch, options);
  }

  async subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption> {
    await platformatic.load();
    const copies = new RecordCopier(this.#publisher, this.#settings, this.#topology, subscription);
    const subscriber = new Subscriber({
      driver: this.#driver,
      directory: this.#directory,
      topology: this.#topology,
      settings: this.#settings,
      copies,
      subscription,
      receive,
    });
    this.#subscribers.add(subscriber);
    await subscriber.start();
    return {
      pause: () => subscriber.pause(),
      deadLetter: (message, note) => copies.copyMessageToDeadLetters(message, note),
      health: () => subscriber.health(),
      close: async () => {
        this.#subscribers.delete(subscriber);
        await subscriber.close();
      },
    };
  }

  async depths(topics: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const names = new Map(topics.map((topic) => [this.#topology.topicName(topic), topic]));
    const lags = await this.#lags.findLargestLags(await this.#directory.describe([...names.keys()]));
    return new Map([...lags].map(([name, lag]) => [names.get(name) ?? name, lag]));
  }

  async lags(groups: readonly PlannedGroup[]): Promise<readonly Lag[]> {
    await platformatic.load();
    const parts = { driver: this.#driver, directory: this.#directory, topology: this.#topology };
    return measureGroupLags({ ...parts, settings: this.#settings }, groups);
  }

  async close(): Promise<void> {
    await Promise.all([...this.#subscribers].map((subscriber) => subscriber.close()));
    this.#subscribers.clear();
    this.#publisher.close();
    await this.#driver.close();
  }
}

/**
 * Creates the Kafka transport: `createBus({ transport: kafka({ brokers: ["localhost:9092"] }) })`. Options left out are
 * read from the environment. Throws OPTIONS_INVALID if an option is invalid.
 */
export function kafka(options: KafkaOptions = {}): KafkaTransport {
  const settings = allProblems("The options of kafka()", () =>
    kafkaSettings(withEnvironment(options, process.env)),
  );
  return new KafkaTransport(settings);
}

/** Fills in options that were left out from the environment. */
function withEnvironment(options: KafkaOptions, env: Environment): KafkaOptions {
  const { address, credentials, ca, mechanism, format } = readBrokerEnvironment("kafka", env);
  return {
    ...(address !== undefined && { brokers: address.split(",") }),
    ...(credentials !== undefined && { sasl: { mechanism: mechanism ?? "SCRAM-SHA-512", credentials } }),
    ...(ca !== undefined && { tls: { ca } }),
    ...(format !== undefined && { format }),
    ...options,
  };
}

/** Lists the topics and groups that these consumers need, with replication for a cluster of three or more brokers. */
export function planKafkaTopology(
  { prefix, topics: settings, retryStepsMs }: Pick<KafkaSettings, "prefix" | "topics" | "retryStepsMs">,
  groups: readonly PlannedGroup[],
): BrokerTopology {
  const names = new Topology(prefix);
  const objects = new Map<string, BrokerObject>();
  const addTopic = (name: string, purpose: TopicPurpose): void => {
    const { partitions, replication } = planTopic(name, purpose, settings, 3);
    objects.set(name, {
      kind: "topic",
      name,
      detail: `${purpose}, ${partitions} partitions, ${replication} copies`,
    });
  };
  for (const { service, group, topics } of groups) {
    for (const one of topics) {
      addTopic(names.topicName(one.topic), "messages");
      addTopic(names.deadLetterTopic(one.topic), "dead letters");
      retryStepsMs.forEach((_, n) => addTopic(names.retryTopic(one.topic, service, group, n + 1), "retry"));
    }
    const name = names.groupName(service, group);
    objects.set(`group ${name}`, { kind: "group", name, detail: `${topics.length} topic(s)` });
  }
  const [first] = groups;
  const permissions =
    first === undefined || prefix === undefined || prefix === ""
      ? []
      : kafkaAclArguments(kafkaPermissions({ principal: `User:${first.service}`, prefix }));
  return {
    objects: [...objects.values()],
    permissions: permissions.map((line) => `kafka-acls.sh --add ${line}`),
  };
}
