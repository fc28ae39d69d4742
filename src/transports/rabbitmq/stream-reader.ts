import type { Channel, ConsumeMessage } from "amqplib";
import { laneFor } from "../../message/index.ts";
import { randomToken, systemClock, withDeadline } from "../../runtime/index.ts";
import type { Subscription, TopicRequest } from "../../transport/index.ts";
import { RabbitDelivery } from "./delivery.ts";
import type { Link, LiveConnection } from "./link.ts";
import type { MessageCopier } from "./message-copier.ts";
import type { RabbitSettings } from "./options.ts";
import { readCount } from "./properties.ts";
import type { Reader } from "./queue-reader.ts";
import { readRaw } from "./read-raw.ts";
import { type GroupNames, offsetQueue, type Route } from "./topology.ts";

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

interface StreamGuardParts {
  readonly link: Link;
  readonly courier: MessageCopier;
  readonly settings: RabbitSettings;
  /** Where the group's position lies. Its broker gives it to one member at a time. */
  readonly queue: string;
  /** This member is the one that reads, from here on. */
  readonly chosen: (live: LiveConnection, position: Position) => Promise<void>;
  readonly lost: () => void;
}

/**
 * Chooses the member of a group that reads a stream, and keeps how far it got. Both lie in one queue with a single
 * active consumer: the position is a message that the reader holds unsettled. A new position is written before the old
 * one is removed, and when the reader dies the broker hands what it held to the next member.
 */
class StreamGuard {
  readonly #parts: StreamGuardParts;
  #channel: Channel | undefined;
  #live: LiveConnection | undefined;
  #held: { readonly raw: ConsumeMessage; readonly position: Position } | undefined;
  /** Its return tells that everything that lay in the queue has been seen. */
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

  /** When nobody reads yet, returns once this member does. */
  async join(live: LiveConnection, beginning: Position): Promise<void> {
    const { link, courier, settings, queue } = this.#parts;
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
    await courier.writePosition(queue, writePosition(beginning), randomToken());
    if (consumerCount === 0) await withDeadline(first, settings.timeoutMs, () => undefined);
    await this.#reading;
  }

  /** Everything up to here is settled; written down as soon as what is being written has arrived. */
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
    const { courier, queue } = this.#parts;
    let written = this.#held?.position.offset ?? -1;
    while (this.#done > written && this.#channel !== undefined) {
      written = this.#done;
      // A position that cannot be written now is written with the next; until then more is repeated after a crash.
      await courier
        .writePosition(queue, writePosition({ offset: written, sinceMs: 0 }), randomToken())
        .catch(() => undefined);
    }
  }

  #onMessage(raw: ConsumeMessage, channel: Channel, live: LiveConnection, chosen: () => void): void {
    const id = String(raw.properties.messageId);
    if (id === this.#probe) {
      channel.ack(raw);
      const position = this.#held?.position ?? { offset: -1, sinceMs: 0 };
      this.#done = position.offset;
      this.#reading = this.#parts.chosen(live, position).catch(() => this.#closeChannel(channel));
      void this.#reading.then(chosen);
      return;
    }
    this.#holdPosition(raw, channel);
    if (this.#probe !== undefined) return;
    this.#probe = randomToken();
    this.#parts.courier
      .writePosition(this.#parts.queue, Buffer.from("probe"), this.#probe)
      .catch(() => this.#closeChannel(channel));
  }

  // Of several positions the furthest is kept; probes of members that died in between are thrown away.
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
    this.#parts.lost();
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

/** What a group knows about how far it has read a stream, as it lies in a queue of its own. */
interface Position {
  /** The last offset that is settled together with all before it, or -1. */
  readonly offset: number;
  /** When a group without an offset subscribed, in milliseconds since 1970; 0 for one that begins with the first. */
  readonly sinceMs: number;
}

type StreamOffset = number | "first" | "next" | { readonly "!": "timestamp"; readonly value: number };

/** The furthest one counts: an older one may still lie there when a process died between writing and removing. */
export function maxPosition(a: Position, b: Position): Position {
  if (a.offset !== b.offset) return a.offset > b.offset ? a : b;
  return a.sinceMs <= b.sinceMs ? a : b;
}

/** A time is known to the broker in whole seconds, so whoever has only just come asks for what is next instead. */
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

/** Offsets in hand, of which the settled ones may be forgotten by the broker only in order. */
export class Progress {
  readonly #open = new Set<number>();
  #seen: number;

  constructor(offset: number) {
    this.#seen = offset;
  }

  /** False for what was settled before. */
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
    // A set keeps the order of arrival, so its first is its smallest.
    const [oldest] = this.#open;
    return oldest === undefined ? this.#seen : oldest - 1;
  }
}
