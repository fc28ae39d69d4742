import type { Channel, ConsumeMessage } from "amqplib";
import { laneOf } from "../../message/index.ts";
import { systemClock } from "../../runtime/index.ts";
import type { Subscription, TopicRequest } from "../../transport/index.ts";
import type { Link, Live } from "./connection.ts";
import type { Courier } from "./courier.ts";
import { RabbitDelivery } from "./delivery.ts";
import type { RabbitSettings } from "./options.ts";
import { countIn } from "./properties.ts";
import type { Reader } from "./queue-reader.ts";
import { readRaw } from "./read-raw.ts";
import { StreamGuard } from "./stream-guard.ts";
import { Progress, startOf, type Position } from "./stream-position.ts";
import { offsetQueue, type GroupNames, type Route } from "./topology.ts";

interface StreamReaderParts {
  readonly link: Link;
  readonly courier: Courier;
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
  readonly #handed = new Set<RabbitDelivery>();
  #live: Live | undefined;
  #channel: Channel | undefined;
  #arrived: ConsumeMessage[] = [];
  #progress = new Progress(-1);
  #retiring = false;
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
      lost: () => void this.#gone(),
    });
  }

  get open(): boolean {
    return this.#guard.open;
  }

  get waiting(): number {
    return this.#retiring ? 0 : this.#arrived.length;
  }

  async start(live: Live): Promise<void> {
    this.#retiring = false;
    const { from } = this.#parts;
    this.#arrivedMs = from === "now" ? systemClock.wallMs() : 0;
    const sinceMs = typeof from === "object" ? Math.max(0, from.time.getTime()) : this.#arrivedMs;
    await this.#guard.join(live, { offset: -1, sinceMs });
  }

  take(): RabbitDelivery | undefined {
    const channel = this.#channel;
    const raw = this.#retiring ? undefined : this.#arrived.shift();
    if (raw === undefined || channel === undefined) return undefined;
    const delivery: RabbitDelivery = this.#read(raw, channel, () => {
      this.#handed.delete(delivery);
      this.#parts.settled();
      this.#letGoWhenIdle();
      this.#parts.changed();
    });
    this.#handed.add(delivery);
    return delivery;
  }

  retire(): void {
    this.#retiring = true;
    this.#letGoWhenIdle();
  }

  async close(): Promise<void> {
    this.#retiring = true;
    await this.#guard.leave();
    await this.#gone();
  }

  async #consume(live: Live, position: Position): Promise<void> {
    const { link, subscription, streamQueue } = this.#parts;
    const channel = await link.channel(live);
    this.#channel = channel;
    this.#live = live;
    this.#progress = new Progress(position.offset);
    channel.on("close", () => {
      if (this.#channel === channel) void this.close();
    });
    await link.ask(live, "setting the prefetch", channel.prefetch(Math.min(subscription.prefetch, 65_535)));
    const consuming = channel.consume(streamQueue, (raw) => raw !== null && this.#came(raw, channel), {
      arguments: { "x-stream-offset": startOf(position, this.#arrivedMs) },
    });
    await link.ask(live, `consuming ${streamQueue}`, consuming);
  }

  #came(raw: ConsumeMessage, channel: Channel): void {
    // A stream is sent in chunks, so something from before the offset may come first.
    if (!this.#progress.arrived(countIn(raw.properties.headers, "x-stream-offset"))) channel.ack(raw);
    else {
      this.#arrived.push(raw);
      this.#parts.changed();
    }
  }

  #read(raw: ConsumeMessage, channel: Channel, closed: () => void): RabbitDelivery {
    const { courier, names } = this.#parts;
    const received = readRaw(raw, this.#parts);
    const { attempts, topic, message } = received;
    const lane = laneOf(message.key ?? message.id);
    const queue = names.queues[lane % names.queues.length] ?? "";
    const to = { service: this.#parts.subscription.service, queue };
    return new RabbitDelivery(received, {
      ack: () => {
        channel.ack(raw);
        this.#progress.settled(countIn(raw.properties.headers, "x-stream-offset"));
        this.#guard.advance(this.#progress.done);
      },
      // A stream cannot be put in another order: what is tried again comes through the group's own queue.
      again: ({ delayMs, charged }) =>
        courier.again(raw, to, { attempt: attempts + (charged ? 1 : 0), delayMs, topic }),
      giveBack: async () => {
        this.#arrived.unshift(raw);
      },
      bury: (note) => courier.bury(raw, names.id, note),
      closed,
    });
  }

  #letGoWhenIdle(): void {
    if (this.#retiring && this.#handed.size === 0) void this.close();
  }

  async #gone(): Promise<void> {
    const channel = this.#channel;
    const live = this.#live;
    this.#channel = undefined;
    this.#arrived = [];
    for (const delivery of this.#handed) delivery.lose();
    this.#parts.changed();
    if (channel === undefined || live === undefined || live.lost.aborted) return;
    const { link } = this.#parts;
    await Promise.resolve()
      .then(() => link.ask(live, "closing a channel", channel.close()))
      .catch(() => undefined);
  }
}
