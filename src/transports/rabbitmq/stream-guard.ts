import type { Channel, ConsumeMessage } from "amqplib";
import { randomToken, withDeadline } from "../../runtime/index.ts";
import type { Link, LiveConnection } from "./link.ts";
import type { MessageCopier } from "./message-copier.ts";
import type { RabbitSettings } from "./options.ts";
import { maxPosition, readPosition, writePosition, type Position } from "./stream-position.ts";

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
export class StreamGuard {
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
