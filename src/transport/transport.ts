import type { Message, MessageKind } from "../message/index.ts";
import type { Capabilities } from "./capabilities.ts";
import type { DeadLetterNote, Delivery } from "./delivery.ts";
import type { StartingPoint } from "./starting-point.ts";
import type { BrokerTopology, PlannedGroup } from "./topology.ts";

/** What became of one message. `unknown` is not failure: it may be there already, and is sent again. */
export type PublishOutcome =
  | { readonly kind: "published" }
  /** This message can never be sent: trying again cannot help. */
  | { readonly kind: "refused"; readonly error: Error }
  /** This message's own failure: charged, tried again later. */
  | { readonly kind: "rejected"; readonly error: Error }
  /** The broker's failure: nothing is charged. */
  | { readonly kind: "unreachable"; readonly error: Error }
  | { readonly kind: "unknown"; readonly error: Error };

export interface PublishOptions {
  /** Aborted when the sender gives up; what is not confirmed by then is unknown. */
  readonly signal: AbortSignal;
  /** The batch is all that its sender found: to hold it back for more would only cost time. */
  readonly gathered?: boolean;
}

export interface Subscription {
  /** The consumer group: its members compete, other groups get their own copy. */
  readonly group: string;
  readonly topics: readonly TopicRequest[];
  /** At most this many deliveries are unsettled at once. */
  readonly prefetch: number;
  /** Names this process among the members of the group. */
  readonly worker: string;
  /** The service it belongs to: where a broker is shared, groups of two services must not meet. */
  readonly service: string;
  /** False when the group gave up order per key: everything may run at once, and retries may be overtaken. */
  readonly ordered: boolean;
}

export interface TopicRequest {
  readonly topic: string;
  readonly kind: MessageKind;
  /** Where a group that is new to the topic begins; "unclaimed": at the beginning if no group came before it. */
  readonly from: StartingPoint | "unclaimed";
}

/** A topic that a group is new to, and where it begins there. */
export interface Beginning {
  readonly topic: string;
  readonly from: StartingPoint;
}

export interface Consumption {
  /** Where the transport knows: the topics that this very call subscribed the group to. */
  readonly begun?: readonly Beginning[];
  /** Takes nothing new; deliveries already handed out may still be settled. */
  pause(): Promise<void>;
  /** Gives back what is unsettled and leaves the group. */
  close(): Promise<void>;
  /**
   * Where the broker has a place for the dead: puts a copy of a message there that is no longer at the broker, with the
   * note in its headers. It is for people and tools that look there; the letter in Postgres is the one that counts.
   */
  deadLetter?(message: Message, note: DeadLetterNote): Promise<void>;
  /** False while nothing can be received: the reason is for people. */
  health(): { readonly ok: boolean; readonly detail?: string };
}

/** The whole contract. A transport never throws for a message's own failure and never publishes twice by itself. */
export interface Transport {
  readonly name: string;
  readonly capabilities: Capabilities;
  /** Connects and checks; harmless when called twice. */
  open(): Promise<void>;
  /** One outcome per message, in the order given. `published` means that the broker said so. */
  publish(batch: readonly Message[], options: PublishOptions): Promise<readonly PublishOutcome[]>;
  /** `receive` is called with one delivery after another, never with more than `prefetch` unsettled ones. */
  subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption>;
  close(): Promise<void>;
  /**
   * How many messages of each topic wait at the broker for their slowest group, where the broker tells. A topic that is
   * left out is unknown, which is not the same as 0.
   */
  depths?(topics: readonly string[]): Promise<ReadonlyMap<string, number>>;
  /** What it makes at the broker for these groups. Asks nobody. */
  declares?(groups: readonly PlannedGroup[]): BrokerTopology;
}
