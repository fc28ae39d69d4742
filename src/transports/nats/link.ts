import type { JetStreamClient, JetStreamManager } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/transport-node";
import { isSagaboxError, SagaboxError } from "../../errors/index.ts";
import { Loop, sleep, systemClock, withDeadline } from "../../runtime/index.ts";
import { natsClient } from "./client.ts";
import { createAuthenticator } from "./credentials.ts";
import type { NatsSettings } from "./options.ts";
import { describeFailure, hasNoResponders } from "./failure.ts";
import { declareStreams, isStreamMissing, warnAboutRecreated, type CreationTimes } from "./streams.ts";

/** One connection to the server. A reconnect creates a new session. */
export interface Session {
  readonly nc: NatsConnection;
  readonly js: JetStreamClient;
  readonly jsm: JetStreamManager;
  /** Maximum message size that the server accepts, in bytes, headers included. */
  readonly maxPayload: number;
  /** Aborted when the connection is lost. */
  readonly over: AbortSignal;
}

const RETRY_MS = 100;
const MAX_WAIT_MS = 2_000;
/**
 * A stream counts as deleted if two lookups this many milliseconds apart do not find it: a new leader may still be
 * catching up.
 */
const STREAM_RECHECK_MS = 500;
const STREAM_CHECK_MS = 2_000;

/** Keeps one connection open and reconnects until it is closed. */
export class Link {
  readonly #settings: NatsSettings;
  readonly #loop: Loop;
  readonly #listeners = new Set<() => void>();
  #session: Session | undefined;
  #maxPayload = 1_048_576;
  #firstTry: { readonly done: Promise<void>; readonly settle: (error?: unknown) => void } | undefined;
  #lastError: Error | undefined;
  #tries = 0;
  #closed = false;
  #streams: CreationTimes = new Map();
  #lookAtMs = -Infinity;
  #missingStream: Error | undefined;
  /** Set while this process ends the session; the reason for it. */
  #ending: string | undefined;

  constructor(settings: NatsSettings) {
    this.#settings = settings;
    this.#loop = new Loop({
      step: (signal) => this.#step(signal),
      onError: (error) => this.#recordFailure(error),
      maxBackoffMs: MAX_WAIT_MS,
    });
  }

  get session(): Session | undefined {
    return this.#session;
  }

  get maxPayload(): number {
    return this.#maxPayload;
  }

  /** The reason why there is no session. */
  get trouble(): Error {
    return (
      this.#lastError ?? unreachableError(this.#closed ? "The transport was closed." : "Not connected yet.")
    );
  }

  /**
   * Connects. Settles with the result of the first attempt; if that fails, the link keeps retrying in the background.
   */
  async open(): Promise<void> {
    if (this.#closed) throw this.trouble;
    if (this.#session !== undefined) return;
    if (this.#firstTry === undefined) {
      this.#firstTry = createDeferred();
      await this.#loop.start();
    } else if (this.#lastError !== undefined) throw this.#lastError;
    await this.#firstTry.done;
    if (this.#session === undefined) throw this.trouble;
  }

  /** Calls the listener when a session starts or ends. Returns a function that removes the listener. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Set while messages cannot be stored because a stream is missing and this user may not create it. */
  get missingStream(): Error | undefined {
    return this.#missingStream;
  }

  /**
   * Checks for a deleted stream after a failure that a deleted stream would explain. If one is missing, creates it and
   * ends the session, so that all readers start again.
   */
  checkStreams(session: Session): void {
    if (systemClock.monotonicMs() < this.#lookAtMs || session !== this.#session) return;
    this.#lookAtMs = Infinity;
    void this.#createDeleted(session)
      .catch(() => undefined) // the server cannot answer at the moment
      .finally(() => (this.#lookAtMs = systemClock.monotonicMs() + STREAM_CHECK_MS));
  }

  async #createDeleted({ nc, jsm, over }: Session): Promise<void> {
    const isMissing = await isStreamMissing(jsm, this.#settings);
    if (!isMissing) this.#missingStream = undefined;
    if (!isMissing) return;
    await sleep(STREAM_RECHECK_MS);
    if (over.aborted || !(await isStreamMissing(jsm, this.#settings))) return;
    try {
      await this.#declare(nc, jsm);
    } catch (error) {
      const text = `A stream of prefix ${this.#settings.prefix} was deleted and cannot be created`;
      this.#missingStream = unreachableError(`${text}: ${describeFailure(error)}.`, error);
      return;
    }
    this.#ending = "A deleted stream was created again, and its readers restart.";
    await nc.close();
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#loop.stop();
    this.#firstTry?.settle();
  }

  async #step(stopping: AbortSignal): Promise<number> {
    const { timeoutMs } = this.#settings;
    const nc = await untilStopped(this.#connect(), stopping);
    if (nc === undefined) return RETRY_MS;
    try {
      const session = await withDeadline(this.#prepare(nc), 2 * timeoutMs, () => {
        throw unreachableError("The server did not answer in time.");
      });
      if (!stopping.aborted) await this.#runSession(session, stopping);
    } finally {
      await withDeadline(nc.close(), timeoutMs, () => undefined).catch(() => undefined);
    }
    return RETRY_MS;
  }

  /** Tries the servers in turn, starting with a different one each time. */
  async #connect(): Promise<NatsConnection> {
    const { servers } = this.#settings;
    this.#tries += 1;
    for (let n = 1; ; n++) {
      try {
        return await this.#connectTo(servers[(this.#tries + n) % servers.length] ?? "");
      } catch (error) {
        if (n >= servers.length) throw error;
      }
    }
  }

  async #connectTo(server: string): Promise<NatsConnection> {
    const { tls, timeoutMs, leaseMs, inboxPrefix, credentials } = this.#settings;
    const { node } = await natsClient.load();
    const authenticator = await createAuthenticator(credentials);
    return node.connect({
      servers: server,
      ignoreClusterUpdates: true,
      // Without the host, the certificate of a server addressed by IP would be checked against "localhost".
      ...(tls === undefined ? {} : { tls: Object.assign({ host: readHost(server) }, tls) }),
      ...(authenticator === undefined ? {} : { authenticator }),
      name: "sagabox",
      reconnect: false,
      timeout: timeoutMs,
      // A dead connection is noticed after at most three missed pings, which is before the lease expires.
      pingInterval: Math.max(200, Math.floor(leaseMs / 5)),
      maxPingOut: 2,
      inboxPrefix,
      noAsyncTraces: true,
    });
  }

  async #prepare(nc: NatsConnection): Promise<Omit<Session, "over">> {
    const { timeoutMs } = this.#settings;
    const { jetstream, jetstreamManager } = natsClient.client.jetstream;
    const jsm = await jetstreamManager(nc, { checkAPI: false, timeout: timeoutMs });
    await this.#declare(nc, jsm).catch((error: unknown) => {
      if (nc.info?.jetstream === true || !hasNoResponders(error)) throw error;
      throw unreachableError("JetStream is off at this server, and no other one answered.", error);
    });
    const maxPayload = nc.info?.max_payload ?? this.#maxPayload;
    return { nc, jsm, js: jetstream(nc, { timeout: timeoutMs }), maxPayload };
  }

  async #declare(nc: NatsConnection, jsm: JetStreamManager): Promise<void> {
    const streams = await declareStreams(jsm, this.#settings, nc.info?.version ?? "2.9.0");
    warnAboutRecreated(this.#streams, streams, this.#settings);
    this.#streams = streams;
    this.#missingStream = undefined;
  }

  async #runSession(prepared: Omit<Session, "over">, stopping: AbortSignal): Promise<void> {
    const over = new AbortController();
    const stopped = new Promise<void>((resolve) => {
      stopping.addEventListener("abort", () => resolve(), { once: true });
    });
    this.#session = { ...prepared, over: over.signal };
    this.#maxPayload = prepared.maxPayload;
    this.#lastError = undefined;
    this.#notifyListeners();
    this.#firstTry?.settle();
    const reason = await Promise.race([prepared.nc.closed(), stopped]);
    this.#lastError = unreachableError(this.#ending ?? "The connection was lost.", reason ?? undefined);
    this.#ending = undefined;
    this.#session = undefined;
    over.abort();
    this.#notifyListeners();
  }

  #recordFailure(error: unknown): void {
    this.#lastError = isSagaboxError(error) ? error : unreachableError(describeConnectError(error), error);
    this.#firstTry?.settle();
  }

  #notifyListeners(): void {
    for (const listener of this.#listeners) listener();
  }
}

function createDeferred(): { done: Promise<void>; settle: () => void } {
  let settle = (): void => undefined;
  const done = new Promise<void>((resolve) => {
    settle = resolve;
  });
  return { done, settle };
}

// Connecting to a silent host takes until the timeout. close() must not wait for that.
function untilStopped(
  dialling: Promise<NatsConnection>,
  stopping: AbortSignal,
): Promise<NatsConnection | undefined> {
  const stopped = new Promise<undefined>((resolve) => {
    const stop = (): void => {
      resolve(undefined);
      dialling.then((late) => late.close()).catch(() => undefined);
    };
    stopping.addEventListener("abort", stop, { once: true });
    dialling.finally(() => stopping.removeEventListener("abort", stop)).catch(() => undefined);
  });
  return Promise.race([dialling, stopped]);
}

function readHost(server: string): string {
  return server.replace(/:\d+$/, "").replace(/^\[|\]$/g, "");
}

// The client's error texts contain neither password nor token.
function describeConnectError(error: unknown): string {
  return `NATS cannot be reached: ${describeFailure(error)}.`;
}

export function unreachableError(message: string, cause?: unknown): SagaboxError {
  return new SagaboxError("TRANSPORT_UNREACHABLE", message, cause === undefined ? {} : { cause });
}
