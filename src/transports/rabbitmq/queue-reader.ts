import type { Channel, ConsumeMessage } from "amqplib";
import type { Link, Live } from "./connection.ts";
import type { RabbitDelivery } from "./delivery.ts";

export interface Reader {
  /** Consuming, or waiting for its turn to. */
  readonly open: boolean;
  /** Something has come since it was opened, so it is this process that the broker gives the queue to. */
  readonly active: boolean;
  /** How many wait to be taken. */
  readonly waiting: number;
  start(live: Live): Promise<void>;
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
  readonly #handed = new Set<RabbitDelivery>();
  #channel: Channel | undefined;
  #live: Live | undefined;
  #arrived: ConsumeMessage[] = [];
  #active = false;
  #retiring = false;

  constructor(parts: QueueReaderParts) {
    this.#parts = parts;
  }

  get open(): boolean {
    return this.#channel !== undefined;
  }

  get active(): boolean {
    return this.#active && !this.#retiring;
  }

  get waiting(): number {
    return this.#retiring ? 0 : this.#arrived.length;
  }

  async start(live: Live): Promise<void> {
    const { link, queue, prefetch } = this.#parts;
    const channel = await link.channel(live);
    this.#channel = channel;
    this.#live = live;
    this.#active = false;
    this.#retiring = false;
    channel.on("close", () => this.#gone(channel));
    await link.ask(live, "setting the prefetch", channel.prefetch(prefetch));
    const consuming = channel.consume(queue, (raw) => {
      if (raw === null) void this.close();
      else this.#came(raw);
    });
    await link.ask(live, `consuming ${queue}`, consuming);
  }

  take(): RabbitDelivery | undefined {
    const channel = this.#channel;
    const raw = this.#retiring ? undefined : this.#arrived.shift();
    if (raw === undefined || channel === undefined) return undefined;
    const delivery: RabbitDelivery = this.#parts.read(raw, channel, () => {
      this.#handed.delete(delivery);
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
    const channel = this.#channel;
    const live = this.#live;
    if (channel === undefined || live === undefined || live.lost.aborted) return;
    const closed = this.#parts.link.ask(live, "closing a channel", channel.close());
    this.#gone(channel);
    await closed.catch(() => undefined);
  }

  #came(raw: ConsumeMessage): void {
    this.#active = true;
    this.#arrived.push(raw);
    this.#parts.changed();
  }

  #letGoWhenIdle(): void {
    if (this.#retiring && this.#handed.size === 0) void this.close();
  }

  #gone(channel: Channel): void {
    if (this.#channel !== channel) return;
    this.#channel = undefined;
    this.#active = false;
    this.#arrived = [];
    for (const delivery of this.#handed) delivery.lose();
    this.#parts.changed();
  }
}
