import type { Channel, ConsumeMessage } from "amqplib";
import { errorText, SagaboxError } from "../../errors/index.ts";
import type { Message } from "../../message/index.ts";
import { Loop, systemClock } from "../../runtime/index.ts";
import type { Consumption, DeadLetterNote, Delivery, Subscription } from "../../transport/index.ts";
import { declareGroup, withDeclareChannel } from "./declare.ts";
import { halfDeliveryLimit, RabbitDelivery, readRaw } from "./delivery.ts";
import { type Link, type LiveConnection, unreachableError } from "./link.ts";
import type { MessageCopier } from "./message-copier.ts";
import type { RabbitSettings } from "./options.ts";
import { QueueReader, type Reader } from "./queue-reader.ts";
import { StreamReader } from "./stream-reader.ts";
import { groupNames, type GroupNames, type Route, routeFor } from "./topology.ts";

export interface SubscriberParts {
  /** The consuming connection. */
  readonly link: Link;
  readonly copier: MessageCopier;
  readonly settings: RabbitSettings;
  readonly subscription: Subscription;
  readonly receive: (delivery: Delivery) => void;
}

const REDECLARE_MS = 60_000;

/** One member of a consumer group. It consumes the group's queues, reconnects after failures and delivers messages. */
export class Subscriber implements Consumption {
  readonly #parts: SubscriberParts;
  readonly #names: GroupNames;
  readonly #routes: readonly Route[];
  readonly #readers: readonly Reader[];
  readonly #members: MemberCounter;
  readonly #loop: Loop;
  readonly #stopListening: () => void;
  #first: ((failure?: Error) => void) | undefined;
  #declaredOn: LiveConnection | undefined;
  #declaredAtMs = 0;
  #lastError: string | undefined = "not subscribed yet";
  /** Why the members could not be counted. Delivery continues, but the queues may be shared unevenly. */
  #rebalanceError: string | undefined;
  #inFlightCount = 0;
  #next = 0;
  #isDispatching = false;
  #paused = false;

  constructor(parts: SubscriberParts) {
    this.#parts = parts;
    const { settings, subscription, link } = parts;
    this.#names = groupNames(
      settings.prefix,
      subscription,
      subscription.ordered ? settings.partitions : undefined,
    );
    this.#routes = subscription.topics.map(({ topic, kind }) => routeFor(topic, kind, settings));
    this.#readers = [
      ...this.#names.queues.map((queue) => this.#createReader(queue)),
      ...this.#createStreamReaders(),
    ];
    this.#members = new MemberCounter(link, this.#names.membersQueue);
    this.#loop = new Loop({
      step: () => this.#step(),
      onError: (error) => this.#recordError(error),
      maxBackoffMs: 2_000,
    });
    this.#stopListening = link.onChange(() => this.#loop.wake());
  }

  get topics(): readonly string[] {
    return this.#parts.subscription.topics.map(({ topic }) => topic);
  }

  get queues(): readonly string[] {
    return this.#names.queues;
  }

  /** Resolves when subscribed or after a first failure, and keeps trying. Throws if the broker refuses the queues. */
  async start(): Promise<void> {
    const outcome = new Promise<Error | undefined>((resolve) => (this.#first = resolve));
    await this.#loop.start();
    const failure = await outcome;
    if (failure === undefined) return;
    await this.close();
    throw failure;
  }

  deadLetter(message: Message, note: DeadLetterNote): Promise<void> {
    return this.#parts.copier.copyMessageToDeadLetters(message, this.#names.id, note);
  }

  async pause(): Promise<void> {
    this.#paused = true;
    for (const reader of this.#readers) reader.retire();
  }

  async close(): Promise<void> {
    this.#paused = true;
    this.#stopListening();
    await this.#loop.stop();
    await Promise.all([...this.#readers.map((reader) => reader.close()), this.#members.close()]);
  }

  health(): { readonly ok: boolean; readonly detail?: string } {
    const { live, trouble } = this.#parts.link;
    if (live === undefined) return { ok: false, detail: `no connection to RabbitMQ: ${trouble}` };
    if (this.#lastError !== undefined) return { ok: false, detail: this.#lastError };
    if (this.#rebalanceError === undefined) return { ok: true };
    return { ok: true, detail: `partitions cannot be rebalanced at the moment: ${this.#rebalanceError}` };
  }

  async #step(): Promise<number> {
    const { link, settings } = this.#parts;
    if (this.#paused) return Infinity;
    const { live } = link;
    if (live === undefined) throw unreachableError(`RabbitMQ cannot be reached: ${link.trouble}`);
    await this.#declare(live);
    for (const reader of this.#readers) {
      if (reader.open || this.#paused) continue;
      await reader.start(live);
      if (this.#paused) reader.retire(); // pause() was called while this reader was opening
    }
    this.#lastError = undefined;
    this.#first?.();
    if (this.#names.queues.length === 1) return REDECLARE_MS;
    this.#rebalanceError = await this.#rebalance(live).then(() => undefined, errorText);
    return settings.rebalanceIntervalMs;
  }

  // Repeated every minute, because the broker does not report a binding that an operator has removed.
  async #declare(live: LiveConnection): Promise<void> {
    const { link, settings } = this.#parts;
    const nowMs = systemClock.monotonicMs();
    if (this.#declaredOn === live && nowMs - this.#declaredAtMs < REDECLARE_MS) return;
    await withDeclareChannel(link, live, (channel) =>
      declareGroup(channel, this.#names, this.#routes, settings),
    );
    this.#declaredOn = live;
    this.#declaredAtMs = nowMs;
  }

  // The broker assigns each queue to its first consumer. A member with more than its share releases queues, and the
  // broker assigns each to the member that has waited longest, so the members soon hold equally many.
  async #rebalance(live: LiveConnection): Promise<void> {
    const members = await this.#members.count(live);
    const active = this.#readers.filter((reader) => reader.active);
    const share = Math.ceil(this.#names.queues.length / members);
    for (const reader of active.slice(share)) reader.retire();
  }

  #recordError(error: unknown): void {
    this.#declaredOn = undefined;
    this.#lastError = errorText(error);
    this.#first?.(findRefusal(error, this.#parts.subscription.group));
  }

  #createReader(queue: string): Reader {
    const { link, subscription } = this.#parts;
    return new QueueReader({
      link,
      queue,
      prefetch: Math.min(subscription.prefetch, 65_535),
      read: (raw, channel, onClosed) => this.#createDelivery({ raw, channel, queue, onClosed }),
      onChange: () => this.#onChange(),
    });
  }

  #createStreamReaders(): Reader[] {
    const { link, copier, settings, subscription } = this.#parts;
    return subscription.topics.flatMap(({ from }, n) => {
      const streamQueue = this.#routes[n]?.streamQueue;
      if (streamQueue === undefined) return [];
      const reader = new StreamReader({
        link,
        copier,
        settings,
        subscription,
        routes: this.#routes,
        names: this.#names,
        streamQueue,
        from,
        onSettled: () => (this.#inFlightCount -= 1),
        onChange: () => this.#onChange(),
      });
      return [reader];
    });
  }

  #onChange(): void {
    this.#dispatch();
    if (!this.#paused && this.#readers.some((reader) => !reader.open)) this.#loop.wake();
  }

  // Each queue alone may fill the prefetch, so messages are delivered from all queues in turn.
  #dispatch(): void {
    if (this.#isDispatching) return;
    this.#isDispatching = true;
    try {
      while (!this.#paused && this.#inFlightCount < this.#parts.subscription.prefetch) {
        const delivery = this.#takeNext();
        if (delivery === undefined) break;
        this.#inFlightCount += 1;
        this.#parts.receive(delivery);
      }
    } finally {
      this.#isDispatching = false;
    }
  }

  #takeNext(): RabbitDelivery | undefined {
    for (let n = 0; n < this.#readers.length; n++) {
      const reader = this.#readers[this.#next++ % this.#readers.length];
      if (reader !== undefined && reader.waiting > 0) return reader.take();
    }
    return undefined;
  }

  #createDelivery(from: {
    raw: ConsumeMessage;
    channel: Channel;
    queue: string;
    onClosed: () => void;
  }): RabbitDelivery {
    const { copier, settings, subscription } = this.#parts;
    const { raw, channel, queue } = from;
    const received = readRaw(raw, { subscription, settings, routes: this.#routes });
    const { attempts, redeliveries, topic } = received;
    const to = { service: subscription.service, queue };
    return new RabbitDelivery(received, {
      ack: () => channel.ack(raw),
      retry: ({ delayMs, countsAsAttempt }) =>
        copier.copyToRetry(raw, to, { attempt: attempts + (countsAsAttempt ? 1 : 0), delayMs, topic }),
      release: async () => {
        // Closing the channel returns all messages in order; a quorum queue reorders messages that are returned singly.
        if (this.#paused) return;
        if (redeliveries < halfDeliveryLimit(settings)) channel.nack(raw, false, true);
        else {
          // A copy restarts the broker's count, which would otherwise reach the delivery limit.
          await copier.copyToRetry(raw, to, { attempt: attempts, delayMs: 0, topic });
          channel.ack(raw);
        }
      },
      deadLetter: (note) => copier.copyToDeadLetters(raw, this.#names.id, note),
      onClosed: () => {
        this.#inFlightCount -= 1;
        from.onClosed();
      },
    });
  }
}

// These codes mean that the broker refused a declaration. Other errors are retried.
function findRefusal(error: unknown, group: string): Error | undefined {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code !== 403 && code !== 405 && code !== 406) return undefined;
  return new SagaboxError(
    "OPTIONS_INVALID",
    `RabbitMQ refused the queues of group "${group}". Queues and partitions of a group cannot be changed while they ` +
      `exist, and the account must be allowed to declare them. The broker's reason: ${(error as Error).message}`,
    { cause: error },
  );
}

/**
 * Counts the members of a group. Each member consumes a queue that stays empty, and the broker reports the number of
 * its consumers. The queue is replicated, so that the count survives the loss of a node.
 */
class MemberCounter {
  readonly #link: Link;
  readonly #queue: string;
  #channel: Channel | undefined;
  #live: LiveConnection | undefined;

  constructor(link: Link, queue: string) {
    this.#link = link;
    this.#queue = queue;
  }

  async count(live: LiveConnection): Promise<number> {
    const channel = await this.#join(live);
    const { consumerCount } = await this.#link.request(
      live,
      "counting members",
      declare(channel, this.#queue),
    );
    return Math.max(1, consumerCount);
  }

  async close(): Promise<void> {
    const channel = this.#channel;
    const live = this.#live;
    this.#channel = undefined;
    if (channel === undefined || live === undefined || live.lost.aborted) return;
    await this.#link.request(live, "closing a channel", channel.close()).catch(() => undefined);
  }

  async #join(live: LiveConnection): Promise<Channel> {
    if (this.#channel !== undefined) return this.#channel;
    const channel = await this.#link.openChannel(live);
    channel.on("close", () => {
      if (this.#channel === channel) this.#channel = undefined;
    });
    await this.#link.request(live, "joining a group", declare(channel, this.#queue));
    await this.#link.request(
      live,
      "joining a group",
      channel.consume(this.#queue, () => undefined, { noAck: true }),
    );
    this.#channel = channel;
    this.#live = live;
    return channel;
  }
}

const declare = (channel: Channel, queue: string): ReturnType<Channel["assertQueue"]> =>
  channel.assertQueue(queue, { durable: true, autoDelete: false, arguments: { "x-queue-type": "quorum" } });
