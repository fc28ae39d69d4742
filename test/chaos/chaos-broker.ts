import { createServer, type Server, type Socket, type AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import type { Message } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import type { RetryOptions, Subscription, Consumption, Delivery } from "sagabox/transport";
import type { WireCopy } from "./evidence.ts";

export type Settled = "ack" | "release" | RetryOptions;

/** One JSON object per line, in both directions. */
export type FromClient =
  | { readonly op: "hello"; readonly worker: string }
  | { readonly op: "beat" }
  | { readonly op: "publish"; readonly n: number; readonly messages: readonly Message[] }
  | {
      readonly op: "join";
      readonly group: string;
      readonly topics: Subscription["topics"];
      readonly prefetch: number;
    }
  | { readonly op: "pause"; readonly group: string }
  | { readonly op: "leave"; readonly group: string }
  | { readonly op: "settle"; readonly tag: number; readonly how: Settled };

export type ToClient =
  | { readonly op: "published"; readonly n: number }
  | { readonly op: "joined"; readonly group: string }
  | { readonly op: "left"; readonly group: string }
  | { readonly op: "settled"; readonly tag: number }
  | { readonly op: "lost"; readonly tag: number }
  | {
      readonly op: "deliver";
      readonly group: string;
      readonly tag: number;
      readonly message: Message;
      readonly attempt: number;
      readonly orderKey: string | null;
    };

/** What a line says; undefined for one that a broken connection cut short. */
export function saidIn<T extends FromClient | ToClient>(line: string): T | undefined {
  try {
    return JSON.parse(line) as T;
  } catch {
    return undefined;
  }
}

export interface ChaosBrokerOptions {
  /** How long the broker keeps a publisher waiting for its confirmation: the window in which faults hit. */
  readonly latencyMs: number;
  /** A member silent for this long loses its deliveries to others. */
  readonly sessionMs: number;
  /** How often every message is handed to its consumers. */
  readonly copies: number;
}

/**
 * A broker outside the database, in the process of the harness: at least once, order per key, competing members. It
 * writes down every copy that arrives before anything else happens to it.
 */
export class ChaosBroker {
  readonly arrivals: WireCopy[] = [];
  readonly #options: ChaosBrokerOptions;
  readonly #memory = new MemoryTransport({ record: false });
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;
  #port = 0;

  constructor(options: ChaosBrokerOptions) {
    this.#options = options;
  }

  get port(): number {
    return this.#port;
  }

  /** How many copies the group has not settled yet. */
  backlog(group: string): number {
    return this.#memory.backlog(group);
  }

  async start(): Promise<void> {
    const server = createServer((socket) => new Connection(this, socket, this.#memory, this.#options));
    server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
    this.#server = server;
    await new Promise<void>((resolve) => server.listen(this.#port, "127.0.0.1", resolve));
    this.#port = (server.address() as AddressInfo).port;
  }

  /** Cuts every connection and refuses new ones until the next start, which takes the same port. */
  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    for (const socket of this.#sockets) socket.destroy();
    if (server !== undefined) await new Promise((resolve) => server.close(resolve));
  }
}

class Connection {
  readonly #broker: ChaosBroker;
  readonly #socket: Socket;
  readonly #memory: MemoryTransport;
  readonly #options: ChaosBrokerOptions;
  readonly #groups = new Map<string, Consumption>();
  readonly #unsettled = new Map<number, Delivery>();
  #worker = "";
  #tag = 0;
  #lastMessageAtMs = performance.now();

  constructor(broker: ChaosBroker, socket: Socket, memory: MemoryTransport, options: ChaosBrokerOptions) {
    this.#broker = broker;
    this.#socket = socket;
    this.#memory = memory;
    this.#options = options;
    socket.setNoDelay(true);
    socket.on("error", () => undefined);
    createInterface({ input: socket })
      .on("line", (line) => void this.#onMessage(saidIn<FromClient>(line)))
      .on("error", () => undefined);
    const watch = setInterval(() => {
      if (performance.now() - this.#lastMessageAtMs > options.sessionMs) this.#expire();
    }, 100);
    socket.on("close", () => {
      clearInterval(watch);
      this.#expire();
    });
  }

  async #onMessage(said: FromClient | undefined): Promise<void> {
    this.#lastMessageAtMs = performance.now();
    switch (said?.op) {
      case "hello":
        this.#worker = said.worker;
        return;
      case "publish":
        return this.#publish(said);
      case "join":
        return this.#join(said);
      case "pause":
        return this.#groups.get(said.group)?.pause();
      case "leave":
        return this.#leave(said.group);
      case "settle":
        return this.#settle(said);
      case "beat":
      case undefined:
    }
  }

  async #publish({ n, messages }: FromClient & { op: "publish" }): Promise<void> {
    const atMs = Date.now();
    for (const { id } of messages) {
      this.#broker.arrivals.push({ id, group: "broker", worker: this.#worker, atMs });
    }
    const { signal } = new AbortController();
    for (let copy = 0; copy < this.#options.copies; copy++) await this.#memory.publish(messages, { signal });
    const confirm = (): void => this.#sendMessage({ op: "published", n });
    if (this.#options.latencyMs === 0) confirm();
    else setTimeout(confirm, this.#options.latencyMs);
  }

  async #join({ group, topics, prefetch }: FromClient & { op: "join" }): Promise<void> {
    const subscription = { group, topics, prefetch, worker: this.#worker, service: "chaos", ordered: true };
    const consumption = await this.#memory.subscribe(subscription, (delivery) => {
      const tag = (this.#tag += 1);
      this.#unsettled.set(tag, delivery);
      delivery.signal.addEventListener("abort", () => this.#lost(tag));
      const { message, attempt, orderKey } = delivery;
      this.#sendMessage({ op: "deliver", group, tag, message, attempt, orderKey });
    });
    this.#groups.set(group, consumption);
    this.#sendMessage({ op: "joined", group });
  }

  async #settle({ tag, how }: FromClient & { op: "settle" }): Promise<void> {
    const delivery = this.#unsettled.get(tag);
    this.#unsettled.delete(tag);
    if (delivery !== undefined) await settle(delivery, how);
    this.#sendMessage({ op: "settled", tag });
  }

  #lost(tag: number): void {
    if (this.#unsettled.delete(tag)) this.#sendMessage({ op: "lost", tag });
  }

  async #leave(group: string): Promise<void> {
    await this.#groups.get(group)?.close();
    this.#groups.delete(group);
    this.#sendMessage({ op: "left", group });
  }

  // A stopped process keeps its socket. Its deliveries go to others; when it comes back it has to join again.
  #expire(): void {
    const groups = [...this.#groups.values()];
    if (groups.length === 0) return;
    this.#groups.clear();
    for (const consumption of groups) void consumption.close();
    this.#socket.destroy();
  }

  #sendMessage(said: ToClient): void {
    if (!this.#socket.destroyed) this.#socket.write(`${JSON.stringify(said)}\n`);
  }
}

async function settle(delivery: Delivery, how: Settled): Promise<void> {
  if (how === "ack") await delivery.ack();
  else if (how === "release") await delivery.release();
  else await delivery.retry(how);
}
