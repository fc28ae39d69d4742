import type { Channel } from "amqplib";
import type { Link, LiveConnection } from "./link.ts";

/**
 * Counts the members of a group: each is a consumer of a queue that stays empty. The queue is replicated, so that the
 * count survives the loss of a node.
 */
export class MemberCounter {
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
