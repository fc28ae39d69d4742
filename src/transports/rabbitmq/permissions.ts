import type { MessageKind } from "../../message/index.ts";
import { rejectUnknownKeys, text } from "../../options/index.ts";
import { groupNames, offsetQueue, type Route, routeFor, sharedExchanges, toWord } from "./topology.ts";
import { checkPartitions, prefixPattern } from "./options.ts";

export interface PermissionTopic {
  readonly topic: string;
  /** The kind of its messages. Default "event". */
  readonly kind?: MessageKind;
}

/** What a service publishes and consumes. `prefix`, `partitions` and `broadcasts` are the options of `rabbitmq()`. */
export interface PermissionRequest {
  readonly service: string;
  readonly publishes?: readonly PermissionTopic[];
  readonly consumes?: readonly {
    readonly group: string;
    readonly topics: readonly PermissionTopic[];
    /** Whether the group keeps the order of each key. Default true. */
    readonly ordered?: boolean;
  }[];
  /** Default "dp". */
  readonly prefix?: string;
  /** Default 8. */
  readonly partitions?: number;
  readonly broadcasts?: readonly string[];
}

/** Regular expressions for `rabbitmqctl set_permissions`. */
export interface RabbitPermissions {
  readonly configure: string;
  readonly write: string;
  readonly read: string;
}

/**
 * Returns the least permissions with which a service can publish and consume these topics, and none on objects of other
 * groups. Throws OPTIONS_INVALID if the request is invalid.
 */
export function rabbitPermissions(request: PermissionRequest): RabbitPermissions {
  rejectUnknownKeys("rabbitPermissions", request, [
    "service",
    "publishes",
    "consumes",
    "prefix",
    "partitions",
    "broadcasts",
  ]);
  const permissions = new PermissionSet(request);
  for (const { topic, kind } of request.publishes ?? []) permissions.publish(topic, kind);
  for (const { group, topics, ordered } of request.consumes ?? [])
    permissions.consume(group, topics, ordered);
  return permissions.toPatterns();
}

class PermissionSet {
  readonly #service: string;
  readonly #prefix: string;
  readonly #partitions: number;
  readonly #broadcasts: ReadonlySet<string>;
  readonly #configure = new Set<string>();
  readonly #write = new Set<string>();
  readonly #read = new Set<string>();

  constructor({ service, prefix = "dp", partitions = 8, broadcasts = [] }: PermissionRequest) {
    this.#service = text("rabbitPermissions.service", service);
    this.#prefix = text("rabbitPermissions.prefix", prefix, { pattern: prefixPattern });
    this.#partitions = checkPartitions(partitions);
    this.#broadcasts = new Set(broadcasts);
  }

  publish(topic: string, kind?: MessageKind): void {
    this.#grant([this.#grantDeclare(topic, kind).exchange], { write: true });
  }

  consume(group: string, topics: readonly PermissionTopic[], ordered = true): void {
    const service = this.#service;
    const names = groupNames(this.#prefix, { service, group }, ordered ? this.#partitions : undefined);
    const { deadLetter, retry, back } = sharedExchanges(this.#prefix);
    const rest = names.restExchange === undefined ? [] : [names.restExchange];
    const all = { configure: true, write: true, read: true };
    this.#grant([deadLetter, retry, back, names.exchange, ...rest, ...names.queues], all);
    this.#grant([names.deadLetterQueue], { configure: true, write: true });
    this.#grant([names.membersQueue], { configure: true, read: true });
    this.#grantPattern(`${escape(`${this.#prefix}.retry.${toWord(service)}.`)}[0-9]+ms\\.[0-9]{8}`);
    for (const { topic, kind } of topics) {
      const { exchange, streamQueue } = this.#grantDeclare(topic, kind);
      this.#grant([exchange], { read: true });
      if (streamQueue === undefined) continue;
      this.#grant([streamQueue], { read: true });
      this.#grant([offsetQueue(this.#prefix, names.id, streamQueue)], all);
    }
  }

  toPatterns(): RabbitPermissions {
    const pattern = (names: Set<string>): string =>
      names.size === 0 ? "^$" : `^(${[...names].toSorted().join("|")})$`;
    return {
      configure: pattern(this.#configure),
      write: pattern(this.#write),
      read: pattern(this.#read),
    };
  }

  // Publishers and consumers both declare the exchange of a topic, so that either can start first.
  #grantDeclare(topic: string, kind: MessageKind = "event"): Route {
    const route = routeFor(topic, kind, { prefix: this.#prefix, broadcasts: this.#broadcasts });
    this.#grant([route.exchange], { configure: true });
    if (route.streamQueue !== undefined) {
      this.#grant([route.streamQueue], { configure: true, write: true });
      this.#grant([route.exchange], { read: true });
    }
    return route;
  }

  #grant(
    names: readonly string[],
    rights: { readonly configure?: boolean; readonly write?: boolean; readonly read?: boolean },
  ): void {
    for (const name of names.map(escape)) {
      if (rights.configure === true) this.#configure.add(name);
      if (rights.write === true) this.#write.add(name);
      if (rights.read === true) this.#read.add(name);
    }
  }

  #grantPattern(pattern: string): void {
    for (const rights of [this.#configure, this.#write, this.#read]) rights.add(pattern);
  }
}

const escape = (name: string): string => name.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
