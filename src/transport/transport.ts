import type { Message, MessageKind } from "../message/index.ts";
import type { Capabilities } from "./capabilities.ts";
import type { DeadLetterNote, Delivery } from "./delivery.ts";
import type { StartingPoint } from "./starting-point.ts";
import type { BrokerTopology, PlannedGroup } from "./topology.ts";

/**
 * The outcome of publishing one message. `unknown` means the broker may have stored it; the message is sent again.
 */
export type PublishOutcome =
  | { readonly kind: "published" }
  /** The message can never be sent, so it is not retried. */
  | { readonly kind: "refused"; readonly error: Error }
  /** A failure of this message: it counts as an attempt and is retried later. */
  | { readonly kind: "rejected"; readonly error: Error }
  /** A failure of the broker: no attempt is counted. */
  | { readonly kind: "unreachable"; readonly error: Error }
  | { readonly kind: "unknown"; readonly error: Error };

export interface PublishOptions {
  /** Aborted when the sender gives up. Messages not confirmed by then have the outcome `unknown`. */
  readonly signal: AbortSignal;
  /** The sender has no further messages, so waiting to fill the batch would only add latency. */
  readonly gathered?: boolean;
}

export interface Subscription {
  /** The consumer group. Its members compete for messages; every group gets its own copy. */
  readonly group: string;
  readonly topics: readonly TopicRequest[];
  /** The maximum number of unsettled deliveries. */
  readonly prefetch: number;
  /** The name of this process among the members of the group. */
  readonly worker: string;
  /** The service of the group. Groups of two services that share a broker stay separate. */
  readonly service: string;
  /** False if the group gave up order per key: messages of a key may run at once, and retries may be overtaken. */
  readonly ordered: boolean;
}

export interface TopicRequest {
  readonly topic: string;
  readonly kind: MessageKind;
  /**
   * Where a group that is new to the topic starts. "unclaimed": at the beginning if no group subscribed before it.
   */
  readonly from: StartingPoint | "unclaimed";
}

/** A topic that a group newly subscribed to, and where it starts. */
export interface Beginning {
  readonly topic: string;
  readonly from: StartingPoint;
}

export interface Consumption {
  /** The topics that this call subscribed the group to, if the transport knows them. */
  readonly begun?: readonly Beginning[];
  /** Stops receiving. Deliveries that were handed out can still be settled. */
  pause(): Promise<void>;
  /** Returns unsettled deliveries and leaves the group. */
  close(): Promise<void>;
  /**
   * Only for brokers with a dead-letter queue: copies a message there that is no longer at the broker, with the note
   * in its headers. The copy is for people and tools; the dead letter in PostgreSQL is authoritative.
   */
  deadLetter?(message: Message, note: DeadLetterNote): Promise<void>;
  /** Not ok while nothing can be received; `detail` says why. */
  health(): { readonly ok: boolean; readonly detail?: string };
}

/**
 * The contract of a transport. It never throws because of a message's own failure and never publishes a message
 * twice.
 */
export interface Transport {
  readonly name: string;
  readonly capabilities: Capabilities;
  /** Connects and checks the connection. A second call has no effect. */
  open(): Promise<void>;
  /** Returns one outcome per message, in the order of the batch. `published` means that the broker confirmed it. */
  publish(batch: readonly Message[], options: PublishOptions): Promise<readonly PublishOutcome[]>;
  /** Calls `receive` for each delivery, with at most `prefetch` unsettled ones at a time. */
  subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption>;
  close(): Promise<void>;
  /**
   * The number of messages of each topic that wait at the broker for the slowest group, where the broker reports it.
   * A missing topic is unknown, not 0.
   */
  depths?(topics: readonly string[]): Promise<ReadonlyMap<string, number>>;
  /** The objects and permissions that these groups need at the broker. Does not contact the broker. */
  declares?(groups: readonly PlannedGroup[]): BrokerTopology;
}
