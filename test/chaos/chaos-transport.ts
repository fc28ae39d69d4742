import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";
import type { Message } from "sagabox";
import type {
  Capabilities,
  Consumption,
  Delivery,
  PublishOptions,
  PublishOutcome,
  Subscription,
  Transport,
} from "sagabox/transport";
import { saidIn, type FromClient, type Settled, type ToClient } from "./chaos-broker.ts";

const BEAT_MS = 200;
const RECONNECT_MS = 50;

interface Membership {
  readonly subscription: Subscription;
  readonly receive: (delivery: Delivery) => void;
  closed: boolean;
}

/** The client of the harness's broker: one socket, connected again whenever it breaks. */
export class ChaosTransport implements Transport {
  readonly name = "chaos";
  readonly capabilities: Capabilities = {
    ordersByKey: true,
    ordersRetries: true,
    failsLaterOfKey: false,
    delaysRedelivery: true,
    keepsUnrouted: false,
    rejectsUnrouted: false,
    replays: false,
    replaysFromTime: false,
    reportsLag: false,
    maxBytes: 1_048_576,
  };
  readonly #port: number;
  readonly #worker: string;
  readonly #answers = new Map<string, () => void>();
  readonly #broken = new Set<() => void>();
  readonly #lost = new Map<number, AbortController>();
  readonly #memberships = new Map<string, Membership>();
  #socket: Socket | undefined;
  #opening: Promise<void> | undefined;
  #closed = false;
  #n = 0;

  constructor(port: number, worker: string) {
    this.#port = port;
    this.#worker = worker;
  }

  async open(): Promise<void> {
    if (this.#socket !== undefined) return;
    this.#opening ??= this.#connect().finally(() => (this.#opening = undefined));
    await this.#opening;
  }

  async publish(batch: readonly Message[], { signal }: PublishOptions): Promise<readonly PublishOutcome[]> {
    try {
      await this.open();
    } catch (thrown) {
      const error = thrown instanceof Error ? thrown : new Error(String(thrown));
      return batch.map(() => ({ kind: "unreachable", error }));
    }
    const n = (this.#n += 1);
    const confirmed = await this.#ask({ op: "publish", n, messages: batch }, `published ${n}`, signal);
    const error = new Error("the connection broke before the confirmation");
    return batch.map(() => (confirmed ? { kind: "published" } : { kind: "unknown", error }));
  }

  async subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption> {
    await this.open();
    const { group } = subscription;
    const membership: Membership = { subscription, receive, closed: false };
    this.#memberships.set(group, membership);
    await this.#join(membership);
    return {
      pause: async () => this.#sendMessage({ op: "pause", group }),
      close: async () => {
        membership.closed = true;
        this.#memberships.delete(group);
        await this.#ask({ op: "leave", group }, `left ${group}`);
      },
      health: () => ({ ok: this.#socket !== undefined }),
    };
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#socket?.destroy();
  }

  async #connect(): Promise<void> {
    const socket = connect({ port: this.#port, host: "127.0.0.1", noDelay: true });
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    this.#socket = socket;
    socket.on("error", () => undefined);
    createInterface({ input: socket })
      .on("line", (line) => this.#onMessage(saidIn<ToClient>(line)))
      .on("error", () => undefined);
    this.#sendMessage({ op: "hello", worker: this.#worker });
    const beat = setInterval(() => this.#sendMessage({ op: "beat" }), BEAT_MS);
    socket.on("close", () => {
      clearInterval(beat);
      this.#break();
    });
  }

  #break(): void {
    this.#socket = undefined;
    this.#answers.clear();
    for (const listener of this.#broken) listener();
    for (const lost of this.#lost.values()) lost.abort();
    this.#lost.clear();
    if (!this.#closed && this.#memberships.size > 0) void this.#rejoin();
  }

  async #rejoin(): Promise<void> {
    while (!this.#closed) {
      try {
        await this.open();
        for (const membership of this.#memberships.values()) await this.#join(membership);
        return;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
      }
    }
  }

  async #join({ subscription: { group, topics, prefetch } }: Membership): Promise<void> {
    await this.#ask({ op: "join", group, topics, prefetch }, `joined ${group}`);
  }

  #onMessage(said: ToClient | undefined): void {
    switch (said?.op) {
      case "published":
        return this.#answers.get(`published ${said.n}`)?.();
      case "joined":
      case "left":
        return this.#answers.get(`${said.op} ${said.group}`)?.();
      case "settled":
        return this.#answers.get(`settled ${said.tag}`)?.();
      case "lost":
        this.#lost.get(said.tag)?.abort();
        this.#lost.delete(said.tag);
        return;
      case "deliver":
        return this.#deliver(said);
      case undefined:
    }
  }

  #deliver({ group, tag, message, attempt, orderKey }: ToClient & { op: "deliver" }): void {
    const membership = this.#memberships.get(group);
    const lost = new AbortController();
    this.#lost.set(tag, lost);
    const settle = async (how: Settled): Promise<void> => {
      // A tag means something on the connection it came by only.
      if (!this.#lost.delete(tag) || lost.signal.aborted) return;
      await this.#ask({ op: "settle", tag, how }, `settled ${tag}`);
    };
    const delivery: Delivery = {
      message,
      attempt,
      orderKey,
      signal: lost.signal,
      ack: () => settle("ack"),
      retry: (options) => settle(options),
      release: () => settle("release"),
    };
    if (membership === undefined || membership.closed) void settle("release");
    else membership.receive(delivery);
  }

  /** False when the connection broke, or the asker gave up, before the answer. */
  async #ask(said: FromClient, answer: string, signal?: AbortSignal): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (answered: boolean) => (): void => {
        this.#answers.delete(answer);
        this.#broken.delete(broken);
        resolve(answered);
      };
      const broken = end(false);
      if (this.#socket === undefined) return resolve(false);
      this.#answers.set(answer, end(true));
      this.#broken.add(broken);
      signal?.addEventListener("abort", broken, { once: true });
      this.#sendMessage(said);
    });
  }

  #sendMessage(said: FromClient): void {
    this.#socket?.write(`${JSON.stringify(said)}\n`);
  }
}
