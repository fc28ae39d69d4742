import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { SagaboxError } from "../errors/index.ts";
import { after, type Clock, type Service, systemClock, withDeadline } from "../runtime/index.ts";

/**
 * Limits the connections of a server by closing the one whose last request is oldest. Node's `maxConnections` refuses new
 * connections instead, so a client with enough idle connections could lock out probes.
 */
class ConnectionLimit {
  readonly #max: number;
  /** Ordered by last request (or by connecting, before the first request), oldest first. */
  readonly #sockets = new Set<Socket>();

  constructor(server: Server, max: number) {
    this.#max = max;
    server.on("connection", (socket) => this.#add(socket));
    server.on("request", ({ socket }) => this.#renew(socket));
  }

  get count(): number {
    return this.#sockets.size;
  }

  #add(socket: Socket): void {
    if (this.#sockets.size >= this.#max) {
      for (const oldest of this.#sockets) {
        this.#sockets.delete(oldest);
        oldest.destroy();
        break;
      }
    }
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
  }

  #renew(socket: Socket): void {
    if (this.#sockets.delete(socket)) this.#sockets.add(socket);
  }
}

/** The result of the readiness checks. The server publishes only names and pass or fail, not the reasons. */
export interface Readiness {
  /** Whether this process should receive work. If it is true although a check failed, the process is degraded. */
  readonly ok: boolean;
  /** Each check by name: true if it passed. */
  readonly checks: Readonly<Record<string, boolean>>;
  /** The reason of each failed check, for the log and the application. The server does not publish it. */
  readonly reasons?: Readonly<Record<string, string>>;
  /**
   * The state of each topic that the relay does not send to as usual: its circuit breaker is open or half-open, or it is
   * paused because the broker's queue is full. Such topics do not make the process unready.
   */
  readonly destinations?: Readonly<Record<string, "open" | "half-open" | "paused">>;
}

/** Options of `HealthServer`. */
export interface HealthServerOptions {
  /** Address to listen on. Default "127.0.0.1". */
  readonly host?: string;
  /** TCP port; 0 picks a free one. Default 8000. */
  readonly port?: number;
  /** Runs the readiness checks. The result is cached for `readyCacheMs`. */
  readonly ready: () => Promise<Readiness>;
  /** Renders the metrics page. Without it, /metrics returns 404. */
  readonly metrics?: { readonly contentType: string; text(): string };
  /** How long a result of `ready` is cached, in milliseconds. Default 1,000. */
  readonly readyCacheMs?: number;
  /** How long `ready` may take before the process counts as unready, in milliseconds. Default 2,000. */
  readonly readyDeadlineMs?: number;
  /** How long a client may take to read a response before its connection is closed, in milliseconds. Default 10,000. */
  readonly answerDeadlineMs?: number;
  /** Replaces the clock in tests. Default: the system clock. */
  readonly clock?: Clock;
}

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly type?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

const JSON_TYPE = "application/json; charset=utf-8";
const LIMITS = {
  maxHeaderSize: 8_192,
  headersTimeout: 5_000,
  requestTimeout: 5_000,
  keepAliveTimeout: 5_000,
  connectionsCheckingInterval: 1_000,
};
/**
 * High enough that a probe keeps its connection: other clients would have to open this many between the probe's connecting
 * and its request. Low enough for memory: each client that does not read its response holds one metrics page.
 */
const MAX_CONNECTIONS = 200;
/** How many requests of one connection may wait for their response. A client that sends more is cut off. */
const MAX_PIPELINED = 20;
const STOP_GRACE_MS = 1_000;

/**
 * Serves /health/live, /health/ready and /metrics over HTTP. Liveness reports only that the event loop runs, so that a
 * database outage does not make an orchestrator restart every worker. `start()` throws LISTEN_FAILED.
 */
export class HealthServer implements Service {
  readonly #options: HealthServerOptions;
  readonly #clock: Clock;
  #server: Server | undefined;
  #connections: ConnectionLimit | undefined;
  #starting: Promise<void> | undefined;
  /** The latest response of each connection; resolves when it has been sent. */
  readonly #lastAnswers = new WeakMap<Socket, Promise<unknown>>();
  /** How many requests of each connection have no response yet. */
  readonly #unanswered = new WeakMap<Socket, number>();
  /** The latest readiness check. `untilMs` is infinite while the check runs, so that all probes share it. */
  #cached: { untilMs: number; readonly readiness: Promise<Readiness> } | undefined;

  constructor(options: HealthServerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /** The port the server listens on; undefined before start() and after stop(). */
  get port(): number | undefined {
    const address = this.#server?.address();
    return typeof address === "object" ? address?.port : undefined;
  }

  /** The number of open connections. */
  get connections(): number {
    return this.#connections?.count ?? 0;
  }

  async start(): Promise<void> {
    this.#starting ??= this.#listen().catch((error: unknown) => {
      this.#starting = undefined;
      throw error;
    });
    return this.#starting;
  }

  async stop(): Promise<void> {
    const starting = this.#starting;
    await starting?.catch(() => undefined);
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    this.#starting = undefined;
    this.#cached = undefined;
    await close(server);
  }

  async #listen(): Promise<void> {
    const { host = "127.0.0.1", port = 8000 } = this.#options;
    // Imported late: on newer Node versions this module also loads the HTTP client, a quarter of the time of importing sagabox.
    const { createServer } = await import("node:http");
    const server = createServer(LIMITS, (request, response) => this.#enqueue(request, response));
    this.#connections = new ConnectionLimit(server, MAX_CONNECTIONS);
    server.maxRequestsPerSocket = 1_000;
    server.on("clientError", (_error, socket) => socket.destroy());
    await new Promise<void>((resolve, reject) => {
      server.once("error", (error) => reject(listenFailed(host, port, error)));
      server.listen(port, host, resolve);
    });
    server.on("error", () => undefined); // an unhandled accept error would end the process
    this.#server = server;
  }

  // Node emits pipelined requests at once. Serving them one by one, and only a few, keeps at most one page and a few requests
  // in memory for a client that does not read.
  #enqueue(request: IncomingMessage, response: ServerResponse): void {
    const { socket } = request;
    const unanswered = (this.#unanswered.get(socket) ?? 0) + 1;
    if (unanswered > MAX_PIPELINED) {
      socket.destroy();
      return;
    }
    this.#unanswered.set(socket, unanswered);
    const sent = new Promise<void>((resolve) =>
      response.once("close", () => {
        this.#unanswered.set(socket, (this.#unanswered.get(socket) ?? 1) - 1);
        resolve();
      }),
    );
    const previous = this.#lastAnswers.get(socket);
    this.#lastAnswers.set(socket, sent);
    if (previous === undefined) void this.#serve(request, response);
    else void previous.then(() => (socket.destroyed ? undefined : this.#serve(request, response)));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // No endpoint takes a body. Closing the connection is cheaper than reading it.
    if (
      request.headers["content-length"] !== undefined ||
      request.headers["transfer-encoding"] !== undefined
    ) {
      response.shouldKeepAlive = false;
    }
    const { status, body, type = JSON_TYPE, headers } = await this.#answer(request).catch(() => failedAnswer);
    response.writeHead(status, {
      "content-type": type,
      "content-length": Buffer.byteLength(body),
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      ...headers,
    });
    const { answerDeadlineMs = 10_000 } = this.#options;
    response.once(
      "close",
      after(answerDeadlineMs, () => request.socket.destroy(), { unref: true }),
    );
    response.end(request.method === "HEAD" ? undefined : body);
  }

  async #answer({ method, url = "" }: IncomingMessage): Promise<Answer> {
    const page = this.#pages[url.split("?", 1)[0] ?? ""];
    if (page === undefined) return jsonAnswer(404, { status: "not found" });
    if (method !== "GET" && method !== "HEAD") {
      return { ...jsonAnswer(405, { status: "method not allowed" }), headers: { allow: "GET, HEAD" } };
    }
    return page();
  }

  readonly #pages: Readonly<Record<string, () => Promise<Answer>>> = Object.assign(Object.create(null), {
    "/health/live": async () => jsonAnswer(200, { status: "ok" }),
    "/health/ready": async () => {
      const { ok, checks } = await this.#readiness();
      const results = Object.entries(checks).map(([name, passed]) => [name, passed ? "ok" : "failed"]);
      const status = !ok ? "unavailable" : Object.values(checks).every(Boolean) ? "ok" : "degraded";
      return jsonAnswer(ok ? 200 : 503, { status, checks: Object.fromEntries(results) });
    },
    "/metrics": async () => {
      const { metrics } = this.#options;
      if (metrics === undefined) return jsonAnswer(404, { status: "not found" });
      return { status: 200, body: metrics.text(), type: metrics.contentType };
    },
  });

  // Many probes may arrive at once. They share one check of the database, at most once per `readyCacheMs`.
  #readiness(): Promise<Readiness> {
    if (this.#cached === undefined || this.#clock.monotonicMs() >= this.#cached.untilMs) {
      const entry = { untilMs: Number.POSITIVE_INFINITY, readiness: this.#checkReadiness() };
      this.#cached = entry;
      void entry.readiness.then(() => {
        entry.untilMs = this.#clock.monotonicMs() + (this.#options.readyCacheMs ?? 1_000);
      });
    }
    return this.#cached.readiness;
  }

  #checkReadiness(): Promise<Readiness> {
    const unready: Readiness = { ok: false, checks: {} };
    const readiness = Promise.resolve()
      .then(this.#options.ready)
      .catch(() => unready);
    return withDeadline(readiness, this.#options.readyDeadlineMs ?? 2_000, () => unready);
  }
}

function jsonAnswer(status: number, value: object): Answer {
  return { status, body: `${JSON.stringify(value)}\n` };
}

const failedAnswer = jsonAnswer(500, { status: "failed" });

function listenFailed(host: string, port: number, cause: NodeJS.ErrnoException): SagaboxError {
  return new SagaboxError("LISTEN_FAILED", `${listenProblem(host, port, cause.code)} ${REMEDY}`, { cause });
}

const REMEDY =
  "Choose another port (0 picks a free one) or address with `port` and `host` in code or on the command line, or with " +
  "SAGABOX_PORT and SAGABOX_HOST. To run a second bus in one process, pass { port: false }.";

function listenProblem(host: string, port: number, code: string | undefined): string {
  if (code === "EADDRINUSE") return `Port ${port} on ${host} is in use by another process.`;
  if (code === "EACCES") return `This process may not listen on port ${port}.`;
  return `Cannot listen on ${host} port ${port} (${code ?? "unknown reason"}).`;
}

// Requests in progress get a grace period. Idle keep-alive connections are closed at once.
function close(server: Server): Promise<void> {
  return new Promise((resolve) => {
    const cancel = after(STOP_GRACE_MS, () => server.closeAllConnections());
    server.close(() => {
      cancel();
      resolve();
    });
    server.closeIdleConnections();
  });
}
