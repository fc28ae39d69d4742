import type { Message, MessageKind } from "../../message/index.ts";
import { fitName, formatGroupId, toWord } from "./names.ts";

export interface TopologySettings {
  readonly prefix: string;
  /** Topics that go to everybody through a fanout exchange. */
  readonly broadcasts: ReadonlySet<string>;
}

/** Where a topic lives at the broker. It follows from the topic, so publisher and consumer need not agree on more. */
export interface Route {
  readonly kind: "command" | "event" | "broadcast" | "stream";
  readonly exchange: string;
  readonly exchangeType: "direct" | "topic" | "fanout";
  /** What a group binds with. */
  readonly binding: string;
  /** The queue that keeps a stream. */
  readonly streamQueue?: string;
}

/** A topic may carry messages of several kinds; only streams are told by the kind, since they live in another place. */
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

// `{service}.{operation}`; a command of one word is its own service.
function commandKey(topic: string): string {
  const key = fitName(withoutPrefix(topic, "commands."), 200);
  return key.includes(".") ? key : `${key}.${key}`;
}

const withoutPrefix = (topic: string, prefix: string): string =>
  topic.startsWith(prefix) && topic.length > prefix.length ? topic.slice(prefix.length) : topic;

const firstWord = (key: string): string => key.split(".", 1)[0] ?? key;

/** Everything that belongs to one consumer group. */
export interface GroupNames {
  readonly id: string;
  /** Takes the group's copy of each message and spreads it over the queues. */
  readonly exchange: string;
  /** Where messages without a lane go: others than sagabox published them. Names the number of partitions. */
  readonly restExchange: string | undefined;
  readonly queues: readonly string[];
  readonly deadLetterQueue: string;
  /** Stays empty: the workers count its consumers. */
  readonly membersQueue: string;
}

export function groupNames(
  prefix: string,
  group: { readonly service: string; readonly group: string },
  /** How many queues share the keys, or undefined for a group that gave up order. */
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

/** Exchanges every service of a prefix shares. */
export function sharedExchanges(prefix: string): {
  readonly deadLetter: string;
  readonly retry: string;
  readonly back: string;
} {
  return { deadLetter: `${prefix}.dlx`, retry: `${prefix}.retry`, back: `${prefix}.return` };
}

/** Where a group keeps how far it has read a stream. */
export function offsetQueue(prefix: string, id: string, streamQueue: string): string {
  return fitName(`${prefix}.offset.${id}.${streamQueue.slice(prefix.length + ".stream.".length)}`, 250);
}
