import type { Channel, ConsumeMessage } from "amqplib";
import type { Link, LiveConnection } from "./link.ts";
import type { RabbitDelivery } from "./delivery.ts";

export interface Reader {
  /** Consuming, or waiting for its turn to. */
  readonly open: boolean;
  /** Something has come since it was opened, so it is this process that the broker gives the queue to. */
  readonly active: boolean;
  /** How many wait to be taken. */
  readonly waiting: number;
  start(live: LiveConnection): Promise<void>;
  take(): RabbitDelivery | undefined;
  /** Hands out nothing more and lets go of the queue as soon as nothing of it is in anybody's hands. */
  retire(): void;
  close(): Promise<void>;
}

interface QueueReaderParts {
  readonly link: Link;
  readonly queue: string;
  readonly prefetch: number;
  readonly read: (raw: ConsumeMessage, channel: Channel, closed: () => void) => RabbitDelivery;
  /** Something came, was settled or was lost. */
  readonly changed: () => void;
}

/** One queue on one channel of its own: closing that gives everything back in one piece, in order. */
export class QueueReader implements Reader {
  readonly #parts: QueueReaderParts;
  readonly #inFlight = new Set<RabbitDelivery>();
  #channel: Channel | undefined;
  #live: LiveConnection | undefined;
  #arrived: ConsumeMessage[] = [];
  #isActive = false;
  #isRetiring = false;

  constructor(parts: QueueReaderParts) {
    this.#parts = parts;
  }

  get open(): boolean {
    return this.#channel !== undefined;
  }

  get active(): boolean {
    return this.#isActive && !this.#isRetiring;
  }

  get waiting(): number {
    return this.#isRetiring ? 0 : this.#arrived.length;
  }

  async start(live: LiveConnection): Promise<void> {
    const { link, queue, prefetch } = this.#parts;
    const channel = await link.openChannel(live);
    this.#channel = channel;
    this.#live = live;
    this.#isActive = false;
    this.#isRetiring = false;
    channel.on("close", () => this.#onClosed(channel));
    await link.request(live, "setting the prefetch", channel.prefetch(prefetch));
    const consuming = channel.consume(queue, (raw) => {
      if (raw === null) void this.close();
      else this.#onMessage(raw);
    });
    await link.request(live, `consuming ${queue}`, consuming);
  }

  take(): RabbitDelivery | undefined {
    const channel = this.#channel;
    const raw = this.#isRetiring ? undefined : this.#arrived.shift();
    if (raw === undefined || channel === undefined) return undefined;
    const delivery: RabbitDelivery = this.#parts.read(raw, channel, () => {
      this.#inFlight.delete(delivery);
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
    const channel = this.#channel;
    const live = this.#live;
    if (channel === undefined || live === undefined || live.lost.aborted) return;
    const closed = this.#parts.link.request(live, "closing a channel", channel.close());
    this.#onClosed(channel);
    await closed.catch(() => undefined);
  }

  #onMessage(raw: ConsumeMessage): void {
    this.#isActive = true;
    this.#arrived.push(raw);
    this.#parts.changed();
  }

  #closeWhenIdle(): void {
    if (this.#isRetiring && this.#inFlight.size === 0) void this.close();
  }

  #onClosed(channel: Channel): void {
    if (this.#channel !== channel) return;
    this.#channel = undefined;
    this.#isActive = false;
    this.#arrived = [];
    for (const delivery of this.#inFlight) delivery.abandon();
    this.#parts.changed();
  }
}
