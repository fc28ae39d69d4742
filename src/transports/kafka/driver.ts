import type { RecordBuffer } from "./record-buffer.ts";

/**
 * All that is asked of a Kafka client: single requests with plain answers. Codes of the broker are values; a call
 * rejects only when there is no answer. Groups, order, retries and back-pressure are ours, above this line.
 */
export interface KafkaDriver {
  /** Connects if need be. Topics that are missing come with their code. */
  describe(topics: readonly string[]): Promise<ClusterView>;
  /** The highest version of a request that the broker takes; undefined when it does not know it. */
  version(api: number): Promise<number | undefined>;
  createTopics(topics: readonly NewTopic[]): Promise<readonly TopicAnswer[]>;
  /** Settings by topic; topics whose settings we may not see are left out. */
  topicSettings(topics: readonly string[]): Promise<ReadonlyMap<string, ReadonlyMap<string, string>>>;
  newIdentity(): Promise<ProducerIdentity>;
  /** Rejects with `sent: false` when nothing can have left this process. */
  produce(node: number, request: ProduceRequest): Promise<readonly ProduceAnswer[]>;
  fetch(lane: string, node: number, request: FetchRequest): Promise<readonly FetchedPartition[]>;
  /** The offset at a place in partitions that this broker leads; -1 where nothing is as late as a time. */
  offsets(node: number, at: OffsetAt, wanted: readonly TopicPartition[]): Promise<readonly OffsetAnswer[]>;
  coordinator(group: string): Promise<number>;
  heartbeat(lane: string, node: number, beat: Heartbeat): Promise<HeartbeatAnswer>;
  commit(lane: string, node: number, commit: Commit): Promise<readonly PartitionAnswer[]>;
  committed(lane: string, node: number, wanted: CommittedRequest): Promise<CommittedAnswer>;
  /** Names of the groups we may see, at this broker. */
  groups(node: number): Promise<readonly string[]>;
  /** Ends the connections of a lane. */
  drop(lane: string): void;
  close(): Promise<void>;
}

/** A time is in milliseconds since 1970 and stands for the first record that is not older. */
export type OffsetAt = "beginning" | "end" | { readonly timeMs: number };

export interface ClusterView {
  readonly nodes: readonly number[];
  readonly topics: readonly TopicView[];
}

export interface TopicView {
  readonly name: string;
  readonly id: string;
  readonly code: number;
  /** By their number, without gaps. */
  readonly partitions: readonly PartitionView[];
}

export interface PartitionView {
  readonly leader: number;
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
  /** How large the batch was on the wire, compressed. */
  readonly bytes?: number;
}

export interface OffsetAnswer extends PartitionAnswer {
  readonly offset: number;
}

export interface ProducerIdentity {
  readonly id: bigint;
  readonly epoch: number;
}

/** Bytes, or a text that travels as UTF-8. */
export type Content = string | Buffer;

/** A record, and where what it holds is written. */
export interface OutgoingRecord {
  readonly room: RecordBuffer;
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
  readonly logStart: number;
  readonly records: readonly IncomingRecord[];
  /** Where to read on; undefined when nothing came. */
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
  /** 0 joins, -1 leaves. */
  readonly epoch: number;
  readonly handOverMs: number;
  readonly topics: readonly string[];
  readonly owned: readonly OwnedPartitions[];
}

export interface HeartbeatAnswer {
  readonly code: number;
  readonly detail: string;
  readonly epoch: number;
  readonly intervalMs: number;
  /** Everything that should be ours, or null when nothing is said about it. */
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
  /** Only what was committed. */
  readonly offsets: readonly (TopicPartition & { readonly offset: number })[];
}

/** There was no answer. `sent` is false when the request cannot have reached the broker. */
export class NoAnswerError extends Error {
  readonly sent: boolean;

  constructor(message: string, sent: boolean, cause: unknown) {
    super(message, { cause });
    this.sent = sent;
  }
}
