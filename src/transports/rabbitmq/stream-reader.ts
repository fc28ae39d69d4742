import type { Channel, ConsumeMessage } from "amqplib";
import { laneFor } from "../../message/index.ts";
import { systemClock } from "../../runtime/index.ts";
import type { Subscription, TopicRequest } from "../../transport/index.ts";
import type { Link, LiveConnection } from "./link.ts";
import type { MessageCopier } from "./message-copier.ts";
import { RabbitDelivery } from "./delivery.ts";
import type { RabbitSettings } from "./options.ts";
import { readCount } from "./properties.ts";
import type { Reader } from "./queue-reader.ts";
import { readRaw } from "./read-raw.ts";
import { StreamGuard } from "./stream-guard.ts";
import { Progress, toStreamOffset, type Position } from "./stream-position.ts";
import { offsetQueue, type GroupNames, type Route } from "./topology.ts";

interface StreamReaderParts {
  readonly link: Link;
  readonly courier: MessageCopier;
  readonly settings: RabbitSettings;
  readonly subscription: Subscription;
  readonly routes: readonly Route[];
  readonly names: GroupNames;
  readonly streamQueue: string;
  readonly from: TopicRequest["from"];
  readonly settled: () => void;
  readonly changed: () => void;
}

/**
 * Reads a stream for a group: one member at a time, from where the group left off. The broker does not remember that
 * for us, so the guard does.
 */
export class StreamReader implements Reader {
  readonly active = false;
  readonly #parts: StreamReaderParts;
  readonly #guard: StreamGuard;
  readonly #inFlight = new Set<RabbitDelivery>();
  #live: LiveConnection | undefined;
  #channel: Channel | undefined;
  #arrived: ConsumeMessage[] = [];
  #progress = new Progress(-1);
  #isRetiring = false;
  #arrivedMs = 0;

  constructor(parts: StreamReaderParts) {
    this.#parts = parts;
    const { link, courier, settings, names, streamQueue } = parts;
    this.#guard = new StreamGuard({
      link,
      courier,
      settings,
      queue: offsetQueue(settings.prefix, names.id, streamQueue),
      chosen: (live, position) => this.#consume(live, position),
      lost: () => void this.#onClosed(),
    });
  }

  get open(): boolean {
    return this.#guard.open;
  }

  get waiting(): number {
    return this.#isRetiring ? 0 : this.#arrived.length;
  }

  async start(live: LiveConnection): Promise<void> {
    this.#isRetiring = false;
    const { from } = this.#parts;
    this.#arrivedMs = from === "now" ? systemClock.wallMs() : 0;
    const sinceMs = typeof from === "object" ? Math.max(0, from.time.getTime()) : this.#arrivedMs;
    await this.#guard.join(live, { offset: -1, sinceMs });
  }

  take(): RabbitDelivery | undefined {
    const channel = this.#channel;
    const raw = this.#isRetiring ? undefined : this.#arrived.shift();
    if (raw === undefined || channel === undefined) return undefined;
    const delivery: RabbitDelivery = this.#createDelivery(raw, channel, () => {
      this.#inFlight.delete(delivery);
      this.#parts.settled();
      this.#closeWhenIdle();
      this.#parts.changed();
    });
    this.#inFlight.add(delivery);
    return delivery;
  }

  retire(): void {
    this.#isRetiring = true;
    this.#closeWhenIdle();
  }

  async close(): Promise<void> {
    this.#isRetiring = true;
    await this.#guard.leave();
    await this.#onClosed();
  }

  async #consume(live: LiveConnection, position: Position): Promise<void> {
    const { link, subscription, streamQueue } = this.#parts;
    const channel = await link.openChannel(live);
    this.#channel = channel;
    this.#live = live;
    this.#progress = new Progress(position.offset);
    channel.on("close", () => {
      if (this.#channel === channel) void this.close();
    });
    await link.request(
      live,
      "setting the prefetch",
      channel.prefetch(Math.min(subscription.prefetch, 65_535)),
    );
    const consuming = channel.consume(streamQueue, (raw) => raw !== null && this.#onMessage(raw, channel), {
      arguments: { "x-stream-offset": toStreamOffset(position, this.#arrivedMs) },
    });
    await link.request(live, `consuming ${streamQueue}`, consuming);
  }

  #onMessage(raw: ConsumeMessage, channel: Channel): void {
    // A stream is sent in chunks, so something from before the offset may come first.
    if (!this.#progress.add(readCount(raw.properties.headers, "x-stream-offset"))) channel.ack(raw);
    else {
      this.#arrived.push(raw);
      this.#parts.changed();
    }
  }

  #createDelivery(raw: ConsumeMessage, channel: Channel, closed: () => void): RabbitDelivery {
    const { courier, names } = this.#parts;
    const received = readRaw(raw, this.#parts);
    const { attempts, topic, message } = received;
    const lane = laneFor(message.key ?? message.id);
    const queue = names.queues[lane % names.queues.length] ?? "";
    const to = { service: this.#parts.subscription.service, queue };
    return new RabbitDelivery(received, {
      ack: () => {
        channel.ack(raw);
        this.#progress.settle(readCount(raw.properties.headers, "x-stream-offset"));
        this.#guard.advance(this.#progress.done);
      },
      // A stream cannot be put in another order: what is tried again comes through the group's own queue.
      retry: ({ delayMs, charged }) =>
        courier.copyToRetry(raw, to, { attempt: attempts + (charged ? 1 : 0), delayMs, topic }),
      release: async () => {
        this.#arrived.unshift(raw);
      },
      deadLetter: (note) => courier.copyToDeadLetters(raw, names.id, note),
      onClosed: closed,
    });
  }

  #closeWhenIdle(): void {
    if (this.#isRetiring && this.#inFlight.size === 0) void this.close();
  }

  async #onClosed(): Promise<void> {
    const channel = this.#channel;
    const live = this.#live;
    this.#channel = undefined;
    this.#arrived = [];
    for (const delivery of this.#inFlight) delivery.abandon();
    this.#parts.changed();
    if (channel === undefined || live === undefined || live.lost.aborted) return;
    const { link } = this.#parts;
    await Promise.resolve()
      .then(() => link.request(live, "closing a channel", channel.close()))
      .catch(() => undefined);
  }
}
