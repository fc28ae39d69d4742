import { SagaboxError } from "../errors/index.ts";
import type { Message, MessageKind } from "../message/index.ts";
import type { Database, Param, Statement } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { Lag } from "./lag.ts";

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
  /**
   * Reports how far these groups are behind, also groups without a member in this process. A value that the broker does
   * not report is "unknown"; a topic may be left out, which means the same.
   */
  lags?(groups: readonly PlannedGroup[]): Promise<readonly Lag[]>;
  /** The objects and permissions that these groups need at the broker. Does not contact the broker. */
  declares?(groups: readonly PlannedGroup[]): BrokerTopology;
}

/** One copy of a message for one consumer group. It is settled once; later calls have no effect. */
export interface Delivery {
  readonly message: Message;
  /** Why the received bytes are not a valid message. `message` then holds the parts that could be read. */
  readonly flaw?: Error;
  /** 1 for the first delivery, plus one for each retry that counts as an attempt. */
  readonly attempt: number;
  /** The stream whose order must be kept, or null if there is no order to keep. */
  readonly orderKey: string | null;
  /** Aborted when another member of the group took over the delivery. Do not commit or settle anything after that. */
  readonly signal: AbortSignal;
  /** Acknowledges the delivery. Call it after the effect has committed. */
  ack(): Promise<void>;
  /**
   * Only for a transport in the same database: a statement that acknowledges inside the effect's transaction. If the
   * delivery is gone, because another member took it over, it fails the transaction (division_by_zero).
   */
  readonly ackWith?: AckWith;
  /** Called after a transaction that ran `ackWith` has committed. */
  readonly confirmAck?: () => void;
  /** Redelivers after the delay. If the transport orders retries, later messages of the key stay behind it. */
  retry(options: RetryOptions): Promise<void>;
  /**
   * Returns the delivery unchanged and without counting an attempt, because an earlier message of its key is retried
   * first.
   */
  release(): Promise<void>;
  /**
   * Only for brokers with a dead-letter queue: copies the message there, body unchanged and note in the headers, and
   * then acknowledges it unless it was acknowledged before. The dead letter in PostgreSQL is committed first.
   */
  deadLetter?(note: DeadLetterNote): Promise<void>;
}

/** A statement that acknowledges a delivery, run by the handler's transaction. */
export interface AckWith {
  readonly statement: Statement;
  readonly params: readonly Param[];
  /**
   * Acknowledges several deliveries in one statement, or fails for all of them. Each parameter is the array of the
   * values that `statement` takes at that position, as one array literal.
   */
  readonly together?: Statement;
}

/** Headers of a dead-lettered message at the broker. The names are sent as they are. */
export interface DeadLetterNote {
  readonly error_type: string;
  readonly error_message: string;
  readonly stack_trace: string;
  readonly retry_count: string;
  readonly failed_at: string;
  readonly source_topic: string;
  readonly consumer_group: string;
  readonly original_timestamp: string;
}

export interface RetryOptions {
  readonly delayMs: number;
  /** False if the failure was not caused by the message: the attempt is not counted. */
  readonly countsAsAttempt: boolean;
  readonly error: string;
}

/**
 * What a transport can do. The conformance suite tests each claim, and skips the cases of claims that are not made.
 */
export interface Capabilities {
  /** Keeps order per key among the competing members of a consumer group. */
  readonly ordersByKey: boolean;
  /**
   * Keeps order per key through retries too. If false, the bus parks the failed messages of a key in PostgreSQL, in
   * order.
   */
  readonly ordersRetries: boolean;
  /**
   * When one message of a key fails in a batch, every later one of that key fails too. A batch may then hold several
   * messages of a key.
   */
  readonly failsLaterOfKey: boolean;
  /** Can redeliver a message after a delay. */
  readonly delaysRedelivery: boolean;
  /** Keeps a message without a subscriber for the first group that subscribes, instead of dropping it. */
  readonly keepsUnrouted: boolean;
  /** Rejects a message that no queue accepts, instead of dropping it. */
  readonly rejectsUnrouted: boolean;
  /** A new group can read messages that were published before it subscribed. */
  readonly replays: boolean;
  /**
   * A new group can start at a given time. A transport with this claim but without `replays` can do so for streams
   * only.
   */
  readonly replaysFromTime: boolean;
  /** Reports how far each group is behind (`lags`). */
  readonly reportsLag: boolean;
  /** The largest message the transport accepts, in bytes of data. */
  readonly maxBytes: number;
}

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

/**
 * Where a consumer that is new to a topic starts. With a time it gets everything published at or after it; brokers
 * index times roughly, so it may also get slightly older messages.
 */
export type StartingPoint = "now" | "beginning" | { readonly time: Date };

/** Throws `TRANSPORT_CANNOT_REPLAY` if the transport cannot start a topic at the requested time. */
export function assertCanBegin(
  { name, capabilities }: Pick<Transport, "name" | "capabilities">,
  topics: readonly TopicRequest[],
): void {
  const { replaysFromTime, replays } = capabilities;
  const unsupported = topics.find(
    ({ from, kind }) => typeof from === "object" && !(replaysFromTime && (replays || kind === "stream")),
  );
  if (unsupported === undefined) return;
  const can = replaysFromTime ? "it can do so for streams only" : "it does not support start times";
  throw new SagaboxError(
    "TRANSPORT_CANNOT_REPLAY",
    `The ${unsupported.kind} topic "${unsupported.topic}" cannot be read from a given time on ${name}: ${can}.`,
  );
}

/**
 * Lets a transport in the outbox's own database take over a batch inside the statement that settles it. That is one
 * transaction without a copy of the payload, so nothing can be lost or sent twice in between.
 */
export interface LocalHop {
  /** Settles sent rows. Takes the parameters and returns the columns of the outbox's own settle statement. */
  readonly settle: Statement;
  /** Like `settle`, but skips rows that other sessions have locked, and returns them in addition. */
  readonly settlePast: Statement;
  /** Settles rows that the writing process leased to itself. */
  readonly settleLeased: Statement;
  /** Settles leased rows, skips rows that other sessions have locked, and returns the skipped ones. */
  readonly settleLeasedPast: Statement;
  /** Wakes consumers that wait for new deliveries in these lanes. */
  wake(lanes: readonly number[]): void;
}

/** The bus's database, as attached to a local transport. */
export interface HomeDatabase {
  readonly database: Database;
  readonly schema: string;
  readonly channel: string;
  readonly leaseMs: number;
  readonly observer: Observer;
}

/** The terms of a drain: it takes only what no worker owns. */
export interface GuestTerms {
  /** Reads rows within the limit of the drain. */
  readonly budget: {
    readonly isSpent: boolean;
    take<T>(wanted: number, read: (limit: number) => Promise<T[]>): Promise<T[]>;
  };
  /** The database, without dedicated connections. */
  readonly database: Database;
}

/** What a guest may work on: everything, nothing because workers own it, or what other guests leave. */
export type GuestView = "unknown" | "all" | "workers" | "guests";

/** The consumption of a drain. */
export interface GuestConsumption extends Consumption {
  readonly view: GuestView;
  /** True if nothing is due or in flight here, as of the last `sweep`. */
  readonly isIdle: boolean;
  /** The number of deliveries that are not settled. */
  readonly inFlight: number;
  /** Reads everything again. */
  sweep(): void;
  /** True if something is due that neither this guest nor a worker owns. */
  isMoreDue(): Promise<boolean>;
}

export interface LocalTransport extends Transport {
  attach(home: HomeDatabase): LocalHop;
  /** Joins a group without taking a share of the work: no other member gives anything up for a guest. */
  subscribeAsGuest(
    subscription: Subscription,
    terms: GuestTerms,
    receive: (delivery: Delivery) => void,
  ): Promise<GuestConsumption>;
  /** A notification arrived for these lanes. Undefined means that notifications may have been missed. */
  hint(lanes: readonly number[] | undefined, changed?: boolean): void;
}

export function isLocalTransport(transport: Transport): transport is LocalTransport {
  return "attach" in transport && typeof transport.attach === "function";
}
