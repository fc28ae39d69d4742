import type { ConfigResourceTypeValue, Connection } from "@platformatic/kafka";
import { random, sleep } from "../../runtime/index.ts";
import { platformatic } from "./client.ts";
import { formatAddress, Connections, describeConnectionError } from "./connections.ts";
import { NoAnswerError } from "./driver.ts";
import type {
  ClusterView,
  Commit,
  CommittedAnswer,
  CommittedRequest,
  FetchedPartition,
  FetchRequest,
  Heartbeat,
  HeartbeatAnswer,
  KafkaDriver,
  NewTopic,
  OffsetAnswer,
  OffsetAt,
  PartitionAnswer,
  ProduceAnswer,
  ProduceRequest,
  ProducerIdentity,
  TopicAnswer,
  TopicPartition,
} from "./driver.ts";
import { isCoordinatorGone, codeText } from "./kafka-codes.ts";
import {
  sendCommit,
  sendFetchCommitted,
  sendHeartbeat,
  toCommittedAnswer,
  toHeartbeatAnswer,
} from "./wire-group.ts";
import { groupByTopic, toFetchedPartitions, flattenAnswers } from "./wire-forms.ts";
import { sendProduce, toProduceAnswers, writeProduceRequest, encodeBatches } from "./wire-produce.ts";
import type { Broker, KafkaSettings } from "./options.ts";

const CONTROL = "control";
const GROUP_KEY = 0;
const TOPIC: ConfigResourceTypeValue = 2;
const READ_COMMITTED = 1;
const MAX_IDENTITY_TRIES = 30;
const IDENTITY_WAIT_MS = 100;

/** The driver over the single requests of @platformatic/kafka; its producer and consumer are not used. */
export class WireDriver implements KafkaDriver {
  readonly #settings: KafkaSettings;
  readonly #connections: Connections;
  readonly #nodes = new Map<number, Broker>();
  #versions: ReadonlyMap<number, number> | undefined;

  constructor(settings: KafkaSettings) {
    this.#settings = settings;
    this.#connections = new Connections(settings);
  }

  async describe(topics: readonly string[]): Promise<ClusterView> {
    const { brokers, topics: found } = await this.#requestAnyNode((connection) =>
      platformatic.client.metadataV12.api.async(connection, [...topics], false, false),
    );
    for (const { nodeId, host, port } of brokers) this.#nodes.set(nodeId, { host, port });
    return {
      nodes: brokers.map(({ nodeId }) => nodeId),
      topics: found.map(({ name, topicId, errorCode, partitions }) => ({
        name: name ?? "",
        id: topicId,
        code: errorCode,
        partitions: partitions
          .toSorted((a, b) => a.partitionIndex - b.partitionIndex)
          .map(({ leaderId, replicaNodes }) => ({ leader: leaderId, replicas: replicaNodes.length })),
      })),
    };
  }

  async version(api: number): Promise<number | undefined> {
    if (this.#versions === undefined) {
      const { apiKeys } = await this.#requestAnyNode((connection) =>
        platformatic.client.apiVersionsV3.api.async(connection, "sagabox", "1"),
      );
      this.#versions = new Map(apiKeys.map(({ apiKey, maxVersion }) => [apiKey, maxVersion]));
    }
    return this.#versions.get(api);
  }

  async createTopics(topics: readonly NewTopic[]): Promise<readonly TopicAnswer[]> {
    const wanted = topics.map(({ name, partitions, replication, settings }) => ({
      name,
      numPartitions: partitions,
      replicationFactor: replication,
      assignments: [],
      configs: Object.entries(settings).map(([key, value]) => ({ name: key, value })),
    }));
    const answer = await this.#requestAnyNode((connection) =>
      platformatic.client.createTopicsV7.api.async(connection, wanted, this.#settings.timeoutMs, false),
    );
    return answer.topics.map(({ name, errorCode, errorMessage }) => ({
      name,
      code: errorCode,
      detail: errorMessage ?? "",
    }));
  }

  async topicSettings(topics: readonly string[]): Promise<Map<string, Map<string, string>>> {
    const resources = topics.map((resourceName) => ({
      resourceType: TOPIC,
      resourceName,
      configurationKeys: ["min.insync.replicas", "max.message.bytes"],
    }));
    const { results } = await this.#requestAnyNode((connection) =>
      platformatic.client.describeConfigsV4.api.async(connection, resources, false, false),
    );
    const seen = results.filter(({ errorCode }) => errorCode === 0);
    return new Map(
      seen.map(({ resourceName, configs }) => [
        resourceName,
        new Map(configs.map(({ name, value }) => [name, value ?? ""])),
      ]),
    );
  }

  // A cluster that has just come up hands out identities a moment after it answers.
  async newIdentity(): Promise<ProducerIdentity> {
    for (let tries = 1; ; tries++) {
      const answer = await this.#requestAnyNode((connection) =>
        platformatic.client.initProducerIdV5.api.async(connection, null, 60_000, -1n, -1),
      );
      if (answer.errorCode === 0) return { id: answer.producerId, epoch: answer.producerEpoch };
      if (!isCoordinatorGone(answer.errorCode) || tries === MAX_IDENTITY_TRIES)
        throw new NoAnswerError(`no producer id: ${codeText(answer.errorCode)}`, false, undefined);
      await sleep(IDENTITY_WAIT_MS);
    }
  }

  async produce(node: number, request: ProduceRequest): Promise<readonly ProduceAnswer[]> {
    const written = encodeBatches(request);
    const answer = await this.#requestNode("produce", node, (connection) =>
      sendProduce(connection, () => writeProduceRequest(request.timeoutMs, written)),
    );
    return toProduceAnswers(answer, written);
  }

  async fetch(lane: string, node: number, request: FetchRequest): Promise<readonly FetchedPartition[]> {
    const topics = groupByTopic(request.partitions, ({ topicId }) => topicId).map(
      ([topicId, partitions]) => ({
        topicId,
        partitions: partitions.map(({ partition, offset, maxBytes }) => ({
          partition,
          currentLeaderEpoch: -1,
          fetchOffset: BigInt(offset),
          lastFetchedEpoch: -1,
          partitionMaxBytes: maxBytes,
        })),
      }),
    );
    const { waitMs, maxBytes } = request;
    const ask = (connection: Connection) =>
      platformatic.client.fetchV17.api.async(
        connection,
        waitMs,
        1,
        maxBytes,
        READ_COMMITTED,
        0,
        -1,
        topics,
        [],
        "",
      );
    const answer = await this.#requestNode(lane, node, ask, waitMs);
    return toFetchedPartitions(answer, topics);
  }

  async offsets(
    node: number,
    at: OffsetAt,
    wanted: readonly TopicPartition[],
  ): Promise<readonly OffsetAnswer[]> {
    const timestamp = typeof at === "object" ? BigInt(at.timeMs) : at === "beginning" ? -2n : -1n;
    const topics = groupByTopic(wanted, ({ topic }) => topic).map(([name, partitions]) => ({
      name,
      partitions: partitions.map(({ partition }) => ({
        partitionIndex: partition,
        currentLeaderEpoch: -1,
        timestamp,
      })),
    }));
    const answer = await this.#requestNode(CONTROL, node, (connection) =>
      platformatic.client.listOffsetsV9.api.async(connection, -1, READ_COMMITTED, topics),
    );
    return flattenAnswers(answer.topics, ({ offset }) => ({ offset: Number(offset) }));
  }

  async coordinator(group: string): Promise<number> {
    const { coordinators } = await this.#requestAnyNode((connection) =>
      platformatic.client.findCoordinatorV6.api.async(connection, GROUP_KEY, [group]),
    );
    const [found] = coordinators;
    if (found === undefined || found.errorCode !== 0 || found.nodeId < 0)
      throw new Error(`no broker keeps group ${group} yet: ${codeText(found?.errorCode ?? 0)}`);
    this.#nodes.set(found.nodeId, { host: found.host, port: found.port });
    return found.nodeId;
  }

  heartbeat(lane: string, node: number, beat: Heartbeat): Promise<HeartbeatAnswer> {
    return this.#requestNode(lane, node, (connection) => sendHeartbeat(connection, beat)).then(
      toHeartbeatAnswer,
    );
  }

  async commit(lane: string, node: number, commit: Commit): Promise<readonly PartitionAnswer[]> {
    const answer = await this.#requestNode(lane, node, (connection) => sendCommit(connection, commit));
    return flattenAnswers(answer.topics, () => ({}));
  }

  committed(lane: string, node: number, request: CommittedRequest): Promise<CommittedAnswer> {
    return this.#requestNode(lane, node, (connection) => sendFetchCommitted(connection, request)).then(
      toCommittedAnswer,
    );
  }

  async groups(node: number): Promise<readonly string[]> {
    const answer = await this.#requestNode(CONTROL, node, (connection) =>
      platformatic.client.listGroupsV5.api.async(connection, [], []),
    );
    return answer.groups.map(({ groupId }) => groupId);
  }

  drop(lane: string): void {
    this.#connections.drop(lane);
  }

  close(): Promise<void> {
    return this.#connections.close();
  }

  #requestNode<T>(
    lane: string,
    node: number,
    request: (connection: Connection) => Promise<T>,
    waitMs?: number,
  ): Promise<T> {
    const broker = this.#nodes.get(node);
    if (broker === undefined) throw new NoAnswerError(`broker ${node} is not known`, false, undefined);
    return this.#connections.request(lane, broker, request, waitMs);
  }

  // Bootstrap addresses first, since they are what the user vouched for; then what the cluster told of itself.
  async #requestAnyNode<T>(request: (connection: Connection) => Promise<T>): Promise<T> {
    const known = [...this.#settings.brokers, ...this.#nodes.values()];
    const brokers = [...new Map(known.map((broker) => [formatAddress(broker), broker])).values()];
    const first = Math.floor(random() * this.#settings.brokers.length);
    let last: unknown;
    for (let n = 0; n < brokers.length; n++) {
      const broker = brokers[(first + n) % brokers.length];
      try {
        if (broker !== undefined) return await this.#connections.request(CONTROL, broker, request);
      } catch (error) {
        last = error;
      }
    }
    throw last instanceof NoAnswerError
      ? last
      : new NoAnswerError(describeConnectionError(last), false, last);
  }
}
