import type { MessageKind } from "../message/index.ts";

/** A consumer group and the topics it is going to subscribe to. */
export interface PlannedGroup {
  readonly service: string;
  readonly group: string;
  readonly ordered: boolean;
  readonly topics: readonly { readonly topic: string; readonly kind: MessageKind }[];
}

/** An object that a transport creates at the broker. */
export interface BrokerObject {
  /** The broker's term: exchange, queue, topic, stream … */
  readonly kind: string;
  readonly name: string;
  readonly detail: string;
}

/** The objects and permissions a transport needs at its broker, for operators who prepare or review them. */
export interface BrokerTopology {
  readonly objects: readonly BrokerObject[];
  /** The least permissions that consuming needs, as commands or rules for the broker's own tool. */
  readonly permissions: readonly string[];
}
