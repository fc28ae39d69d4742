import { isIP } from "node:net";
import type { Connection, ConnectionOptions } from "@platformatic/kafka";
import { errorText } from "../../errors/index.ts";
import { withDeadline } from "../../runtime/index.ts";
import { ClientLoader } from "../../transport/index.ts";
import { NoAnswerError } from "./driver.ts";
import type { Broker, KafkaSettings } from "./options.ts";

/**
 * Keeps one connection per channel and broker address. A channel separates kinds of requests, so that a waiting fetch
 * does not delay a heartbeat. A request that times out closes its connection: a late answer could be mistaken for the
 * answer to a later request, and a dead peer would swallow that request too.
 */
export class Connections {
  readonly #settings: KafkaSettings;
  readonly #open = new Map<string, Promise<Connection>>();
  #closed = false;

  constructor(settings: KafkaSettings) {
    this.#settings = settings;
  }

  async request<T>(
    channel: string,
    broker: Broker,
    request: (connection: Connection) => Promise<T>,
    waitMs = 0,
  ): Promise<T> {
    const connection = await this.#connect(channel, broker);
    const timeoutMs = this.#settings.timeoutMs + waitMs;
    try {
      return await withDeadline(request(connection), timeoutMs, () => {
        throw new Error(`no answer within ${timeoutMs} ms`);
      });
    } catch (error) {
      const answered = findResponse(error);
      if (answered !== undefined) return answered as T;
      connection.socket.destroy();
      throw new NoAnswerError(`${formatAddress(broker)}: ${describeConnectionError(error)}`, true, error);
    }
  }

  drop(channel: string): void {
    for (const [key, connecting] of this.#open) {
      if (!key.startsWith(`${channel}@`)) continue;
      this.#open.delete(key);
      connecting.then(
        (connection) => connection.socket.destroy(),
        () => undefined,
      );
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    const open = await Promise.allSettled(this.#open.values());
    this.#open.clear();
    for (const result of open) if (result.status === "fulfilled") result.value.socket.destroy();
  }

  #connect(channel: string, broker: Broker): Promise<Connection> {
    if (this.#closed) return Promise.reject(new NoAnswerError("the transport is closed", false, undefined));
    const key = `${channel}@${formatAddress(broker)}`;
    const known = this.#open.get(key);
    if (known !== undefined) return known;
    const forget = (): void => {
      if (this.#open.get(key) === connecting) this.#open.delete(key);
    };
    const connecting = this.#openConnection(broker, forget).catch((error: unknown) => {
      forget();
      throw new NoAnswerError(`${formatAddress(broker)}: ${describeConnectionError(error)}`, false, error);
    });
    this.#open.set(key, connecting);
    return connecting;
  }

  async #openConnection({ host, port }: Broker, forget: () => void): Promise<Connection> {
    const { clientId, connectTimeoutMs } = this.#settings;
    const client = await platformatic.load();
    const connection = new client.Connection(clientId, await this.#connectionOptions(host));
    connection.on("error", forget);
    connection.on("close", forget);
    const connected = Promise.resolve(connection.connect(host, port));
    await withDeadline(connected, connectTimeoutMs + 1_000, () => {
      connection.socket?.destroy();
      throw new Error(`no connection within ${connectTimeoutMs} ms`);
    });
    return connection;
  }

  async #connectionOptions(host: string): Promise<ConnectionOptions> {
    const { connectTimeoutMs, timeoutMs, tls, sasl } = this.#settings;
    const options: ConnectionOptions = {
      connectTimeout: connectTimeoutMs,
      // Longer than our own deadline, which also closes the connection.
      requestTimeout: timeoutMs + 60_000,
      // The publisher and the fetcher limit requests. A queue in the client would hide whether a request was sent.
      maxInflights: 10_000,
    };
    if (tls !== undefined) {
      const { ca, ...rest } = tls;
      options.tls = {
        ...rest,
        ...(ca === undefined ? {} : { ca: Array.isArray(ca) ? [...ca] : (ca as string | Buffer) }),
        minVersion: "TLSv1.2",
        rejectUnauthorized: true,
      };
      // SNI takes host names only. The certificate is still checked against an IP address.
      const name = tls.servername ?? (isIP(host) === 0 ? host : undefined);
      if (name !== undefined) options.tlsServerName = name;
    }
    if (sasl !== undefined) {
      let current = await sasl.credentials();
      const username = async (): Promise<string> => (current = await sasl.credentials()).username;
      options.sasl = { mechanism: sasl.mechanism, username, password: () => current.password };
    }
    return options;
  }
}

// The client throws an answer that holds an error code. The driver returns codes as part of the answer.
function findResponse(error: unknown): unknown {
  if (typeof error !== "object" || error === null || !("response" in error)) return undefined;
  return error.response;
}

export function formatAddress({ host, port }: Broker): string {
  return `${host}:${port}`;
}

/** Describes an error and its causes in one line, without repeating a cause that the message already contains. */
export function describeConnectionError(error: unknown): string {
  if (!(error instanceof Error)) return errorText(error);
  if (error instanceof AggregateError && error.errors.length > 0)
    return describeConnectionError(error.errors[0]);
  const cause = error.cause === undefined ? "" : describeConnectionError(error.cause);
  return error.message.includes(cause) ? error.message : `${error.message} ${cause}`;
}

/** Loads @platformatic/kafka, an optional peer dependency that the application installs. */
export const platformatic = new ClientLoader({
  broker: "Kafka",
  install: ["@platformatic/kafka@1"],
  load: () => import("@platformatic/kafka"),
});
