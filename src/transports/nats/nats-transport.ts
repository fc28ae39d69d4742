import type { ApiError } from "@nats-io/jetstream";
import type { Msg, MsgHdrs, NatsConnection } from "@nats-io/transport-node";
import { isSagaboxError, SagaboxError } from "../../errors/index.ts";
import { isValidTopic, type Message } from "../../message/index.ts";
import { allProblems, type Environment, readBrokerEnvironment } from "../../options/index.ts";
import { after } from "../../runtime/index.ts";
import {
  type BrokerObject,
  type BrokerTopology,
  type Capabilities,
  cloudEventBindings,
  type Consumption,
  type Delivery,
  type Lag,
  type PlannedGroup,
  type PublishOptions,
  type PublishOutcome,
  type Subscription,
  toWire,
  type Transport,
} from "../../transport/index.ts";
import { natsClient } from "./client.ts";
import { encodeValue, headerBytes, toNatsHeaders } from "./header-mapping.ts";
import { readLags } from "./lag.ts";
import { Link, type Session, unreachableError } from "./link.ts";
import { type NatsOptions, natsSettings, type NatsSettings } from "./options.ts";
import { timeoutError, toFailedOutcome, tooLargeError } from "./outcome.ts";
import { natsPermissions } from "./permissions.ts";
import { Subscriber } from "./subscriber.ts";
import { groupNames, messageSubject, partitionFor, readConsumerName, streamNames } from "./topology.ts";

/** Creates a transport that uses NATS JetStream. */
export function nats(options: NatsOptions = {}): Transport {
  const settings = allProblems("The options of nats()", () =>
    natsSettings(withEnvironment(options, process.env)),
  );
  return new NatsTransport(settings);
}

/** Bytes of a message besides its data: envelope and headers. */
const ENVELOPE_BYTES = 16_384;

class NatsTransport implements Transport {
  readonly name = "nats";
  readonly capabilities: Capabilities;
  readonly #settings: NatsSettings;
  readonly #link: Link;
  readonly #publisher: Publisher;
  readonly #subscribers = new Set<Subscriber>();

  constructor(settings: NatsSettings) {
    const link = new Link(settings);
    this.#settings = settings;
    this.#link = link;
    this.#publisher = new Publisher(link, settings);
    this.capabilities = {
      ordersByKey: true,
      ordersRetries: false,
      failsLaterOfKey: false,
      delaysRedelivery: true,
      keepsUnrouted: true,
      rejectsUnrouted: false,
      replays: true,
      replaysFromTime: true,
      reportsLag: true,
      get maxBytes() {
        return Math.max(1_024, link.maxPayload - ENVELOPE_BYTES);
      },
    };
  }

  declares(groups: readonly PlannedGroup[]): BrokerTopology {
    return planNatsTopology(this.#settings, groups);
  }

  async open(): Promise<void> {
    await this.#link.open();
  }

  async publish(batch: readonly Message[], options: PublishOptions): Promise<readonly PublishOutcome[]> {
    return this.#publisher.publish(batch, options);
  }

  async subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption> {
    await this.#link.open();
    const subscriber = new Subscriber({
      link: this.#link,
      settings: this.#settings,
      subscription,
      receive,
      closed: (ended) => this.#subscribers.delete(ended),
    });
    this.#subscribers.add(subscriber);
    try {
      await subscriber.start();
    } catch (error) {
      await subscriber.close();
      // A connection that breaks while streams are being declared is an outage like any other.
      throw isSagaboxError(error)
        ? error
        : unreachableError("NATS was lost while a group subscribed.", error);
    }
    return subscriber;
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.#subscribers, (subscriber) => subscriber.close()));
    await this.#link.close();
  }

  async depths(topics: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const { session } = this.#link;
    if (session === undefined) throw this.#link.trouble;
    return readDepths(session, this.#settings, topics);
  }

  async lags(groups: readonly PlannedGroup[]): Promise<readonly Lag[]> {
    const { session } = this.#link;
    if (session === undefined) throw this.#link.trouble;
    return readLags(session, this.#settings, groups);
  }
}

/** Fills options that are not set from environment variables. */
function withEnvironment(options: NatsOptions, env: Environment): NatsOptions {
  const { address, credentials, ca, format } = readBrokerEnvironment("nats", env);
  return {
    ...(address !== undefined && { servers: address.split(",") }),
    ...(credentials !== undefined && {
      credentials: () => {
        const { username, password } = credentials();
        return { user: username, password };
      },
    }),
    ...(ca !== undefined && { tls: { ca } }),
    ...(format !== undefined && { format }),
    ...options,
  };
}

/** Counts the messages of each topic that wait for its slowest group, unsettled ones included. */
async function readDepths(
  { jsm }: Session,
  { prefix }: NatsSettings,
  topics: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const topicBySubject = new Map(topics.map((topic) => [messageSubject(prefix, topic, "*"), topic]));
  const last = new Map<string, { topic: string; group: string; epoch: number; waiting: number }>();
  for await (const info of jsm.consumers.list(streamNames(prefix).messages)) {
    const name = readConsumerName(info.name);
    const topic = topicBySubject.get((info.config.filter_subject ?? "").replace(/\.[^.]+$/, ".*"));
    if (name === undefined || topic === undefined) continue;
    const { group, partition, epoch } = name;
    const slot = `${group}/${partition}`;
    // If a partition has consumers of two terms, count the later one; the former is about to be deleted.
    if ((last.get(slot)?.epoch ?? -1) > epoch) continue;
    last.set(slot, { topic, group, epoch, waiting: info.num_pending + info.num_ack_pending });
  }
  const groups = new Map<string, { topic: string; waiting: number }>();
  for (const { topic, group, waiting } of last.values()) {
    groups.set(group, { topic, waiting: (groups.get(group)?.waiting ?? 0) + waiting });
  }
  const depths = new Map(topics.map((topic) => [topic, 0]));
  for (const { topic, waiting } of groups.values()) {
    depths.set(topic, Math.max(depths.get(topic) ?? 0, waiting));
  }
  return depths;
}

/** Lists the streams of the prefix and the consumers of these groups. */
export function planNatsTopology(
  { prefix, partitions, replicas }: Pick<NatsSettings, "prefix" | "partitions" | "replicas">,
  groups: readonly PlannedGroup[],
): BrokerTopology {
  const streams = streamNames(prefix);
  const copies = `${replicas} ${replicas === 1 ? "copy" : "copies"}`;
  const objects: BrokerObject[] = [
    {
      kind: "stream",
      name: streams.messages,
      detail: `${prefix}.msg.>, ${partitions} partitions, ${copies}`,
    },
    { kind: "stream", name: streams.retries, detail: `${prefix}.retry.>, ${copies}` },
    { kind: "stream", name: streams.dead, detail: `${prefix}.dlq.>, ${copies}` },
    { kind: "stream", name: streams.groups, detail: `${prefix}.group.> and ${prefix}.topic.>, ${copies}` },
  ];
  for (const { service, group, topics, ordered } of groups) {
    const names = groupNames(prefix, service, group);
    for (const { topic } of topics) {
      objects.push({ kind: "subject", name: messageSubject(prefix, topic, "*"), detail: `read by ${group}` });
      const consumer = ordered
        ? names.partitionConsumer(topic, 0, 1).replace("-p0-e1", "-p*-e*")
        : names.sharedConsumer(topic);
      objects.push({ kind: "consumer", name: consumer, detail: `of ${group}` });
    }
  }
  const [first] = groups;
  const permissions =
    first === undefined
      ? []
      : [
          `permissions = ${JSON.stringify(natsPermissions({ service: first.service, role: "worker", prefix }))}`,
        ];
  return { objects, permissions };
}

/** Extra header bytes reserved for retry copies and dead letters. */
const COPY_HEADER_BYTES = 2_048;
const MAX_IN_FLIGHT = 500;

type Sending = ReturnType<Confirms["send"]>;

class Publisher {
  readonly #link: Link;
  readonly #settings: NatsSettings;
  readonly #stream: string;
  #confirms: { readonly nc: Session["nc"]; readonly confirms: Confirms } | undefined;

  constructor(link: Link, settings: NatsSettings) {
    this.#link = link;
    this.#settings = settings;
    this.#stream = streamNames(settings.prefix).messages;
  }

  async publish(batch: readonly Message[], { signal }: PublishOptions): Promise<PublishOutcome[]> {
    const outcomes: PublishOutcome[] = [];
    while (outcomes.length < batch.length) {
      const some = batch.slice(outcomes.length, outcomes.length + MAX_IN_FLIGHT);
      outcomes.push(...(await this.#publishChunk(some, signal)));
    }
    return outcomes;
  }

  async #publishChunk(batch: readonly Message[], signal: AbortSignal): Promise<PublishOutcome[]> {
    const { session } = this.#link;
    if (session === undefined || signal.aborted) {
      const error =
        session === undefined ? this.#link.trouble : unreachableError("The publish call was aborted.");
      return batch.map(() => ({ kind: "unreachable", error }));
    }
    const confirms = this.#confirmsFor(session);
    const { givenUp, done } = giveUpOnAbort([signal, session.over], this.#settings.timeoutMs);
    const sent = batch.map((message) => this.#send(session, confirms, message));
    try {
      const outcomes = await Promise.all(
        sent.map(async (one) => ("kind" in one ? one : Promise.race([one.outcome, givenUp]))),
      );
      if (!outcomes.some(({ kind }) => kind === "unreachable")) return outcomes;
      const { missingStream: error } = this.#link;
      this.#link.checkStreams(session);
      if (error === undefined) return outcomes;
      return outcomes.map((outcome) => (outcome.kind === "unreachable" ? { ...outcome, error } : outcome));
    } finally {
      done();
      for (const one of sent) if ("token" in one) confirms.forget(one.token);
    }
  }

  #confirmsFor({ nc }: Session): Confirms {
    if (this.#confirms?.nc !== nc) {
      this.#confirms = { nc, confirms: new Confirms(nc, this.#settings.inboxPrefix) };
    }
    return this.#confirms.confirms;
  }

  #send(session: Session, confirms: Confirms, message: Message): PublishOutcome | Sending {
    const { prefix, partitions } = this.#settings;
    if (!isValidTopic(message.topic)) return { kind: "refused", error: noTopicError() };
    const { body, headers } = toWire(message, {
      format: this.#settings.format,
      binding: cloudEventBindings.nats,
    });
    const bytes = body.length + headerBytes(headers) + COPY_HEADER_BYTES;
    if (bytes > session.maxPayload) {
      return { kind: "refused", error: tooLargeError(bytes, session.maxPayload) };
    }
    const natsHeaders = toNatsHeaders(headers);
    natsHeaders.set("Nats-Msg-Id", encodeValue(message.id));
    natsHeaders.set("Nats-Expected-Stream", this.#stream);
    const subject = messageSubject(prefix, message.topic, partitionFor(message, partitions));
    return confirms.send(subject, body, natsHeaders);
  }
}

function noTopicError(): SagaboxError {
  return new SagaboxError("TOPIC_INVALID", "The topic of the message is not a valid NATS subject.");
}

// A dead connection may never answer, so stop waiting on abort, on connection loss and after the timeout.
function giveUpOnAbort(
  signals: readonly AbortSignal[],
  ms: number,
): { readonly givenUp: Promise<PublishOutcome>; readonly done: () => void } {
  let done = (): void => undefined;
  const givenUp = new Promise<PublishOutcome>((resolve) => {
    const end = (): void => resolve({ kind: "unknown", error: timeoutError() });
    const cancel = after(ms, end);
    for (const signal of signals) signal.addEventListener("abort", end, { once: true });
    done = () => {
      cancel();
      for (const signal of signals) signal.removeEventListener("abort", end);
    };
  });
  return { givenUp, done };
}

const PUBLISHED: PublishOutcome = Object.freeze({ kind: "published" });

/** A published message without a confirmation yet. */
interface PendingConfirm {
  readonly subject: string;
  readonly settle: (outcome: PublishOutcome) => void;
}

/**
 * Publishes messages and receives all their confirmations through one subscription. The client's own publish creates an
 * error with a stack and a timer per message, which costs as much as sending it.
 */
class Confirms {
  readonly #nc: NatsConnection;
  readonly #inbox: string;
  readonly #waiting = new Map<string, PendingConfirm>();
  #count = 0;

  constructor(nc: NatsConnection, inboxPrefix: string) {
    this.#nc = nc;
    this.#inbox = `${natsClient.client.node.createInbox(inboxPrefix)}.`;
    nc.subscribe(`${this.#inbox}*`, { callback: (error, msg) => this.#onConfirm(error, msg) });
    void this.#watch();
  }

  /** Publishes one message. The outcome settles when the stream answers; a caller that stops waiting calls `forget`. */
  send(
    subject: string,
    body: Uint8Array,
    headers: MsgHdrs,
  ): { token: string; outcome: Promise<PublishOutcome> } {
    const token = (this.#count++).toString(36);
    const outcome = new Promise<PublishOutcome>((settle) => this.#waiting.set(token, { subject, settle }));
    try {
      this.#nc.publish(subject, body, { headers, reply: this.#inbox + token });
    } catch (error) {
      this.#settle(token, toFailedOutcome(error));
    }
    return { token, outcome };
  }

  forget(token: string): void {
    this.#waiting.delete(token);
  }

  #onConfirm(error: Error | null, msg: Msg): void {
    if (error !== null) return this.#settleAll(toFailedOutcome(error));
    const token = msg.subject.slice(this.#inbox.length);
    const sent = this.#waiting.get(token);
    if (sent !== undefined) this.#settle(token, toOutcome(msg, sent.subject));
  }

  // The server reports a denied subject to the connection, not as an answer to the message.
  async #watch(): Promise<void> {
    const { errors } = natsClient.client.node;
    for await (const status of this.#nc.status()) {
      if (status.type !== "error" || !(status.error instanceof errors.PermissionViolationError)) continue;
      const { operation, subject } = status.error;
      if (operation !== "publish") continue;
      for (const [token, sent] of this.#waiting) {
        if (sent.subject === subject) this.#settle(token, toFailedOutcome(status.error));
      }
    }
  }

  #settleAll(outcome: PublishOutcome): void {
    for (const token of this.#waiting.keys()) this.#settle(token, outcome);
  }

  #settle(token: string, outcome: PublishOutcome): void {
    this.#waiting.get(token)?.settle(outcome);
    this.#waiting.delete(token);
  }
}

function toOutcome(msg: Msg, subject: string): PublishOutcome {
  if (msg.data.length === 0 && msg.headers?.code === 503) {
    return toFailedOutcome(new natsClient.client.node.errors.NoRespondersError(subject));
  }
  try {
    const { error, stream } = msg.json<{ readonly error?: ApiError; readonly stream?: string }>();
    if (error !== undefined) return toFailedOutcome(new natsClient.client.jetstream.JetStreamApiError(error));
    return typeof stream === "string" && stream !== ""
      ? PUBLISHED
      : toFailedOutcome(new Error("no stream answered"));
  } catch (error) {
    return toFailedOutcome(error);
  }
}
