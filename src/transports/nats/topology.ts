import { createHash } from "node:crypto";
import { laneFor } from "../../message/index.ts";

/** The streams of one prefix. */
export interface StreamNames {
  /** All messages, one subject per topic and partition. */
  readonly messages: string;
  /** Copies that wait for another attempt. */
  readonly retries: string;
  readonly dead: string;
  /** Who serves which partition, one small record per group. */
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

/** Messages of one key share a partition; those without a key are spread by their id. */
export function partitionFor(message: { key: string | null; id: string }, partitions: number): number {
  return laneFor(message.key ?? message.id) % partitions;
}

/** `dp.msg.events.order.created.3`; "*" for all partitions. */
export function messageSubject(prefix: string, topic: string, partition: number | "*"): string {
  return `${prefix}.msg.${topicTokens(topic)}.${partition}`;
}

/** Who claimed a topic first. */
export function topicSubject(prefix: string, topic: string): string {
  return `${prefix}.topic.${topicTokens(topic)}`;
}

/** Everything of one consumer group. */
export interface GroupNames {
  readonly record: string;
  readonly hint: string;
  readonly dead: string;
  retry(topic: string): string;
  retryConsumer(topic: string): string;
  /** The one consumer of a group that gave up order. */
  sharedConsumer(topic: string): string;
  /** Each term of office over a partition has a consumer of its own. */
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

/** Which group, partition and term a consumer on the messages belongs to; undefined if it is not ours. */
export function readConsumerName(
  name: string,
): { readonly group: string; readonly partition: string; readonly epoch: number } | undefined {
  const [, group, shared, partition = "all", epoch = "0"] =
    /-([0-9a-f]{12})-(?:(all)|p(\d+)-e(\d+))$/.exec(name) ?? [];
  if (group === undefined) return undefined;
  return { group, partition: shared ?? partition, epoch: Number(epoch) };
}

// Topics may have empty words between dots, subjects may not; "=" is in no topic.
function topicTokens(topic: string): string {
  return topic
    .split(".")
    .map((word) => word || "=")
    .join(".");
}

/** One word of a subject for any text, different for different texts. */
export function toToken(name: string): string {
  if (name === "") return "=";
  return name.replace(/[^A-Za-z0-9_-]/gu, (letter) =>
    [...Buffer.from(letter)].map((byte) => `=${byte.toString(16).padStart(2, "0")}`).join(""),
  );
}

// For people; what tells names apart is the digest behind.
function toReadable(name: string): string {
  return name.replace(/[^A-Za-z0-9_]+/g, "_").slice(0, 50);
}

function digest(...names: readonly string[]): string {
  return createHash("sha256").update(names.join("\0")).digest("hex").slice(0, 12);
}
