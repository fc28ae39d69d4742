import type { MessageKind } from "../message/index.ts";

/** A consumer group as it will subscribe. */
export interface PlannedGroup {
  readonly service: string;
  readonly group: string;
  readonly ordered: boolean;
  readonly topics: readonly { readonly topic: string; readonly kind: MessageKind }[];
}

/** Something that is made at the broker. */
export interface BrokerObject {
  /** In the broker's own words: exchange, queue, topic, stream … */
  readonly kind: string;
  readonly name: string;
  readonly detail: string;
}

/** What a transport makes at its broker, for people who prepare or review it. */
export interface BrokerTopology {
  readonly objects: readonly BrokerObject[];
  /** The rights of the least kind that consuming takes, ready for the broker's own tool. */
  readonly permissions: readonly string[];
}
