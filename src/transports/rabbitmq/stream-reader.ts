import type { Channel, ConsumeMessage } from "amqplib";
import { laneFor } from "../../message/index.ts";
import { randomToken, systemClock, withDeadline } from "../../runtime/index.ts";
import type { Subscription, TopicRequest } from "../../transport/index.ts";
import { RabbitDelivery, readRaw } from "./delivery.ts";
import type { Link, LiveConnection } from "./link.ts";
import type { MessageCopier } from "./message-copier.ts";
import type { RabbitSettings } from "./options.ts";
import { readCount } from "./properties.ts";
import type { Reader } from "./queue-reader.ts";
import { type GroupNames, offsetQueue, type Route } from "./topology.ts";

interface StreamReaderParts {
  readonly link: Link;
  readonly copier: MessageCopier;
  readonly settings: RabbitSettings;
  readonly subscription: Subscription;
  readonly routes: readonly Route[];
  readonly names: GroupNames;
  readonly streamQueue: string;
  readonly from: TopicRequest["from"];
  readonly onSettled: () => void;
  readonly onChange: () => void;
}

/**
 * Reads a stream for a group. One member reads at a time and continues at the group's position, which a StreamGuard
 * stores because the broker does not.
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
    const { link, copier, settings, names, streamQueue } = parts;
    this.#guard = new StreamGuard({
      link,
      copier,
      settings,
      queue: offsetQueue(settings.prefix, names.id, streamQueue),
      onElected: (live, position) => this.#consume(live, position),
      onLost: () => void this.#onClosed(),
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
      this.#parts.onSettled();
      this.#closeWhenIdle();
      this.#parts.onChange();
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
    // A stream is sent in chunks, so messages before the requested offset may arrive first.
    if (!this.#progress.add(readCount(raw.properties.headers, "x-stream-offset"))) channel.ack(raw);
    else {
      this.#arrived.push(raw);
      this.#parts.onChange();
    }
  }

  #createDelivery(raw: ConsumeMessage, channel: Channel, closed: () => void): RabbitDelivery {
    const { copier, names } = this.#parts;
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
      // A stream cannot be reordered, so a retry is delivered through the group's own queue.
      retry: ({ delayMs, countsAsAttempt }) =>
        copier.copyToRetry(raw, to, { attempt: attempts + (countsAsAttempt ? 1 : 0), delayMs, topic }),
      release: async () => {
        this.#arrived.unshift(raw);
      },
      deadLetter: (note) => copier.copyToDeadLetters(raw, names.id, note),
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
    this.#parts.onChange();
    if (channel === undefined || live === undefined || live.lost.aborted) return;
    const { link } = this.#parts;
    await Promise.resolve()
      .then(() => link.request(live, "closing a channel", channel.close()))
      .catch(() => undefined);
  }
}

interface StreamGuardParts {
  readonly link: Link;
  readonly copier: MessageCopier;
  readonly settings: RabbitSettings;
  /** The queue that stores the group's position, with a single active consumer. */
  readonly queue: string;
  /** Called when this member is elected to read, with the position after which it starts. */
  readonly onElected: (live: LiveConnection, position: Position) => Promise<void>;
  readonly onLost: () => void;
}

/**
 * Elects the member of a group that reads a stream, and stores the group's position. Both use one queue with a single
 * active consumer: the position is a message that the elected member holds unacknowledged. A new position is written
 * before the old one is acknowledged. When the member dies, the broker delivers the position to the next one.
 */
class StreamGuard {
  readonly #parts: StreamGuardParts;
  #channel: Channel | undefined;
  #live: LiveConnection | undefined;
  #held: { readonly raw: ConsumeMessage; readonly position: Position } | undefined;
  /** Id of a message written to the queue. When it arrives, all positions stored before it have been read. */
  #probe: string | undefined;
  #reading: Promise<void> | undefined;
  #done = -1;
  #writing: Promise<void> | undefined;

  constructor(parts: StreamGuardParts) {
    this.#parts = parts;
  }

  get open(): boolean {
    return this.#channel !== undefined;
  }

  /** Joins the election. If the queue has no other consumer, resolves when this member reads. */
  async join(live: LiveConnection, start: Position): Promise<void> {
    const { link, copier, settings, queue } = this.#parts;
    const channel = await link.openChannel(live);
    this.#channel = channel;
    this.#live = live;
    this.#held = undefined;
    this.#probe = undefined;
    this.#done = -1;
    let resolveElected = (): void => undefined;
    const first = new Promise<void>((resolve) => (resolveElected = resolve));
    channel.on("close", () => this.#onClosed(channel));
    const { consumerCount } = await link.request(live, "declaring", declareOffsets(channel, queue, settings));
    const consuming = channel.consume(queue, (raw) => {
      if (raw !== null) this.#onMessage(raw, channel, live, resolveElected);
    });
    await link.request(live, `consuming ${queue}`, consuming);
    await copier.writePosition(queue, writePosition(start), randomToken());
    if (consumerCount === 0) await withDeadline(first, settings.timeoutMs, () => undefined);
    await this.#reading;
  }

  /** Stores `offset` as settled together with all earlier ones, after a write in progress has finished. */
  advance(offset: number): void {
    if (offset > this.#done) this.#done = offset;
    this.#writing ??= this.#writePosition().finally(() => (this.#writing = undefined));
  }

  async leave(): Promise<void> {
    const channel = this.#channel;
    const live = this.#live;
    if (channel === undefined || live === undefined) return;
    await this.#writing;
    this.#channel = undefined;
    if (!live.lost.aborted) {
      await this.#parts.link.request(live, "closing a channel", channel.close()).catch(() => undefined);
    }
  }

  async #writePosition(): Promise<void> {
    const { copier, queue } = this.#parts;
    let written = this.#held?.position.offset ?? -1;
    while (this.#done > written && this.#channel !== undefined) {
      written = this.#done;
      // A position that could not be written is covered by the next one; until then a crash repeats more messages.
      await copier
        .writePosition(queue, writePosition({ offset: written, sinceMs: 0 }), randomToken())
        .catch(() => undefined);
    }
  }

  #onMessage(raw: ConsumeMessage, channel: Channel, live: LiveConnection, onElected: () => void): void {
    const id = String(raw.properties.messageId);
    if (id === this.#probe) {
      channel.ack(raw);
      const position = this.#held?.position ?? { offset: -1, sinceMs: 0 };
      this.#done = position.offset;
      this.#reading = this.#parts.onElected(live, position).catch(() => this.#closeChannel(channel));
      void this.#reading.then(onElected);
      return;
    }
    this.#holdPosition(raw, channel);
    if (this.#probe !== undefined) return;
    this.#probe = randomToken();
    this.#parts.copier
      .writePosition(this.#parts.queue, Buffer.from("probe"), this.#probe)
      .catch(() => this.#closeChannel(channel));
  }

  // Keeps the furthest of several positions and discards probes of members that died.
  #holdPosition(raw: ConsumeMessage, channel: Channel): void {
    const position = readPosition(raw.content);
    const held = this.#held;
    if (position === undefined) channel.ack(raw);
    else if (held === undefined) this.#held = { raw, position };
    else if (maxPosition(held.position, position) === held.position) channel.ack(raw);
    else {
      this.#held = { raw, position };
      channel.ack(held.raw);
    }
  }

  #closeChannel(channel: Channel): void {
    channel.close().catch(() => undefined);
  }

  #onClosed(channel: Channel): void {
    if (this.#channel !== channel) return;
    this.#channel = undefined;
    this.#parts.onLost();
  }
}

function declareOffsets(
  channel: Channel,
  queue: string,
  { queues, prefix }: RabbitSettings,
): ReturnType<Channel["assertQueue"]> {
  return channel
    .assertQueue(queue, {
      durable: true,
      autoDelete: false,
      arguments: { "x-queue-type": queues, "x-single-active-consumer": true },
    })
    .then(async (declared) => {
      await channel.bindQueue(queue, `${prefix}.return`, `*.*.${queue}`);
      return declared;
    });
}

/** How far a group has read a stream, as stored in its offset queue. */
interface Position {
  /** The last offset that is settled together with all before it, or -1. */
  readonly offset: number;
  /** When a group without an offset subscribed, in milliseconds since 1970; 0 for one that begins with the first. */
  readonly sinceMs: number;
}

type StreamOffset = number | "first" | "next" | { readonly "!": "timestamp"; readonly value: number };

/** Returns the furthest position. An older one may remain when a process dies between writing and acknowledging. */
export function maxPosition(a: Position, b: Position): Position {
  if (a.offset !== b.offset) return a.offset > b.offset ? a : b;
  return a.sinceMs <= b.sinceMs ? a : b;
}

/** Converts a position to x-stream-offset. The broker rounds times to seconds, so a new group uses "next" instead. */
export function toStreamOffset({ offset, sinceMs }: Position, arrivedMs: number): StreamOffset {
  if (offset >= 0) return offset + 1;
  if (sinceMs !== 0 && sinceMs === arrivedMs) return "next";
  return sinceMs === 0 ? "first" : { "!": "timestamp", value: Math.floor(sinceMs / 1_000) };
}

export function readPosition(body: Buffer): Position | undefined {
  const [offset, sinceMs] = body.toString("utf8").split(" ").map(Number);
  if (offset === undefined || sinceMs === undefined) return undefined;
  return Number.isSafeInteger(offset) && Number.isSafeInteger(sinceMs) ? { offset, sinceMs } : undefined;
}

export function writePosition({ offset, sinceMs }: Position): Buffer {
  return Buffer.from(`${offset} ${sinceMs}`);
}

/** Tracks the offsets in flight to find the offset up to which all messages are settled. */
export class Progress {
  readonly #open = new Set<number>();
  #seen: number;

  constructor(offset: number) {
    this.#seen = offset;
  }

  /** Adds an offset. Returns false if it was already added or lies before the start. */
  add(offset: number): boolean {
    if (offset <= this.#seen) return false;
    this.#seen = offset;
    this.#open.add(offset);
    return true;
  }

  settle(offset: number): void {
    this.#open.delete(offset);
  }

  /** The last offset up to which everything is settled. */
  get done(): number {
    // A set keeps insertion order, so its first offset is the smallest.
    const [oldest] = this.#open;
    return oldest === undefined ? this.#seen : oldest - 1;
  }
}
