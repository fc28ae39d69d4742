import type {
  ConfigResourceTypeValue,
  Connection,
  consumerGroupHeartbeatV1,
  offsetCommitV9,
  offsetFetchV9,
  produceV11,
  Writer,
} from "@platformatic/kafka";
import { random, sleep } from "../../runtime/index.ts";
import { Connections, describeConnectionError, formatAddress, platformatic } from "./connections.ts";
import {
  type ClusterView,
  type Commit,
  type CommittedAnswer,
  type CommittedRequest,
  type FetchedPartition,
  type FetchRequest,
  type Heartbeat,
  type HeartbeatAnswer,
  type KafkaDriver,
  type NewTopic,
  NoAnswerError,
  type OffsetAnswer,
  type OffsetAt,
  type OutgoingRecord,
  type PartitionAnswer,
  type ProduceAnswer,
  type ProduceBatch,
  type ProduceRequest,
  type ProducerIdentity,
  type TopicAnswer,
  type TopicPartition,
} from "./driver.ts";
import { codeText, isCoordinatorGone } from "./kafka-codes.ts";
import type { Broker, KafkaSettings } from "./options.ts";
import { varintBytes, writeVarint } from "./record-buffer.ts";
import { flattenAnswers, groupByTopic, toFetchedPartitions } from "./wire-forms.ts";

const CONTROL = "control";
const GROUP_KEY = 0;
const TOPIC: ConfigResourceTypeValue = 2;
const READ_COMMITTED = 1;
const MAX_IDENTITY_TRIES = 30;
const IDENTITY_WAIT_MS = 100;

/** Implements the driver with single requests of @platformatic/kafka, without its producer and consumer. */
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

  // A cluster that has just started answers requests a moment before it can assign producer ids.
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
    const encoded = encodeBatches(request);
    const answer = await this.#requestNode("produce", node, (connection) =>
      sendProduce(connection, () => writeProduceRequest(request.timeoutMs, encoded)),
    );
    return toProduceAnswers(answer, encoded);
  }

  async fetch(channel: string, node: number, request: FetchRequest): Promise<readonly FetchedPartition[]> {
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
    const sendFetch = (connection: Connection) =>
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
    const answer = await this.#requestNode(channel, node, sendFetch, waitMs);
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
      throw new Error(`no broker coordinates group ${group} yet: ${codeText(found?.errorCode ?? 0)}`);
    this.#nodes.set(found.nodeId, { host: found.host, port: found.port });
    return found.nodeId;
  }

  heartbeat(channel: string, node: number, beat: Heartbeat): Promise<HeartbeatAnswer> {
    return this.#requestNode(channel, node, (connection) => sendHeartbeat(connection, beat)).then(
      toHeartbeatAnswer,
    );
  }

  async commit(channel: string, node: number, commit: Commit): Promise<readonly PartitionAnswer[]> {
    const answer = await this.#requestNode(channel, node, (connection) => sendCommit(connection, commit));
    return flattenAnswers(answer.topics, () => ({}));
  }

  committed(channel: string, node: number, request: CommittedRequest): Promise<CommittedAnswer> {
    return this.#requestNode(channel, node, (connection) => sendFetchCommitted(connection, request)).then(
      toCommittedAnswer,
    );
  }

  async groups(node: number): Promise<readonly string[]> {
    const answer = await this.#requestNode(CONTROL, node, (connection) =>
      platformatic.client.listGroupsV5.api.async(connection, [], []),
    );
    return answer.groups.map(({ groupId }) => groupId);
  }

  drop(channel: string): void {
    this.#connections.drop(channel);
  }

  close(): Promise<void> {
    return this.#connections.close();
  }

  #requestNode<T>(
    channel: string,
    node: number,
    request: (connection: Connection) => Promise<T>,
    waitMs?: number,
  ): Promise<T> {
    const broker = this.#nodes.get(node);
    if (broker === undefined) throw new NoAnswerError(`broker ${node} is not known`, false, undefined);
    return this.#connections.request(channel, broker, request, waitMs);
  }

  // Bootstrap addresses are tried first, because the user configured them; then the brokers that the cluster reported.
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

type Answer = produceV11.ProduceResponse;

const PRODUCE = 0;
const VERSION = 11;
const ALL_REPLICAS = -1;

interface EncodedBatch extends Pick<ProduceBatch, "topic" | "partition"> {
  readonly bytes: Buffer;
}

export function encodeBatches(request: ProduceRequest): EncodedBatch[] {
  return request.batches.map((batch) => ({
    topic: batch.topic,
    partition: batch.partition,
    bytes: encodeRecordBatch(batch, request),
  }));
}

/** Sends a produce request without the client's own produce call, which accepts records only as its own objects. */
function sendProduce(connection: Connection, payload: () => Writer): Promise<Answer> {
  const { parseResponse } = platformatic.client.produceV11;
  return new Promise((resolve, reject) => {
    connection.send<Answer>(PRODUCE, VERSION, payload, parseResponse, true, true, (error, answer) => {
      if (answer === undefined) reject(error ?? new Error("the answer was empty"));
      else resolve(answer);
    });
  });
}

export function writeProduceRequest(timeoutMs: number, encoded: readonly EncodedBatch[]): Writer {
  return platformatic.client.Writer.create()
    .appendString(null) // no transaction
    .appendInt16(ALL_REPLICAS)
    .appendInt32(timeoutMs)
    .appendArray(
      groupByTopic(encoded, ({ topic }) => topic),
      (topics, [topic, batches]) => {
        topics.appendString(topic).appendArray(batches, (partitions, { partition, bytes }) => {
          partitions
            .appendInt32(partition)
            .appendUnsignedVarInt(bytes.length + 1)
            .append(bytes);
        });
      },
    )
    .appendTaggedFields();
}

function toProduceAnswers({ responses }: Answer, encoded: readonly EncodedBatch[]): readonly ProduceAnswer[] {
  return responses.flatMap(({ name, partitionResponses }) =>
    partitionResponses.map(({ index, errorCode }) => {
      const own = encoded.find(({ topic, partition }) => topic === name && partition === index);
      return { topic: name, partition: index, code: errorCode, bytes: own?.bytes.length ?? 0 };
    }),
  );
}

type HeartbeatResponse = ReturnType<typeof consumerGroupHeartbeatV1.parseResponse>;
type CommitResponse = ReturnType<typeof offsetCommitV9.parseResponse>;
type CommittedResponse = ReturnType<typeof offsetFetchV9.parseResponse>;

/** Every heartbeat lists all owned partitions, so that its answer is always the full assignment. */
function sendHeartbeat(connection: Connection, beat: Heartbeat): Promise<HeartbeatResponse> {
  const { group, member, epoch, handOverMs, topics } = beat;
  const owned = beat.owned.map(({ topicId, partitions }) => ({ topicId, partitions: [...partitions] }));
  return platformatic.client.consumerGroupHeartbeatV1.api.async(
    connection,
    ...([group, member, epoch, null, null, handOverMs] as const),
    [...topics],
    null,
    null,
    owned,
  );
}

function toHeartbeatAnswer(answer: HeartbeatResponse): HeartbeatAnswer {
  return {
    code: answer.errorCode,
    detail: answer.errorMessage ?? "",
    epoch: answer.memberEpoch,
    intervalMs: answer.heartbeatIntervalMs,
    assignment: answer.assignment?.topicPartitions ?? null,
  };
}

function sendCommit(connection: Connection, commit: Commit): Promise<CommitResponse> {
  const { group, member, epoch, offsets } = commit;
  const topics = groupByTopic(offsets, ({ topic }) => topic).map(([name, partitions]) => ({
    name,
    partitions: partitions.map(({ partition, offset }) => ({
      partitionIndex: partition,
      committedOffset: BigInt(offset),
      committedLeaderEpoch: -1,
      committedMetadata: "",
    })),
  }));
  return platformatic.client.offsetCommitV9.api.async(connection, group, epoch, member, null, topics);
}

function sendFetchCommitted(connection: Connection, request: CommittedRequest): Promise<CommittedResponse> {
  const { group, member, epoch, wanted } = request;
  const topics = groupByTopic(wanted, ({ topic }) => topic).map(([name, partitions]) => ({
    name,
    partitionIndexes: partitions.map(({ partition }) => partition),
  }));
  const groups = [{ groupId: group, memberId: member, memberEpoch: epoch, topics }];
  return platformatic.client.offsetFetchV9.api.async(connection, groups, false);
}

function toCommittedAnswer({ groups: [found] }: CommittedResponse): CommittedAnswer {
  const offsets = flattenAnswers(found?.topics ?? [], ({ committedOffset }) => ({
    offset: Number(committedOffset),
  }));
  const failed = offsets.find(({ code }) => code !== 0)?.code ?? 0;
  const code = found?.errorCode ?? 0;
  return { code: code === 0 ? failed : code, offsets: offsets.filter(({ offset }) => offset >= 0) };
}

/** Byte offsets of fields in a record batch of version 2; the records follow. */
const LENGTH = 8;
const MAGIC = 16;
const CHECKSUM = 17;
const ATTRIBUTES = 21;
const LAST_OFFSET = 23;
const FIRST_TIME = 27;
const LAST_TIME = 35;
const PRODUCER = 43;
const PRODUCER_EPOCH = 51;
const SEQUENCE = 53;
const COUNT = 57;
const RECORDS = 61;

/** Most bytes of a record's fields before its contents: length, attributes, time delta and offset delta. */
const RECORD_FIELDS = 24;
const MAX_KEPT_BYTES = 1_048_576;

/** Buffer for encoding, shared by all batches because each is encoded synchronously. */
let scratch = Buffer.allocUnsafeSlow(65_536);

/**
 * Encodes a record batch as the broker stores it. The client's own writer creates several objects per field, which with
 * our headers was most of the cost of sending a message.
 */
export function encodeRecordBatch(batch: ProduceBatch, { identity, compression }: ProduceRequest): Buffer {
  const { records, sequence } = batch;
  const firstMs = records[0]?.timestampMs ?? 0;
  let lastMs = firstMs;
  let end = RECORDS;
  for (const [n, record] of records.entries()) {
    lastMs = Math.max(lastMs, record.timestampMs);
    end = writeRecord(record, n, record.timestampMs - firstMs, end);
  }
  const algorithm = platformatic.client.compressionsAlgorithms[compression];
  const encoded = scratch.subarray(RECORDS, end);
  const body = compression === "none" ? encoded : algorithm.compressSync(encoded);
  const bytes = Buffer.allocUnsafe(RECORDS + body.length);
  bytes.set(body, RECORDS);
  bytes.fill(0, 0, ATTRIBUTES);
  bytes.writeInt32BE(bytes.length - LENGTH - 4, LENGTH);
  bytes[MAGIC] = 2;
  bytes.writeInt16BE(algorithm.bitmask, ATTRIBUTES);
  bytes.writeInt32BE(records.length - 1, LAST_OFFSET);
  bytes.writeBigInt64BE(BigInt(firstMs), FIRST_TIME);
  bytes.writeBigInt64BE(BigInt(lastMs), LAST_TIME);
  bytes.writeBigInt64BE(identity.id, PRODUCER);
  bytes.writeInt16BE(identity.epoch, PRODUCER_EPOCH);
  bytes.writeInt32BE(sequence, SEQUENCE);
  bytes.writeInt32BE(records.length, COUNT);
  bytes.writeUInt32BE(computeChecksum(bytes.subarray(ATTRIBUTES)), CHECKSUM);
  if (scratch.length > MAX_KEPT_BYTES) scratch = Buffer.allocUnsafeSlow(65_536);
  return bytes;
}

// Wrapping the bytes in a new writer avoids copying them for the checksum.
function computeChecksum(bytes: Buffer): number {
  const { crc32c, Writer } = platformatic.client;
  return crc32c(Writer.create().append(bytes).dynamicBuffer);
}

function writeRecord(record: OutgoingRecord, offset: number, delayMs: number, start: number): number {
  const contents = record.buffer.bytes.subarray(record.start, record.end);
  reserveScratch(start + RECORD_FIELDS + contents.length);
  const length = 1 + varintBytes(delayMs) + varintBytes(offset) + contents.length;
  let at = writeVarint(scratch, length, start);
  scratch[at++] = 0;
  at = writeVarint(scratch, delayMs, at);
  at = writeVarint(scratch, offset, at);
  scratch.set(contents, at);
  return at + contents.length;
}

function reserveScratch(bytes: number): void {
  if (bytes <= scratch.length) return;
  const larger = Buffer.allocUnsafeSlow(Math.max(bytes, scratch.length * 2));
  larger.set(scratch);
  scratch = larger;
}
