import { createHash } from "node:crypto";
import { laneCount, laneFor, type Message, type MessageKind } from "../../message/index.ts";

export interface TopologySettings {
  readonly prefix: string;
  /** Topics that are published to every group through a fanout exchange. */
  readonly broadcasts: ReadonlySet<string>;
}

/** The exchange and binding of a topic. They depend only on the topic, so publishers and consumers always agree. */
export interface Route {
  readonly kind: "command" | "event" | "broadcast" | "stream";
  readonly exchange: string;
  readonly exchangeType: "direct" | "topic" | "fanout";
  /** The binding key of a group. */
  readonly binding: string;
  /** The queue that stores the stream, if the topic is one. */
  readonly streamQueue?: string;
}

/** Finds the route of a topic. Only streams depend on `kind`; the topic's name decides between commands and events. */
export function routeFor(topic: string, kind: MessageKind, { prefix, broadcasts }: TopologySettings): Route {
  if (kind === "stream") {
    const name = fitName(withoutPrefix(topic, "streams."), 200);
    return {
      kind,
      exchange: `${prefix}.stream`,
      exchangeType: "direct",
      binding: name,
      streamQueue: `${prefix}.stream.${name}`,
    };
  }
  if (topic.startsWith("commands.")) {
    const command = commandKey(topic);
    return {
      kind: "command",
      exchange: `${prefix}.command.${firstWord(command)}`,
      exchangeType: "direct",
      binding: command,
    };
  }
  const type = eventType(topic);
  if (broadcasts.has(topic)) {
    const exchange = `${prefix}.broadcast.${type}`;
    return { kind: "broadcast", exchange, exchangeType: "fanout", binding: "" };
  }
  const exchange = `${prefix}.event.${firstWord(type)}`;
  return { kind: "event", exchange, exchangeType: "topic", binding: `*.${type}.*` };
}

export function routingKeyFor(message: Message, route: Route): string {
  if (route.kind === "command" || route.kind === "stream") return route.binding;
  return `${toWord(message.source)}.${eventType(message.topic)}.${readSeverity(message)}`;
}

function readSeverity({ headers }: Message): string {
  const severity = headers["severity"];
  return severity === undefined || severity === "" ? "info" : toWord(severity, 20);
}

const eventType = (topic: string): string => fitName(withoutPrefix(topic, "events."), 180);

// The key is `{service}.{operation}`. For a command of one word, the service has the same name.
function commandKey(topic: string): string {
  const key = fitName(withoutPrefix(topic, "commands."), 200);
  return key.includes(".") ? key : `${key}.${key}`;
}

const withoutPrefix = (topic: string, prefix: string): string =>
  topic.startsWith(prefix) && topic.length > prefix.length ? topic.slice(prefix.length) : topic;

const firstWord = (key: string): string => key.split(".", 1)[0] ?? key;

/** The names of all objects of one consumer group. */
export interface GroupNames {
  readonly id: string;
  /** Receives the group's copy of each message and distributes it to the queues. */
  readonly exchange: string;
  /** Receives messages without a lane, which other software published. Its name contains the number of partitions. */
  readonly restExchange: string | undefined;
  readonly queues: readonly string[];
  readonly deadLetterQueue: string;
  /** A queue that stays empty. Its consumers are the members of the group. */
  readonly membersQueue: string;
}

export function groupNames(
  prefix: string,
  group: { readonly service: string; readonly group: string },
  /** The number of queues over which keys are spread; undefined for a group without order. */
  partitions: number | undefined,
): GroupNames {
  const id = formatGroupId(group.service, group.group);
  const queue = `${prefix}.queue.${id}`;
  return {
    id,
    exchange: `${prefix}.group.${id}`,
    restExchange: partitions === undefined ? undefined : `${prefix}.group.${id}:rest${partitions}`,
    queues:
      partitions === undefined ? [queue] : Array.from({ length: partitions }, (_, n) => `${queue}:${n}`),
    deadLetterQueue: `${prefix}.dlq.${id}`,
    membersQueue: `${prefix}.membership.${id}`,
  };
}

/** The exchanges that all services of a prefix share. `back` returns messages to their queue after a delay. */
export function sharedExchanges(prefix: string): {
  readonly deadLetter: string;
  readonly retry: string;
  readonly back: string;
} {
  return { deadLetter: `${prefix}.dlx`, retry: `${prefix}.retry`, back: `${prefix}.return` };
}

/** Names the queue that stores a group's position in a stream. */
export function offsetQueue(prefix: string, id: string, streamQueue: string): string {
  return fitName(`${prefix}.offset.${id}.${streamQueue.slice(prefix.length + ".stream.".length)}`, 250);
}

/** Shortens a name to `maxBytes`, with a digest at its end. The broker allows 255 bytes for a name or a routing key. */
export function fitName(text: string, maxBytes: number): string {
  if (Buffer.byteLength(text) <= maxBytes) return text;
  const digest = createHash("sha256").update(text).digest("hex").slice(0, 16);
  return `${text.slice(0, maxBytes - 17)}~${digest}`;
}

/** Keeps letters, digits, `-`, `_` and `.`, and writes every other byte as `~` and two hexadecimal digits. */
function toReadable(text: string): string {
  return text.replaceAll(/[^A-Za-z0-9._-]/gu, (character) =>
    [...Buffer.from(character)].map((byte) => `~${byte.toString(16).padStart(2, "0")}`).join(""),
  );
}

/** Encodes a string as one word of a routing key, in which dots separate the words. */
export function toWord(text: string, maxBytes = 50): string {
  return fitName(toReadable(text).replaceAll(".", "~2e"), maxBytes);
}

/** Builds the part of broker names that identifies a group: service and group. */
export function formatGroupId(service: string, group: string): string {
  return `${toWord(service)}.${fitName(toReadable(group), 110)}`;
}

const LANES_PER_WORD = 16;

const laneKeys = Array.from({ length: laneCount }, (_, lane) => formatLaneKey(lane));

/**
 * Returns the second routing key of a message: its lane as two words of four bits, the lower bits first. A group binds
 * to the first word or to both, so each group chooses its number of partitions without the publishers knowing it.
 */
export function laneKey(message: Pick<Message, "key" | "id">): string {
  const lane = laneFor(message.key ?? message.id);
  return laneKeys[lane] ?? formatLaneKey(lane);
}

/** Returns the bindings of a partition. Up to 16 partitions are bound by the first word alone, which matches faster. */
export function laneBindings(partition: number, partitions: number): string[] {
  const oneWord = partitions <= LANES_PER_WORD;
  const bindings: string[] = [];
  for (let lane = partition; lane < (oneWord ? LANES_PER_WORD : laneCount); lane += partitions)
    bindings.push(oneWord ? `~${lane}.*` : formatLaneKey(lane));
  return bindings;
}

function formatLaneKey(lane: number): string {
  return `~${lane % LANES_PER_WORD}.${Math.floor(lane / LANES_PER_WORD)}`;
}

const DAY_MS = 86_400_000;
const MAX_DAYS = 30;

/** Delays up to `until` are rounded up to a multiple of `step`, so that few queues serve all delays. */
const delayStepsMs = [
  { until: 1_000, step: 100 },
  { until: 10_000, step: 500 },
  { until: 60_000, step: 5_000 },
  { until: 600_000, step: 30_000 },
  { until: 3_600_000, step: 300_000 },
  { until: DAY_MS, step: 3_600_000 },
  { until: MAX_DAYS * DAY_MS, step: DAY_MS },
];

/** Rounds a delay up to the next step, at most 30 days. A delay of 0 needs no waiting queue. */
export function roundToDelayStep(delayMs: number): number {
  const wanted = Math.min(Math.max(0, Math.ceil(delayMs)), MAX_DAYS * DAY_MS);
  const step = delayStepsMs.find(({ until }) => wanted <= until)?.step ?? DAY_MS;
  return Math.ceil(wanted / step) * step;
}

export interface WaitingQueue {
  readonly queue: string;
  readonly binding: string;
  /** Builds the routing key: the delay, and the queue to which the message returns after it. */
  readonly routingKey: (target: string) => string;
  readonly delayMs: number;
  /** The broker deletes the queue and its messages after this long without a consumer. */
  readonly expiresMs: number;
}

/**
 * Names the queue in which messages of a service wait for `delayMs`. A queue is used for one day and deleted more than
 * a day after its last message has left, because publishing to a quorum queue does not postpone its expiry.
 */
export function planWaitingQueue(
  prefix: string,
  service: string,
  delayMs: number,
  nowMs: number,
): WaitingQueue {
  const day = new Date(nowMs).toISOString().slice(0, 10).replaceAll("-", "");
  return {
    queue: `${prefix}.retry.${service}.${delayMs}ms.${day}`,
    binding: `${delayMs}ms.${day}.${prefix}.queue.${service}.#`,
    routingKey: (target) => `${delayMs}ms.${day}.${target}`,
    delayMs,
    expiresMs: 2 * DAY_MS + delayMs,
  };
}

/** The routing key that returns a message to the end of its queue at once. */
export const immediateRoutingKey = (target: string): string => `0ms.now.${target}`;

/** The binding with which a queue receives its returning messages. */
export const returnBinding = (target: string): string => `*.*.${target}`;
