import type { ConservationWatch, Extra, RoleName } from "../admin/index.ts";
import { errorText, isSagaboxError, SagaboxError } from "../errors/index.ts";
import {
  Consumer,
  type ConsumerDefinition,
  CrashLedger,
  type DeliveredRecord,
  type HandledRecord,
  HandlerRegistry,
  LagWatch,
  RecordReceiver,
} from "../inbox/index.ts";
import { decodeHint, type Hint } from "../lanes/index.ts";
import type { AnyContract } from "../message/index.ts";
import type { Notices } from "../notify/index.ts";
import { oneOf, type WorkerPart, workerParts } from "../options/index.ts";
import type { OutboxSettings } from "../outbox/index.ts";
import { Sweeper } from "../privacy/index.ts";
import { parseReplyNotice } from "../requests/index.ts";
import {
  type Service,
  type SupervisedService,
  Supervisor,
  systemClock,
  withDeadline,
} from "../runtime/index.ts";
import {
  assertMigrated,
  assertOwnSessions,
  assertWritable,
  leasedStatementMs,
  Notifications,
  sessionsMissing,
} from "../storage/index.ts";
import type { Observer, PrometheusObserver } from "../telemetry/index.ts";
import { isLocalTransport, type Transport } from "../transport/index.ts";
import { Backlog, ConsumerWatch, Janitor, SagaBacklog, Vitals } from "./periodic-services.ts";
import { createAuditSealer, createAuditWatch } from "./bus-audit.ts";
import { createEraser, parseErasureNotice } from "./bus-privacy.ts";
import { Drain, type DrainOptions, type DrainResult, limitHandlers, readDrainOptions } from "./drain.ts";
import { type BusTopology, describeTopology, drainMs, type Parts } from "./parts.ts";
import { HealthServer, type Readiness } from "./health-server.ts";
import { type AdminOperations, loadAdmin } from "./load-admin.ts";

/** Options of `bus.run()`. */
export interface RunOptions {
  /**
   * TCP port that serves /health/live, /health/ready and /metrics; 0 picks a free port, false starts no server.
   * Default: SAGABOX_PORT, else no server.
   */
  readonly port?: number | false;
  /** Address the server listens on. Default: SAGABOX_HOST, else "127.0.0.1". */
  readonly host?: string;
  /** The parts to run in this process, for deployments that give each part its own database role. Default: all parts. */
  readonly parts?: readonly WorkerPart[];
}

/** The result of `bus.run()`. */
export interface Running {
  /** The port that serves health and metrics; undefined without a server. */
  readonly port: number | undefined;
}

/** The result of `bus.stop()`. */
export interface StopResult {
  /** False if a part failed to stop, or the shutdown timeout cut work off. */
  readonly clean: boolean;
  /** Present if the shutdown timeout passed before all parts stopped: a handler or a local step may have been cut off. */
  readonly timedOut?: true;
}

const TIMED_OUT: StopResult = { clean: false, timedOut: true };

/** Runs the background services of a bus. It starts them in order and stops them in reverse order. */
export class Worker {
  readonly #parts: Parts;
  readonly #registry: HandlerRegistry;
  readonly #metrics: PrometheusObserver;
  readonly #notices: Notices;
  readonly #probe: DatabaseProbe;
  /** The parts that this process runs, from `RunOptions`. `#parts` holds the objects that they use. */
  #runningParts: ReadonlySet<WorkerPart> = new Set();
  #consumers: Consumer[] = [];
  #ledger: CrashLedger | undefined;
  #healthServer: HealthServer | undefined;
  #supervisor: Supervisor | undefined;
  #starting: Promise<Running> | undefined;
  #stopping: Promise<StopResult> | undefined;
  /** Consumers that the application registered. The remaining ones belong to sagas. */
  #consumerNames: ReadonlySet<string> | undefined;
  #sagasListen = false;
  /** The consumers of sagas, for drains and single records. */
  #sagaRegistry: HandlerRegistry | undefined;
  #preparing: Promise<void> | undefined;
  #receiver: RecordReceiver | undefined;
  readonly #drains = new Set<Promise<unknown>>();
  readonly #endDrains = new AbortController();
  #isClean = true;
  /** True if a part did not stop within the shutdown timeout. */
  #isLate = false;

  constructor(parts: Parts, registry: HandlerRegistry, metrics: PrometheusObserver, notices: Notices) {
    this.#notices = notices;
    this.#parts = parts;
    this.#probe = new DatabaseProbe(parts);
    this.#registry = registry;
    this.#metrics = metrics;
  }

  async run(options: RunOptions): Promise<Running> {
    this.#assertNotStopped();
    this.#starting ??= this.#start(options).catch((error: unknown) => {
      this.#starting = undefined; // allows another run() after the cause is fixed
      throw error;
    });
    return this.#starting;
  }

  async #start(options: RunOptions): Promise<Running> {
    const { database, direct, settings, transport, observer, inbox, requests, sagas } = this.#parts;
    this.#runningParts = chooseParts(options.parts);
    this.#isClean = true;
    this.#isLate = false;
    if (settings.directUrl === false) throw sessionsMissing();
    await assertOwnSessions(direct, settings.directUrl !== undefined);
    await assertMigrated(database, settings.schema);
    await assertWritable(database);
    const admin = await loadAdmin();
    await admin.assertRights(
      database,
      settings.schema,
      rolesFor(this.#runningParts),
      extrasFor(this.#parts.outbox),
    );
    if (this.#isRunning("sagas")) await sagas.registerDefinitions();
    this.#assertNotStopped();
    if (this.#isRunning("relay", "consumers", "sagas")) await openTransport(transport, observer);
    this.#assertNotStopped();
    const definitions = this.#listDefinitions();
    if (this.#parts.privacy === undefined) this.#warnAboutMissingKeys(definitions);
    await this.#parts.personalTypes.register(listContracts(definitions));
    inbox.permits.limit = countHandlerConnections(this.#parts, definitions.length);
    this.#consumers = this.#makeConsumers(definitions);
    const supervisor = new Supervisor({
      services: this.#listServices(options, this.#createConservationWatch(admin)),
      stopDeadlineMs: settings.shutdownTimeoutMs,
      onStopTrouble: (_name, error) => {
        this.#isClean = false;
        this.#isLate ||= error === undefined || isSagaboxError(error, "SHUTDOWN_TIMEOUT");
      },
    });
    this.#supervisor = supervisor;
    observer.emit("worker.started", { worker: settings.worker, service: settings.service });
    await supervisor.start();
    if (this.#isRunning("consumers")) {
      requests.open(() => {
        inbox.permits.limit = countHandlerConnections(this.#parts, this.#consumers.length + 1);
      }, this.#ledger);
    }
    return { port: this.#healthServer?.port };
  }

  stop(): Promise<StopResult> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async drain(options: DrainOptions): Promise<DrainResult> {
    this.#assertNotStopped();
    const settings = readDrainOptions(options);
    await this.#prepare();
    await openTransport(this.#parts.transport, this.#parts.observer);
    this.#assertNotStopped();
    if (this.#supervisor === undefined) limitHandlers(this.#parts);
    const drain = new Drain(this.#parts, this.#listAllDefinitions(), settings, this.#endDrains.signal);
    const running = drain.run();
    this.#drains.add(running);
    return running.finally(() => this.#drains.delete(running));
  }

  async handle(record: DeliveredRecord): Promise<readonly HandledRecord[]> {
    this.#assertNotStopped();
    await this.#prepare();
    this.#assertNotStopped();
    if (this.#supervisor === undefined) limitHandlers(this.#parts);
    this.#receiver ??= new RecordReceiver(this.#parts.inbox, this.#endDrains.signal);
    const handling = this.#receiver.handle(this.#listAllDefinitions(), record);
    this.#drains.add(handling);
    return handling.finally(() => this.#drains.delete(handling));
  }

  /** Checks the schema and registers the sagas, once, for work without a running worker. */
  async #prepare(): Promise<void> {
    const { database, settings, sagas } = this.#parts;
    this.#preparing ??= (async () => {
      await assertMigrated(database, settings.schema);
      await sagas.registerDefinitions();
    })().catch((error: unknown) => {
      this.#preparing = undefined;
      throw error;
    });
    return this.#preparing;
  }

  #listAllDefinitions(): readonly ConsumerDefinition[] {
    const own = this.#registry.consumers();
    if (this.#sagaRegistry === undefined) {
      this.#sagaRegistry = new HandlerRegistry(this.#parts.settings.routing);
      this.#parts.sagas.listen(this.#sagaRegistry);
    }
    const known = new Set(own.map(({ name }) => name));
    return [...own, ...this.#sagaRegistry.consumers().filter(({ name }) => !known.has(name))];
  }

  async health(): Promise<Readiness> {
    const { relay, destinations, requests } = this.#parts;
    const checks: Record<string, boolean> = {};
    const reasons: Record<string, string> = {};
    const add = (name: string, isOk: boolean, reason = "unknown"): void => {
      checks[name] = isOk;
      if (!isOk) reasons[name] = reason;
    };
    const database = await this.#probe.findProblem();
    add("database", database === undefined, database);
    if (this.#runningParts.size === 0 || this.#isRunning("relay"))
      add("relay", relay.ready, "it has no lease, or could not renew it");
    for (const consumer of this.#consumers) {
      const { ok, detail } = consumer.health();
      add(`consumer ${consumer.name}`, ok, detail);
    }
    const ok = Object.values(checks).every(Boolean);
    // The reply consumer is reported but does not make the worker unready: only requests depend on it, and they time out.
    const replyConsumer = requests.health();
    if (replyConsumer !== undefined) add(`consumer ${replyConsumer.name}`, replyConsumer.ok);
    return { ok, checks, reasons, destinations: destinations.states() };
  }

  topology(): BusTopology {
    return describeTopology(this.#parts, this.#registry);
  }

  metricsText(): string {
    return this.#metrics.text();
  }

  #isRunning(...parts: readonly WorkerPart[]): boolean {
    return parts.some((part) => this.#runningParts.has(part));
  }

  #assertNotStopped(): void {
    if (this.#stopping === undefined) return;
    throw new SagaboxError("BUS_STOPPED", "This bus was stopped. Make a new one with createBus().");
  }

  /** Lists the consumers of the running parts and closes the registry. Sagas have consumers of their own. */
  #listDefinitions(): readonly ConsumerDefinition[] {
    const applicationConsumers = (this.#consumerNames ??= new Set(
      this.#registry.consumers().map(({ name }) => name),
    ));
    if (this.#isRunning("sagas") && !this.#sagasListen) {
      this.#parts.sagas.listen(this.#registry);
      this.#sagasListen = true;
    }
    this.#registry.close();
    return this.#registry
      .consumers()
      .filter(({ name }) => this.#isRunning(applicationConsumers.has(name) ? "consumers" : "sagas"));
  }

  #makeConsumers(definitions: readonly ConsumerDefinition[]): Consumer[] {
    const { inbox, transport, settings } = this.#parts;
    // The reply consumer needs the crash ledger even if this worker has no handlers.
    const mayReceiveReplies = this.#isRunning("consumers") && !isLocalTransport(transport);
    if (definitions.length === 0 && !mayReceiveReplies) return [];
    const ledger = new CrashLedger({
      engine: inbox,
      worker: settings.worker,
      leaseMs: settings.leaseMs * 0.7,
    });
    this.#ledger = ledger;
    return definitions.map(
      (definition) =>
        new Consumer({
          engine: inbox,
          transport,
          definition,
          ledger,
          worker: settings.worker,
          service: settings.service,
          stopDeadlineMs: drainMs(settings.shutdownTimeoutMs),
        }),
    );
  }

  // Running without encryption keys is allowed. If the variable was forgotten, the log should say so before a handler finds
  // its personal data missing.
  #warnAboutMissingKeys(definitions: readonly ConsumerDefinition[]): void {
    for (const { name: consumer, handlers } of definitions)
      for (const { contract } of handlers.values())
        if (contract.personal !== null)
          this.#parts.observer.emit("consumer.sealed", { consumer, type: contract.name });
  }

  #listServices(options: RunOptions, conservation: ConservationWatch): SupervisedService[] {
    const { relay, mover, history, depthWatch, sagas, claimCheck, privacy, observer } = this.#parts;
    const asSupervised = (name: string, service: SupervisedService["service"]): SupervisedService => ({
      name,
      service,
    });
    const stoppingFirst = (name: string, service: SupervisedService["service"]): SupervisedService => ({
      name,
      service,
      stopsFirst: true,
    });
    const ifRunning = (
      part: WorkerPart,
      ...services: readonly SupervisedService[]
    ): readonly SupervisedService[] => (this.#isRunning(part) ? services : []);
    const consumers = new ConsumerStart(this.#consumers);
    return [
      asSupervised("vitals", new Vitals(this.#parts)),
      ...ifRunning(
        "upkeep",
        asSupervised("history", history),
        asSupervised("janitor", new Janitor(this.#parts)),
        asSupervised("audit sealer", createAuditSealer(this.#parts)),
        asSupervised("audit watch", createAuditWatch(this.#parts)),
        asSupervised("conservation", conservation),
      ),
      ...(privacy === undefined
        ? []
        : ifRunning(
            "upkeep",
            asSupervised("sweeper", new Sweeper(createEraser(this.#parts, privacy), observer)),
          )),
      ...(claimCheck.collector === undefined
        ? []
        : ifRunning("upkeep", asSupervised("collector", claimCheck.collector))),
      ...(depthWatch !== undefined && this.#isRunning("relay", "consumers", "sagas")
        ? [asSupervised("broker depth", depthWatch)]
        : []),
      ...(this.#isRunning("relay", "consumers", "sagas") ? this.#createLagWatches() : []).map((watch) =>
        asSupervised("consumer lag", watch),
      ),
      ...ifRunning("relay", asSupervised("schedule", mover)),
      asSupervised("notifications", hintListener(this.#parts)),
      ...(this.#ledger === undefined ? [] : [asSupervised("crash ledger", this.#ledger)]),
      stoppingFirst("consumers", consumers),
      // After the consumers: a broker may refuse a command while its consumer has no queue there.
      ...ifRunning("relay", asSupervised("backlog", new Backlog(this.#parts)), asSupervised("relay", relay)),
      ...ifRunning(
        "sagas",
        stoppingFirst("sagas", sagas.runner),
        asSupervised("saga backlog", new SagaBacklog(this.#parts)),
      ),
      asSupervised("subscriptions", {
        start: () => consumers.assertSubscribed(),
        stop: () => Promise.resolve(),
      }),
      stoppingFirst("consumer watch", new ConsumerWatch({ consumers: this.#consumers, observer })),
      ...this.#createHealthServers(options).map((server) => asSupervised("health server", server)),
    ];
  }

  #createHealthServers(options: RunOptions): readonly HealthServer[] {
    const { port = this.#parts.settings.port ?? false, host = this.#parts.settings.host } = options;
    if (port === false) return [];
    const server = new HealthServer({ port, host, ready: () => this.health(), metrics: this.#metrics });
    this.#healthServer = server;
    return [server];
  }

  // Measures every consumer of the service, so that a consumer that runs nowhere is seen too.
  #createLagWatches(): readonly LagWatch[] {
    const { leased: database, settings, transport, observer } = this.#parts;
    const { groups } = describeTopology(this.#parts, this.#registry);
    if (groups.length === 0) return [];
    return [new LagWatch({ database, schema: settings.schema, transport, groups, observer })];
  }

  #createConservationWatch(admin: AdminOperations): ConservationWatch {
    const { database, settings, outbox, observer } = this.#parts;
    const { schema, worker, conservation } = settings;
    const retentions = { deadLetterMs: settings.deadLetterRetentionMs, archiveMs: outbox.retentionMs };
    return new admin.ConservationWatch({ database, schema, worker, observer, retentions, ...conservation });
  }

  async #stop(): Promise<StopResult> {
    const { settings, observer, sender, wakeUp, admission, transport, database, leased, direct } =
      this.#parts;
    const { requests, sagaResults, personalTypes } = this.#parts;
    const beganMs = systemClock.monotonicMs();
    this.#endDrains.abort();
    observer.emit("worker.stopping", { worker: settings.worker });
    // A service that fails to stop must not keep the remaining ones running.
    const stopSafely = async (stop: () => unknown): Promise<void> => {
      try {
        await stop();
      } catch (error) {
        this.#isClean = false;
        if (isSagaboxError(error, "SHUTDOWN_TIMEOUT")) this.#isLate = true;
      }
    };
    const stopAll = async (): Promise<StopResult> => {
      await this.#starting?.catch(() => undefined); // a failed start has stopped its services already
      await Promise.all([
        stopSafely(() => requests.close()),
        stopSafely(() => sagaResults.close()),
        stopSafely(() => this.#supervisor?.stop()),
        stopSafely(() => Promise.allSettled(this.#drains)),
      ]);
      await stopSafely(() => Promise.all([sender.close(), this.#notices.close()]));
      await stopSafely(() => transport.close());
      await stopSafely(() => Promise.all([wakeUp.close(), admission.close(), personalTypes.close()]));
      return this.#isLate ? TIMED_OUT : { clean: this.#isClean };
    };
    const result = await withDeadline(stopAll(), settings.shutdownTimeoutMs, () => TIMED_OUT);
    const databases = direct === leased ? [database] : [database, direct];
    await withDeadline(Promise.all(databases.map((one) => one.close())), 1_000, () => []);
    observer.emit("worker.stopped", {
      worker: settings.worker,
      durationMs: systemClock.monotonicMs() - beganMs,
      clean: result.clean,
    });
    return result;
  }
}

function listContracts(definitions: readonly ConsumerDefinition[]): AnyContract[] {
  return definitions.flatMap(({ handlers }) => Array.from(handlers.values(), ({ contract }) => contract));
}

/** How long the start of the relay and of sagas waits at most for the consumers to subscribe. */
const MAX_SUBSCRIBE_MS = 5_000;

/** Starts and stops all consumers of a worker together. */
class ConsumerStart implements Service {
  readonly #consumers: readonly Consumer[];
  #subscribed: Promise<unknown> | undefined;

  constructor(consumers: readonly Consumer[]) {
    this.#consumers = consumers;
  }

  /** Resolves when all have subscribed, or after a few seconds, so that a slow broker does not keep the sagas waiting. */
  async start(): Promise<void> {
    this.#subscribed = Promise.all(this.#consumers.map((consumer) => consumer.start()));
    await withDeadline(this.#subscribed, MAX_SUBSCRIBE_MS, () => undefined);
  }

  /** Throws if a consumer cannot subscribe, for another reason than a broker that cannot be reached. */
  async assertSubscribed(): Promise<void> {
    await this.#subscribed;
  }

  async stop(): Promise<void> {
    const results = await Promise.allSettled(this.#consumers.map((consumer) => consumer.stop()));
    const failed = results.find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }
}

/** Opens the transport. An unreachable broker does not prevent the start: published messages wait in the outbox. */
async function openTransport(transport: Transport, observer: Observer): Promise<void> {
  try {
    await transport.open();
  } catch (error) {
    if (!isSagaboxError(error, "TRANSPORT_UNREACHABLE")) throw error;
    observer.emit("transport.unreachable", {
      transport: transport.name,
      doing: "opening it",
      error: error.message,
      retryInMs: 1_000,
    });
  }
}

/**
 * Connections that the worker keeps: for LISTEN, reading, settling, failures, optimistic sends, counting, and two spare ones.
 */
const HELD_BY_WORKER = 8;
/** Connections that the worker keeps for each consumer: for reading deliveries, acknowledging and retrying. */
const HELD_BY_CONSUMER = 3;
/**
 * The fewest it can run with, besides one for each consumer and one for a handler: for LISTEN, reading, settling, optimistic
 * sends, and one spare connection.
 */
const MIN_FOR_WORKER = 5;

/**
 * Returns how many pool connections handlers may use at once, at least 1. Each running handler holds one connection. The
 * worker keeps the rest for itself, so handlers cannot deadlock on the pool. Throws OPTIONS_INVALID if the pool is too small.
 */
export function connectionsForHandlers(poolSize: number, consumers: number): number {
  const held = HELD_BY_WORKER + consumers * HELD_BY_CONSUMER;
  if (consumers === 0 || poolSize > MIN_FOR_WORKER + consumers) return Math.max(1, poolSize - held);
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `The pool has ${poolSize} connections, but a worker with ${consumers} consumer(s) needs at least ` +
      `${MIN_FOR_WORKER + consumers + 1}, and works well with more. Set the pool's \`max\` to ${held + 10} or more.`,
  );
}

/** Behind a pooler, handlers have the connections to it for themselves, except for those of optimistic sends and counting. */
const HELD_BEHIND_POOLER = 2;

function countHandlerConnections({ database, direct, settings }: Parts, consumers: number): number {
  const ofDirect = connectionsForHandlers(direct.size, consumers);
  return settings.directUrl === undefined ? ofDirect : Math.max(1, database.size - HELD_BEHIND_POOLER);
}

/** Shorter than `readyDeadlineMs` of the health server, so that its response can still name the failed check. */
const PROBE_MS = 1_500;

/** Checks that the database is writable and migrated. At most one check runs at a time, so a hanging database is not flooded. */
class DatabaseProbe {
  readonly #parts: Pick<Parts, "leased" | "settings">;
  #checking: Promise<string | undefined> | undefined;

  constructor(parts: Pick<Parts, "leased" | "settings">) {
    this.#parts = parts;
  }

  /** Returns why the database is unusable, or undefined if it is usable. */
  findProblem(): Promise<string | undefined> {
    this.#checking ??= this.#check().finally(() => (this.#checking = undefined));
    return withDeadline(this.#checking, PROBE_MS, () => `The database did not answer within ${PROBE_MS} ms.`);
  }

  async #check(): Promise<string | undefined> {
    const { leased, settings } = this.#parts;
    try {
      await assertWritable(leased);
      await assertMigrated(leased, settings.schema);
      return undefined;
    } catch (error) {
      return errorText(error);
    }
  }
}

function chooseParts(parts: readonly WorkerPart[] = workerParts): ReadonlySet<WorkerPart> {
  if (!Array.isArray(parts) || parts.length === 0) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `\`parts\` must be an array with at least one of ${workerParts.map((part) => `"${part}"`).join(", ")}.`,
    );
  }
  return new Set(parts.map((part: unknown) => oneOf("parts", part, workerParts)));
}

const neededRoles: Readonly<Record<WorkerPart, RoleName>> = {
  relay: "relay",
  consumers: "consumer",
  sagas: "saga",
  upkeep: "owner",
};

/** Lists the database roles whose rights these parts need. */
function rolesFor(parts: ReadonlySet<WorkerPart>): readonly RoleName[] {
  return [...parts].map((part) => neededRoles[part]);
}

/** Lists the additional rights that handlers need when they publish. */
function extrasFor({ optimistic, overflow }: OutboxSettings): readonly Extra[] {
  return [
    ...(optimistic ? (["optimistic"] as const) : []),
    ...(overflow === null ? [] : (["overflow"] as const)),
  ];
}

/** Listens to PostgreSQL notifications and wakes the services they concern. */
function hintListener(parts: Parts): Notifications {
  const {
    direct,
    settings,
    channel,
    relay,
    transport,
    tables,
    replies,
    mover,
    sagas,
    sagaResults,
    observer,
  } = parts;
  const local = isLocalTransport(transport) ? transport : tables;
  const onHint = ({ lanes, changed }: Hint): void => {
    if (lanes === undefined) {
      relay.sweepAll();
      replies.wake();
      sagaResults.wake();
      mover.wake();
      sagas.hint();
    } else if (changed) relay.recheck(lanes);
    else relay.hint(lanes);
    local?.hint(lanes, changed);
  };
  return new Notifications({
    database: direct,
    channel,
    keepAliveMs: leasedStatementMs(settings.leaseMs),
    hear: (payload) => {
      const subject = parseErasureNotice(payload);
      if (subject !== undefined) return parts.privacy?.cache.forget(subject);
      if (sagaResults.hear(payload)) return;
      const requestId = parseReplyNotice(payload);
      if (requestId === undefined) onHint(decodeHint(payload));
      else replies.wake(requestId);
    },
    onGap: () => onHint({ lanes: undefined, changed: false }),
    onError: (error) =>
      observer.emit("storage.failed", {
        doing: "listening for hints",
        error: errorText(error),
        retryInMs: 1_000,
      }),
  });
}
