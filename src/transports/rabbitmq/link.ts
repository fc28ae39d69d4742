import type { Duplex, Writable } from "node:stream";
import type { Channel, ChannelModel, ConfirmChannel } from "amqplib";
import { SagaboxError, toError } from "../../errors/index.ts";
import { Loop, withDeadline } from "../../runtime/index.ts";
import { ClientLoader } from "../../transport/index.ts";
import type { BrokerAddress, RabbitSettings } from "./options.ts";

/** An open connection. */
export interface LiveConnection {
  readonly model: ChannelModel;
  /** Aborted when the connection is gone. */
  readonly lost: AbortSignal;
}

/**
 * A connection that reconnects until it is closed. Publishing and consuming use separate connections: a broker that is
 * short of memory stops reading from publishing connections, which must not delay acknowledgements.
 */
export class Link {
  readonly #settings: RabbitSettings;
  readonly #purpose: string;
  readonly #loop: Loop;
  readonly #listeners = new Set<() => void>();
  #waiting: ((failure?: Error) => void)[] = [];
  #connection: LiveConnection | undefined;
  #dropConnection: (() => void) | undefined;
  #blockedReason: string | undefined;
  #lastError: Error | undefined;
  #tries = 0;

  constructor(settings: RabbitSettings, purpose: "publish" | "consume") {
    this.#settings = settings;
    this.#purpose = purpose;
    this.#loop = new Loop({
      step: (signal) => this.#step(signal),
      onError: (error) => this.#recordFailure(error),
      maxBackoffMs: 2_000,
    });
  }

  get live(): LiveConnection | undefined {
    return this.#connection;
  }

  /** Why the broker accepts no messages at the moment; undefined if it does. */
  get blocked(): string | undefined {
    return this.#blockedReason;
  }

  /** A description of why there is no connection. */
  get trouble(): string {
    return this.#lastError?.message ?? "not connected yet";
  }

  /** Resolves when connected. Throws TRANSPORT_UNREACHABLE if the first try fails, but keeps trying to connect. */
  async open(): Promise<void> {
    if (this.#connection !== undefined) return;
    const outcome = new Promise<Error | undefined>((resolve) => this.#waiting.push(resolve));
    await this.#loop.start();
    this.#loop.wake();
    const failure = await outcome;
    if (failure !== undefined) throw failure;
  }

  /** Calls the listener when a connection is opened, lost, blocked or unblocked. Returns a function to remove it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async close(): Promise<void> {
    await this.#loop.stop();
    this.#settleWaiting(unreachableError("The transport was closed."));
    const live = this.#connection;
    if (live === undefined) return;
    await withDeadline(
      live.model.close().catch(() => undefined),
      Math.min(2_000, this.#settings.timeoutMs),
      () => undefined,
    );
    this.drop(live, new Error("closed"));
  }

  /** Gives up a connection that does not answer, without waiting for the broker to close it. */
  drop(live: LiveConnection, reason: Error): void {
    this.#onDisconnected(live, reason);
    // The client notices the end of a socket only by an error. Without one its channels wait for a missed heartbeat.
    findSocket(live.model)?.destroy(reason);
  }

  /** Waits for an answer up to `timeoutMs`. Then it drops the connection and throws TRANSPORT_TIMEOUT. */
  async request<T>(live: LiveConnection, action: string, answer: Promise<T>): Promise<T> {
    return withDeadline(answer, this.#settings.timeoutMs, () => {
      const late = new SagaboxError("TRANSPORT_TIMEOUT", `RabbitMQ did not answer while ${action}.`);
      this.drop(live, late);
      throw late;
    });
  }

  async openChannel(live: LiveConnection): Promise<Channel> {
    return ignoreErrors(await this.request(live, "opening a channel", live.model.createChannel()));
  }

  async openConfirmChannel(live: LiveConnection): Promise<ConfirmChannel> {
    return ignoreErrors(await this.request(live, "opening a channel", live.model.createConfirmChannel()));
  }

  async #step(stopping: AbortSignal): Promise<number> {
    if (this.#connection !== undefined) return Infinity;
    const { addresses, timeoutMs } = this.#settings;
    const address = addresses[this.#tries++ % addresses.length];
    if (address === undefined) return Infinity;
    const connecting = this.#connect(address);
    const model = await withDeadline(connecting, timeoutMs, () => {
      connecting.then(closeModel, () => undefined);
      throw new Error(`no answer within ${timeoutMs} ms`);
    });
    if (stopping.aborted) closeModel(model);
    else this.#onConnected(model);
    return Infinity;
  }

  async #connect({ secure, hostname, port, vhost }: BrokerAddress): Promise<ChannelModel> {
    const { timeoutMs, heartbeatMs, tls } = this.#settings;
    const { connect } = await amqp.load();
    const { username, password } = await this.#settings.credentials();
    const model = await connect(
      {
        protocol: secure ? "amqps" : "amqp",
        hostname,
        port,
        username,
        password,
        vhost: encodeURIComponent(vhost),
        heartbeat: Math.ceil(heartbeatMs / 1_000),
        frameMax: 131_072,
      },
      {
        ...(secure ? { ...tls, minVersion: "TLSv1.2" as const, rejectUnauthorized: true } : {}),
        timeout: timeoutMs,
        noDelay: true,
        keepAlive: true,
        ...largeWriteBuffer,
        clientProperties: { connection_name: `sagabox ${this.#purpose}` },
      },
    );
    const socket = findSocket(model);
    if (socket !== undefined) batchWrites(socket);
    return ignoreErrors(model);
  }

  #onConnected(model: ChannelModel): void {
    const lost = new AbortController();
    const live: LiveConnection = { model, lost: lost.signal };
    this.#connection = live;
    this.#dropConnection = () => lost.abort();
    this.#blockedReason = undefined;
    this.#lastError = undefined;
    let failure: Error | undefined;
    model.on("error", (error) => (failure = error));
    model.on("close", (error) =>
      this.#onDisconnected(live, failure ?? error ?? new Error("the connection was closed")),
    );
    model.on("blocked", (reason) => this.#setBlocked(live, reason));
    model.on("unblocked", () => this.#setBlocked(live, undefined));
    this.#settleWaiting();
    this.#notifyListeners();
  }

  #setBlocked(live: LiveConnection, reason: string | undefined): void {
    if (this.#connection !== live) return;
    this.#blockedReason = reason;
    this.#notifyListeners();
  }

  #onDisconnected(live: LiveConnection, reason: Error): void {
    if (this.#connection !== live) return;
    this.#lastError = reason;
    this.#connection = undefined;
    this.#blockedReason = undefined;
    this.#dropConnection?.();
    this.#notifyListeners();
    this.#loop.wake();
  }

  #recordFailure(error: unknown): void {
    this.#lastError = toError(error);
    this.#settleWaiting(unreachableError(`RabbitMQ cannot be reached: ${this.trouble}`, error));
  }

  #settleWaiting(failure?: Error): void {
    for (const settle of this.#waiting.splice(0)) settle(failure);
  }

  #notifyListeners(): void {
    for (const listener of this.#listeners) listener();
  }
}

export function unreachableError(message: string, cause?: unknown): SagaboxError {
  return new SagaboxError("TRANSPORT_UNREACHABLE", message, cause === undefined ? {} : { cause });
}

// An "error" event without a listener would end the process. The cause is handled in "close".
function ignoreErrors<T extends { on(event: "error", listener: () => void): unknown }>(emitter: T): T {
  emitter.on("error", () => undefined);
  return emitter;
}

// amqplib keeps the socket in this undocumented property.
function findSocket(model: ChannelModel): Duplex | undefined {
  return (model.connection as { readonly stream?: Duplex }).stream;
}

function closeModel(model: ChannelModel): void {
  model.close().catch(() => undefined);
}

/** Socket option: the write buffer holds about a hundred messages of usual size. */
const largeWriteBuffer = { writableHighWaterMark: 262_144 } as const;

/**
 * Sends everything that is written to the socket in one turn of the event loop with one system call. The client would
 * otherwise cause one system call per message, and the broker would wake up for each.
 */
export function batchWrites(socket: Writable): void {
  const write = socket.write.bind(socket) as (...args: unknown[]) => boolean;
  let isCorked = false;
  const flush = (): void => {
    isCorked = false;
    socket.uncork();
  };
  socket.write = (...args: unknown[]): boolean => {
    if (!isCorked) {
      isCorked = true;
      socket.cork();
      process.nextTick(flush);
    }
    return write(...args);
  };
}

/** Loads amqplib, an optional peer dependency that the application installs. */
export const amqp = new ClientLoader({
  broker: "RabbitMQ",
  install: ["amqplib@2"],
  load: () => import("amqplib"),
});
