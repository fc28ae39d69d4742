import { createHash } from "node:crypto";
import { laneFor } from "../../message/index.ts";

/** Names of the JetStream streams with one prefix. */
export interface StreamNames {
  /** All messages; one subject per topic and partition. */
  readonly messages: string;
  /** Copies that wait for another attempt. */
  readonly retries: string;
  /** Dead letters. */
  readonly dead: string;
  /** Partition assignments; one small record per group. */
  readonly groups: string;
}

export function streamNames(prefix: string): StreamNames {
  return {
    messages: `${prefix}_messages`,
    retries: `${prefix}_retries`,
    dead: `${prefix}_dead`,
    groups: `${prefix}_groups`,
  };
}

/** Returns the partition of a message: by its key, or by its id if it has no key. */
export function partitionFor(message: { key: string | null; id: string }, partitions: number): number {
  return laneFor(message.key ?? message.id) % partitions;
}

/** Returns the subject of a partition, such as `dp.msg.events.order.created.3`; "*" matches all partitions. */
export function messageSubject(prefix: string, topic: string, partition: number | "*"): string {
  return `${prefix}.msg.${topicTokens(topic)}.${partition}`;
}

/** Returns the subject of the record that stores which group subscribed to a topic first. */
export function topicSubject(prefix: string, topic: string): string {
  return `${prefix}.topic.${topicTokens(topic)}`;
}

/** Names of one consumer group's consumers and subjects. */
export interface GroupNames {
  /** Subject of the group's partition assignments in the `groups` stream. */
  readonly record: string;
  /** Subject that tells the members to read the record again. */
  readonly hint: string;
  /** Subject of the group's dead letters. */
  readonly dead: string;
  /** Subject of the group's messages that wait for another attempt. */
  retry(topic: string): string;
  /** The consumer that reads the group's retries of a topic. */
  retryConsumer(topic: string): string;
  /** The single consumer of a group without ordering. */
  sharedConsumer(topic: string): string;
  /** The consumer of a partition during one term of its owner. `epoch` is the number of the term. */
  partitionConsumer(topic: string, partition: number, epoch: number): string;
}

export function groupNames(prefix: string, service: string, group: string): GroupNames {
  const tokens = `${toToken(service)}.${toToken(group)}`;
  const consumer = (topic: string, suffix: string): string =>
    `${[service, group, topic].map(toReadable).join("-")}-${digest(service, group, topic)}-${suffix}`;
  return {
    record: `${prefix}.group.${tokens}`,
    hint: `${prefix}.hint.${tokens}`,
    dead: `${prefix}.dlq.${tokens}`,
    retry: (topic) => `${prefix}.retry.${tokens}.${topicTokens(topic)}`,
    retryConsumer: (topic) => consumer(topic, "retry"),
    sharedConsumer: (topic) => consumer(topic, "all"),
    partitionConsumer: (topic, partition, epoch) => consumer(topic, `p${partition}-e${epoch}`),
  };
}

/**
 * Parses a name from `sharedConsumer` or `partitionConsumer`. Returns undefined for other names. `group` is the digest of
 * service, group and topic; `partition` is "all" for a shared consumer.
 */
export function readConsumerName(
  name: string,
): { readonly group: string; readonly partition: string; readonly epoch: number } | undefined {
  const [, group, shared, partition = "all", epoch = "0"] =
    /-([0-9a-f]{12})-(?:(all)|p(\d+)-e(\d+))$/.exec(name) ?? [];
  if (group === undefined) return undefined;
  return { group, partition: shared ?? partition, epoch: Number(epoch) };
}

// Topics may have empty tokens between dots, subjects may not. "=" does not occur in topics.
function topicTokens(topic: string): string {
  return topic
    .split(".")
    .map((token) => token || "=")
    .join(".");
}

/** Encodes any string as one subject token; different strings give different tokens. */
export function toToken(name: string): string {
  if (name === "") return "=";
  return name.replace(/[^A-Za-z0-9_-]/gu, (character) =>
    [...Buffer.from(character)].map((byte) => `=${byte.toString(16).padStart(2, "0")}`).join(""),
  );
}

// Only for readability; the digest makes names unique.
function toReadable(name: string): string {
  return name.replace(/[^A-Za-z0-9_]+/g, "_").slice(0, 50);
}

function digest(...names: readonly string[]): string {
  return createHash("sha256").update(names.join("\0")).digest("hex").slice(0, 12);
}
