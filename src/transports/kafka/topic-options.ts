import { flag, milliseconds, rejectUnknownKeys, wholeNumber, type Duration } from "../../options/index.ts";

export interface TopicOptions {
  /** Make topics that are missing. Off, they must be there, and nothing needs the right to create. Default true. */
  readonly create?: boolean;
  /** Partitions of a new topic: as many members of a group can share it. Default 12. */
  readonly partitions?: number;
  /** Copies of a new topic. Default 3, or as many as there are brokers. */
  readonly replication?: number;
  /** How many copies must have a message before it counts. Default 2 of 3 copies, else 1. */
  readonly minInSync?: number;
  /** How long messages are kept. Default: what the broker is set to. */
  readonly retention?: Duration | number;
  /** How long dead letters are kept. Default "30d". */
  readonly deadLetterRetention?: Duration | number;
  /** The largest record with everything around it. Default 1 MiB + 12, which is Kafka's own. */
  readonly maxBytes?: number;
}

export interface TopicSettings {
  readonly create: boolean;
  readonly partitions: number;
  readonly replication: number | undefined;
  readonly minInSync: number | undefined;
  readonly retentionMs: number | undefined;
  readonly deadLetterRetentionMs: number;
  readonly maxBytes: number;
}

const KEYS: readonly (keyof TopicOptions)[] = [
  ...(["create", "partitions", "replication", "minInSync", "retention"] as const),
  ...(["deadLetterRetention", "maxBytes"] as const),
];
const MAX_RETENTION_MS = Number.MAX_SAFE_INTEGER;

export function topicSettings(options: TopicOptions = {}): TopicSettings {
  rejectUnknownKeys("kafka.topics", options, KEYS);
  const { replication, minInSync, retention } = options;
  return Object.freeze({
    create: flag("kafka.topics.create", options.create ?? true),
    partitions: wholeNumber("kafka.topics.partitions", options.partitions ?? 12, { min: 1, max: 10_000 }),
    replication:
      replication === undefined
        ? undefined
        : wholeNumber("kafka.topics.replication", replication, { min: 1, max: 15 }),
    minInSync:
      minInSync === undefined
        ? undefined
        : wholeNumber("kafka.topics.minInSync", minInSync, { min: 1, max: 15 }),
    retentionMs:
      retention === undefined
        ? undefined
        : milliseconds("kafka.topics.retention", retention, { min: 1_000, max: MAX_RETENTION_MS }),
    deadLetterRetentionMs: milliseconds(
      "kafka.topics.deadLetterRetention",
      options.deadLetterRetention ?? "30d",
      { min: 1_000, max: MAX_RETENTION_MS },
    ),
    maxBytes: wholeNumber("kafka.topics.maxBytes", options.maxBytes ?? 1_048_588, {
      min: 1_024,
      max: 67_108_864,
    }),
  });
}
