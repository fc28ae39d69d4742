import type { RecordBuffer } from "./record-buffer.ts";

/**
 * The requests that the transport sends to Kafka. A broker's error code is returned as `code` (0 is success); a call rejects
 * only if no answer arrived. The callers of the driver handle groups, order, retries and back-pressure.
 *
 * `node` is the id of a broker. Requests with different `channel` names use separate connections, so that a waiting fetch does
 * not delay a heartbeat.
 */
export interface KafkaDriver {
  /** Returns the brokers and these topics, connecting if necessary. A missing topic is returned with its error code. */
  describe(topics: readonly string[]): Promise<ClusterView>;
  /** Returns the highest supported version of a request type (Kafka's API key), or undefined if it is not supported. */
  version(api: number): Promise<number | undefined>;
  createTopics(topics: readonly NewTopic[]): Promise<readonly TopicAnswer[]>;
  /** Returns settings by topic. Topics whose settings we are not allowed to read are left out. */
  topicSettings(topics: readonly string[]): Promise<ReadonlyMap<string, ReadonlyMap<string, string>>>;
  /** Requests a producer id and epoch, which idempotent publishing needs. */
  newIdentity(): Promise<ProducerIdentity>;
  /** Rejects with a NoAnswerError whose `sent` is false if the request cannot have left this process. */
  produce(node: number, request: ProduceRequest): Promise<readonly ProduceAnswer[]>;
  fetch(channel: string, node: number, request: FetchRequest): Promise<readonly FetchedPartition[]>;
  /** Returns offsets of partitions that this broker leads; -1 if all records are older than the requested time. */
  offsets(node: number, at: OffsetAt, wanted: readonly TopicPartition[]): Promise<readonly OffsetAnswer[]>;
  /** Returns the id of the broker that coordinates a group. */
  coordinator(group: string): Promise<number>;
  heartbeat(channel: string, node: number, beat: Heartbeat): Promise<HeartbeatAnswer>;
  commit(channel: string, node: number, commit: Commit): Promise<readonly PartitionAnswer[]>;
  /** Returns the committed offsets of a group. */
  committed(channel: string, node: number, wanted: CommittedRequest): Promise<CommittedAnswer>;
  /** Lists the groups that this broker coordinates and that we are allowed to see. */
  groups(node: number): Promise<readonly string[]>;
  /** Closes the connections of a channel. */
  drop(channel: string): void;
  close(): Promise<void>;
}

/** Which offset to look up. `timeMs` (milliseconds since 1970) selects the first record that is not older. */
export type OffsetAt = "beginning" | "end" | { readonly timeMs: number };

export interface ClusterView {
  readonly nodes: readonly number[];
  readonly topics: readonly TopicView[];
}

export interface TopicView {
  readonly name: string;
  readonly id: string;
  readonly code: number;
  /** Indexed by partition number. */
  readonly partitions: readonly PartitionView[];
}

export interface PartitionView {
  readonly leader: number;
  /** Number of replicas. */
  readonly replicas: number;
}

export interface NewTopic {
  readonly name: string;
  readonly partitions: number;
  readonly replication: number;
  readonly settings: Readonly<Record<string, string>>;
}

export interface TopicAnswer {
  readonly name: string;
  readonly code: number;
  readonly detail: string;
}

export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

export interface PartitionAnswer extends TopicPartition {
  readonly code: number;
}

export interface ProduceAnswer extends PartitionAnswer {
  /** Size of the compressed batch in bytes. */
  readonly bytes?: number;
}

export interface OffsetAnswer extends PartitionAnswer {
  readonly offset: number;
}

export interface ProducerIdentity {
  readonly id: bigint;
  readonly epoch: number;
}

/** Bytes, or a string that is sent as UTF-8. */
export type Content = string | Buffer;

/** A record whose encoded content is stored in `buffer` from `start` to `end`. */
export interface OutgoingRecord {
  readonly buffer: RecordBuffer;
  readonly start: number;
  readonly end: number;
  readonly timestampMs: number;
}

export interface ProduceRequest {
  readonly identity: ProducerIdentity;
  readonly timeoutMs: number;
  readonly compression: "none" | "gzip" | "snappy" | "lz4";
  readonly batches: readonly ProduceBatch[];
}

export interface ProduceBatch extends TopicPartition {
  readonly sequence: number;
  readonly records: readonly OutgoingRecord[];
}

export interface FetchRequest {
  readonly waitMs: number;
  readonly maxBytes: number;
  readonly partitions: readonly {
    readonly topicId: string;
    readonly partition: number;
    readonly offset: number;
    readonly maxBytes: number;
  }[];
}

export interface FetchedPartition {
  readonly topicId: string;
  readonly partition: number;
  readonly code: number;
  /** The first offset that the broker still stores. */
  readonly logStart: number;
  readonly records: readonly IncomingRecord[];
  /** When the first of the records was sent, in milliseconds since 1970; undefined without records. */
  readonly firstSentMs: number | undefined;
  /** The offset to fetch next; undefined if the answer contains no batch. */
  readonly next: number | undefined;
}

export interface IncomingRecord {
  readonly offset: number;
  readonly key: Buffer | null;
  readonly value: Buffer;
  readonly headers: readonly (readonly [name: Buffer, value: Buffer])[];
}

export interface OwnedPartitions {
  readonly topicId: string;
  readonly partitions: readonly number[];
}

export interface Heartbeat {
  readonly group: string;
  readonly member: string;
  /** The member's epoch; 0 joins the group, -1 leaves it. */
  readonly epoch: number;
  /** Kafka's rebalance timeout: how long the member may take to give up partitions. */
  readonly handOverMs: number;
  readonly topics: readonly string[];
  readonly owned: readonly OwnedPartitions[];
}

export interface HeartbeatAnswer {
  readonly code: number;
  readonly detail: string;
  readonly epoch: number;
  readonly intervalMs: number;
  /** All partitions that this member should own, or null if the assignment has not changed. */
  readonly assignment: readonly OwnedPartitions[] | null;
}

export interface Commit {
  readonly group: string;
  /** Empty, with epoch -1, for a group without members. */
  readonly member: string;
  readonly epoch: number;
  readonly offsets: readonly (TopicPartition & { readonly offset: number })[];
}

export interface CommittedRequest {
  readonly group: string;
  readonly member: string | null;
  readonly epoch: number;
  readonly wanted: readonly TopicPartition[];
}

export interface CommittedAnswer {
  readonly code: number;
  /** Only partitions with a committed offset. */
  readonly offsets: readonly (TopicPartition & { readonly offset: number })[];
}

/** Thrown when a request got no answer. `sent` is false if the request cannot have reached the broker. */
export class NoAnswerError extends Error {
  readonly sent: boolean;

  constructor(message: string, sent: boolean, cause: unknown) {
    super(message, { cause });
    this.sent = sent;
  }
}
