import type { Duplex } from "node:stream";
import type { Channel, ChannelModel, ConfirmChannel } from "amqplib";
import { SagaboxError, toError } from "../../errors/index.ts";
import { Loop, withDeadline } from "../../runtime/index.ts";
import type { BrokerAddress } from "./address.ts";
import { amqp } from "./client.ts";
import { gatherWrites, roomToGather } from "./gathered-writes.ts";
import type { RabbitSettings } from "./options.ts";

/** A connection while it lives. */
export interface Live {
  readonly model: ChannelModel;
  /** Aborted when the connection is gone. */
  readonly lost: AbortSignal;
}

/**
 * One connection that comes back by itself, for ever. Publishing and consuming have one each: a broker that is short
 * of memory stops reading from those that publish, and acknowledgements must not be stuck behind that.
 */
export class Link {
  readonly #settings: RabbitSettings;
  readonly #purpose: string;
  readonly #loop: Loop;
  readonly #listeners = new Set<() => void>();
  #waiting: ((failure?: Error) => void)[] = [];
  #live: Live | undefined;
  #lose: (() => void) | undefined;
  #blocked: string | undefined;
  #trouble: Error | undefined;
  #tries = 0;

  constructor(settings: RabbitSettings, purpose: "publish" | "consume") {
    this.#settings = settings;
    this.#purpose = purpose;
    this.#loop = new Loop({
      step: (signal) => this.#step(signal),
      onError: (error) => this.#failed(error),
      maxBackoffMs: 2_000,
    });
  }

  get live(): Live | undefined {
    return this.#live;
  }

  /** Why the broker takes nothing at the moment. */
  get blocked(): string | undefined {
    return this.#blocked;
  }

  /** For people: why there is no connection. */
  get trouble(): string {
    return this.#trouble?.message ?? "not connected yet";
  }

  /** Connected, or an error after the first try; it goes on trying either way. */
  async open(): Promise<void> {
    if (this.#live !== undefined) return;
    const outcome = new Promise<Error | undefined>((resolve) => this.#waiting.push(resolve));
    await this.#loop.start();
    this.#loop.wake();
    const failure = await outcome;
    if (failure !== undefined) throw failure;
  }

  /** Hears of every new, lost, blocked and unblocked connection. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async close(): Promise<void> {
    await this.#loop.stop();
    this.#settleWaiting(unreachable("The transport was closed."));
    const live = this.#live;
    if (live === undefined) return;
    await withDeadline(
      live.model.close().catch(() => undefined),
      Math.min(2_000, this.#settings.timeoutMs),
      () => undefined,
    );
    this.drop(live, new Error("closed"));
  }

  /** Gives a connection up that does not answer, without waiting for anybody to agree. */
  drop(live: Live, reason: Error): void {
    this.#gone(live, reason);
    // The client hears of a socket's end by its error alone; without one its channels wait for a missed heartbeat.
    socketOf(live.model)?.destroy(reason);
  }

  /** Every answer is awaited under a deadline; a broker that owes one is given up. */
  async ask<T>(live: Live, doing: string, answer: Promise<T>): Promise<T> {
    return withDeadline(answer, this.#settings.timeoutMs, () => {
      const late = new SagaboxError("TRANSPORT_TIMEOUT", `RabbitMQ did not answer while ${doing}.`);
      this.drop(live, late);
      throw late;
    });
  }

  async channel(live: Live): Promise<Channel> {
    return quiet(await this.ask(live, "opening a channel", live.model.createChannel()));
  }

  async confirmChannel(live: Live): Promise<ConfirmChannel> {
    return quiet(await this.ask(live, "opening a channel", live.model.createConfirmChannel()));
  }

  async #step(stopping: AbortSignal): Promise<number> {
    if (this.#live !== undefined) return Infinity;
    const { addresses, timeoutMs } = this.#settings;
    const address = addresses[this.#tries++ % addresses.length];
    if (address === undefined) return Infinity;
    const connecting = this.#connect(address);
    const model = await withDeadline(connecting, timeoutMs, () => {
      connecting.then(close, () => undefined);
      throw new Error(`no answer within ${timeoutMs} ms`);
    });
    if (stopping.aborted) close(model);
    else this.#arrived(model);
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
        ...roomToGather,
        clientProperties: { connection_name: `sagabox ${this.#purpose}` },
      },
    );
    const socket = socketOf(model);
    if (socket !== undefined) gatherWrites(socket);
    return quiet(model);
  }

  #arrived(model: ChannelModel): void {
    const end = new AbortController();
    const live: Live = { model, lost: end.signal };
    this.#live = live;
    this.#lose = () => end.abort();
    this.#blocked = undefined;
    this.#trouble = undefined;
    let failure: Error | undefined;
    model.on("error", (error) => (failure = error));
    model.on("close", (error) =>
      this.#gone(live, failure ?? error ?? new Error("the connection was closed")),
    );
    model.on("blocked", (reason) => this.#block(live, reason));
    model.on("unblocked", () => this.#block(live, undefined));
    this.#settleWaiting();
    this.#tell();
  }

  #block(live: Live, reason: string | undefined): void {
    if (this.#live !== live) return;
    this.#blocked = reason;
    this.#tell();
  }

  #gone(live: Live, reason: Error): void {
    if (this.#live !== live) return;
    this.#trouble = reason;
    this.#live = undefined;
    this.#blocked = undefined;
    this.#lose?.();
    this.#tell();
    this.#loop.wake();
  }

  #failed(error: unknown): void {
    this.#trouble = toError(error);
    this.#settleWaiting(unreachable(`RabbitMQ cannot be reached: ${this.trouble}`, error));
  }

  #settleWaiting(failure?: Error): void {
    for (const settle of this.#waiting.splice(0)) settle(failure);
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }
}

export function unreachable(message: string, cause?: unknown): SagaboxError {
  return new SagaboxError("TRANSPORT_UNREACHABLE", message, cause === undefined ? {} : { cause });
}

// An emitter without a listener for errors ends the process; what happened is heard through "close".
function quiet<T extends { on(event: "error", listener: () => void): unknown }>(emitter: T): T {
  emitter.on("error", () => undefined);
  return emitter;
}

// The client has it under this name, and tells nobody.
function socketOf(model: ChannelModel): Duplex | undefined {
  return (model.connection as { readonly stream?: Duplex }).stream;
}

function close(model: ChannelModel): void {
  model.close().catch(() => undefined);
}
