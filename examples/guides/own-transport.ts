// A transport of one's own, as small as it can be: lists in this process. It claims little, so little is asked of it.
import type { Message } from "sagabox";
import { assertCanBegin, type Consumption, type Delivery, type PublishOutcome } from "sagabox/transport";
import type { Subscription, Transport } from "sagabox/transport";

interface Item {
  readonly message: Message;
  readonly place: number;
  readonly attempt: number;
}

interface Member {
  readonly prefetch: number;
  readonly receive: (delivery: Delivery) => void;
  readonly held: Map<Item, AbortController>;
  paused: boolean;
}

/** One consumer group: what waits for it, and its members. */
class TopicQueue {
  readonly #waiting: Item[] = [];
  readonly #members = new Set<Member>();

  put(item: Item): void {
    const at = this.#waiting.findIndex(({ place }) => place > item.place);
    this.#waiting.splice(at < 0 ? this.#waiting.length : at, 0, item);
    queueMicrotask(() => this.#handOut());
  }

  join({ prefetch }: Subscription, receive: (delivery: Delivery) => void): Consumption {
    const member: Member = { prefetch, receive, held: new Map(), paused: false };
    this.#members.add(member);
    queueMicrotask(() => this.#handOut());
    return {
      pause: async () => void (member.paused = true),
      close: async () => this.#leave(member),
      health: () => ({ ok: true }),
    };
  }

  #leave(member: Member): void {
    this.#members.delete(member);
    for (const [item, lost] of member.held) {
      member.held.delete(item);
      lost.abort();
      this.put(item);
    }
  }

  #handOut(): void {
    for (const member of this.#members) {
      while (!member.paused && member.held.size < member.prefetch) {
        const item = this.#waiting.shift();
        if (item === undefined) return;
        this.#deliver(item, member);
      }
    }
  }

  #deliver(item: Item, member: Member): void {
    // #region settle
    const lost = new AbortController();
    member.held.set(item, lost);
    const settle = async (back?: Item): Promise<void> => {
      if (!member.held.delete(item)) return; // settled once, or lost
      if (back !== undefined) this.put(back);
      this.#handOut();
    };
    member.receive({
      message: item.message,
      attempt: item.attempt,
      orderKey: null,
      signal: lost.signal,
      ack: () => settle(),
      retry: ({ countsAsAttempt }) => settle({ ...item, attempt: item.attempt + (countsAsAttempt ? 1 : 0) }),
      release: () => settle(item),
    });
    // #endregion settle
  }
}

// #region transport
export class ListTransport implements Transport {
  readonly name = "list";
  readonly capabilities = {
    ordersByKey: false,
    ordersRetries: false,
    failsLaterOfKey: false,
    delaysRedelivery: false,
    keepsUnrouted: false,
    rejectsUnrouted: false,
    replays: false,
    replaysFromTime: false,
    reportsLag: false,
    maxBytes: 1_000_000,
  };
  readonly #shelves = new Map<string, Map<string, TopicQueue>>();
  #published = 0;
  #open = false;

  async open(): Promise<void> {
    this.#open = true;
  }

  async publish(batch: readonly Message[]): Promise<readonly PublishOutcome[]> {
    return batch.map((message) => this.#publishOne(message));
  }

  async subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption> {
    assertCanBegin(this, subscription.topics); // says no to a time instead of beginning elsewhere
    const group = `${subscription.service} ${subscription.group}`;
    const known = [...this.#shelves.values()].flatMap((shelves) => shelves.get(group) ?? []);
    const shelf = known[0] ?? new TopicQueue();
    for (const { topic } of subscription.topics) {
      this.#shelves.set(topic, (this.#shelves.get(topic) ?? new Map<string, TopicQueue>()).set(group, shelf));
    }
    return shelf.join(subscription, receive);
  }

  async close(): Promise<void> {
    this.#open = false;
  }

  #publishOne(message: Message): PublishOutcome {
    if (!this.#open) return { kind: "unreachable", error: new Error("closed") };
    if (Buffer.byteLength(message.data) > this.capabilities.maxBytes) {
      return { kind: "refused", error: new Error("too large") };
    }
    const item = { message, place: this.#published++, attempt: 1 };
    for (const shelf of this.#shelves.get(message.topic)?.values() ?? []) shelf.put(item);
    return { kind: "published" };
  }
}
// #endregion transport
