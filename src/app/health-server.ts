import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { SagaboxError } from "../errors/index.ts";
import { after, type Clock, type Service, systemClock, withDeadline } from "../runtime/index.ts";

/**
 * Keeps the newest connections of a server. `maxConnections` of Node refuses the new ones instead, so a client that holds
 * enough idle connections could keep probes out.
 */
class NewestConnections {
  readonly #max: number;
  /** From the one that has been silent for longest: a connection counts as new again with each complete request. */
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

/** What a readiness check found. Only names and yes or no leave the process: reasons belong in the log. */
export interface Readiness {
  /** Whether this process should be given work. A check may fail without that, and the process is then degraded. */
  readonly ok: boolean;
  readonly checks: Readonly<Record<string, boolean>>;
  /** Why each failed check failed, for the log and the application; they are not served. */
  readonly reasons?: Readonly<Record<string, string>>;
  /** Topics whose messages wait, and why. A broker that is down makes no process unready: their messages are safe. */
  readonly destinations?: Readonly<Record<string, "open" | "half-open" | "paused">>;
}

export interface HealthServerOptions {
  /** Default "127.0.0.1". */
  readonly host?: string;
  /** 0 takes any free port. Default 8000. */
  readonly port?: number;
  /** Whether this process can do its work now. Its answer is kept for a moment. */
  readonly ready: () => Promise<Readiness>;
  /** The page of metrics; without it /metrics does not exist. */
  readonly metrics?: { readonly contentType: string; text(): string };
  /** How long an answer of `ready` is kept. Default 1 000. */
  readonly readyCacheMs?: number;
  /** How long `ready` may take before it counts as no. Default 2 000. */
  readonly readyDeadlineMs?: number;
  /** How long a client may take to read an answer before its connection is cut. Default 10 000. */
  readonly answerDeadlineMs?: number;
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
 * A probe is answered unless this many others connect between its connection and its request, which arrive together. Each
 * connection that does not read may hold one page of metrics in memory.
 */
const MAX_CONNECTIONS = 200;
const STOP_GRACE_MS = 1_000;

/**
 * Health and metrics for whoever watches the process. Liveness says only that the event loop turns: an outage of
 * the database must not make an orchestrator restart every process that waits for it.
 */
export class HealthServer implements Service {
  readonly #options: HealthServerOptions;
  readonly #clock: Clock;
  #server: Server | undefined;
  #connections: NewestConnections | undefined;
  #starting: Promise<void> | undefined;
  /** Resolves when the newest answer of a connection has been sent. */
  readonly #lastAnswers = new WeakMap<Socket, Promise<unknown>>();
  #cached: { untilMs: number; readonly readiness: Promise<Readiness> } | undefined;

  constructor(options: HealthServerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /** The port it listens on; undefined while it does not. */
  get port(): number | undefined {
    const address = this.#server?.address();
    return typeof address === "object" ? address?.port : undefined;
  }

  /** How many connections are open. */
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
    const server = createServer(LIMITS, (request, response) => this.#enqueue(request, response));
    this.#connections = new NewestConnections(server, MAX_CONNECTIONS);
    server.maxRequestsPerSocket = 1_000;
    server.on("clientError", (_error, socket) => socket.destroy());
    await new Promise<void>((resolve, reject) => {
      server.once("error", (error) => reject(listenFailed(host, port, error)));
      server.listen(port, host, resolve);
    });
    server.on("error", () => undefined); // a failing accept must not end the process
    this.#server = server;
  }

  // Node hands over pipelined requests at once. A client that reads no answers would make it keep one page for each.
  #enqueue(request: IncomingMessage, response: ServerResponse): void {
    const { socket } = request;
    const isSent = new Promise((resolve) => response.once("close", resolve));
    const before = this.#lastAnswers.get(socket);
    this.#lastAnswers.set(socket, isSent);
    if (before === undefined) void this.#serve(request, response);
    else void before.then(() => (socket.destroyed ? undefined : this.#serve(request, response)));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // Nobody has to send a body here; reading one would only cost time.
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
      const shown = Object.entries(checks).map(([name, passed]) => [name, passed ? "ok" : "failed"]);
      const status = !ok ? "unavailable" : Object.values(checks).every(Boolean) ? "ok" : "degraded";
      return jsonAnswer(ok ? 200 : 503, { status, checks: Object.fromEntries(shown) });
    },
    "/metrics": async () => {
      const { metrics } = this.#options;
      if (metrics === undefined) return jsonAnswer(404, { status: "not found" });
      return { status: 200, body: metrics.text(), type: metrics.contentType };
    },
  });

  // Probes may come from many sides at once; the database hears one question at a time, at most one a second.
  #readiness(): Promise<Readiness> {
    if (this.#cached === undefined || this.#clock.monotonicMs() >= this.#cached.untilMs) {
      const kept = { untilMs: Number.POSITIVE_INFINITY, readiness: this.#checkReadiness() };
      this.#cached = kept;
      void kept.readiness.then(() => {
        kept.untilMs = this.#clock.monotonicMs() + (this.#options.readyCacheMs ?? 1_000);
      });
    }
    return this.#cached.readiness;
  }

  #checkReadiness(): Promise<Readiness> {
    const no: Readiness = { ok: false, checks: {} };
    const asked = Promise.resolve()
      .then(this.#options.ready)
      .catch(() => no);
    return withDeadline(asked, this.#options.readyDeadlineMs ?? 2_000, () => no);
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
  "Choose another port (0 takes any free one) or address: with `port` and `host` where the code or the command line gives " +
  "them, with SAGABOX_PORT and SAGABOX_HOST where it does not. A second bus of a process is run with { port: false }.";

function listenProblem(host: string, port: number, code: string | undefined): string {
  if (code === "EADDRINUSE") return `Port ${port} on ${host} is in use by another process.`;
  if (code === "EACCES") return `This process may not listen on port ${port}.`;
  return `Cannot listen on ${host} port ${port} (${code ?? "unknown reason"}).`;
}

// A request in progress may end; a client that merely keeps its connection open may not hold up the stop.
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
