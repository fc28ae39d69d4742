import type { Channel, ConsumeMessage } from "amqplib";
import type { Link, LiveConnection } from "./link.ts";
import type { RabbitDelivery } from "./delivery.ts";

/** Reads messages of one queue or stream. */
export interface Reader {
  /** Whether it consumes, or waits to become the single active consumer. */
  readonly open: boolean;
  /** Whether a message has arrived since it was opened, which means that this process is the active consumer. */
  readonly active: boolean;
  /** Number of messages that `take` can return. */
  readonly waiting: number;
  start(live: LiveConnection): Promise<void>;
  take(): RabbitDelivery | undefined;
  /** Delivers nothing more, and closes when no delivery is in flight. */
  retire(): void;
  close(): Promise<void>;
}

interface QueueReaderParts {
  readonly link: Link;
  readonly queue: string;
  readonly prefetch: number;
  readonly read: (raw: ConsumeMessage, channel: Channel, onClosed: () => void) => RabbitDelivery;
  /** Called when a message has arrived, was settled or was lost. */
  readonly onChange: () => void;
}

/** Reads one queue on its own channel. Closing the channel returns all unsettled messages in their order. */
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
    this.#parts.onChange();
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
    this.#parts.onChange();
  }
}
