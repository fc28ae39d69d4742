import { assertRights, ConservationWatch } from "../admin/index.ts";
import { Consumer, CrashLedger, type ConsumerDefinition, type HandlerRegistry } from "../inbox/index.ts";
import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import type { Notices } from "../notify/index.ts";
import { Sweeper } from "../privacy/index.ts";
import { Supervisor, systemClock, withDeadline, type SupervisedService } from "../runtime/index.ts";
import { assertMigrated, assertOwnSessions, assertWritable } from "../storage/index.ts";
import type { PrometheusObserver } from "../telemetry/index.ts";
import { isLocalTransport } from "../transport/index.ts";
import { Backlog, sagaBacklog } from "./backlog.ts";
import { auditSealer, auditWatch } from "./bus-audit.ts";
import { eraser } from "./bus-privacy.ts";
import { connectionsForHandlers } from "./connections.ts";
import { ConsumerWatch } from "./consumer-watch.ts";
import { DatabaseProbe } from "./database-health.ts";
import { drainMs } from "./drain-time.ts";
import { HealthServer, type Readiness } from "./health-server.ts";
import { hintListener } from "./hint-listener.ts";
import { openTransport } from "./open-transport.ts";
import { Janitor } from "./janitor.ts";
import type { Parts } from "./parts.ts";
import { Vitals } from "./vitals.ts";
import { topologyOf, type BusTopology } from "./topology.ts";
import type { WorkerPart } from "../options/index.ts";
import { chosenParts, extrasFor, rolesFor } from "./worker-parts.ts";

export interface RunOptions {
  /** Serve /health/live, /health/ready and /metrics here; false for no server. Default: SAGABOX_PORT, else no server. */
  readonly port?: number | false;
  /** Default: SAGABOX_HOST, else "127.0.0.1". */
  readonly host?: string;
  /** Which parts run here, where each has a database role of its own. Default: all of them. */
  readonly parts?: readonly WorkerPart[];
}

export interface Running {
  /** Where health and metrics are served; undefined without a server. */
  readonly port: number | undefined;
}

export interface StopResult {
  readonly clean: boolean;
  /** The time was over before everything had ended; a handler or a local step may have been cut off. */
  readonly timedOut?: true;
}

const TIMED_OUT: StopResult = { clean: false, timedOut: true };

/** Everything of a bus that runs: started in order, stopped in reverse. */
export class Worker {
  readonly #parts: Parts;
  readonly #registry: HandlerRegistry;
  readonly #metrics: PrometheusObserver;
  readonly #notices: Notices;
  readonly #probe: DatabaseProbe;
  #running: ReadonlySet<WorkerPart> = new Set();
  #consumers: Consumer[] = [];
  #ledger: CrashLedger | undefined;
  #healthServer: HealthServer | undefined;
  #supervisor: Supervisor | undefined;
  #starting: Promise<Running> | undefined;
  #stopping: Promise<StopResult> | undefined;
  /** Those that the user named; the others are the sagas' own. */
  #named: ReadonlySet<string> | undefined;
  #sagasListen = false;
  #clean = true;
  #late = false;

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
      this.#starting = undefined; // whoever mended what was wrong may try again
      throw error;
    });
    return this.#starting;
  }

  async #start(options: RunOptions): Promise<Running> {
    const { database, settings, transport, observer, inbox, requests, sagas } = this.#parts;
    this.#running = chosenParts(options.parts);
    this.#clean = true;
    this.#late = false;
    await assertOwnSessions(database);
    await assertMigrated(database, settings.schema);
    await assertWritable(database);
    await assertRights(database, settings.schema, rolesFor(this.#running), extrasFor(this.#parts.outbox));
    if (this.#runs("sagas")) await sagas.registerDefinitions();
    this.#assertNotStopped();
    if (this.#runs("relay", "consumers", "sagas")) await openTransport(transport, observer);
    this.#assertNotStopped();
    const definitions = this.#definitions();
    if (this.#parts.privacy === undefined) this.#tellOfMissingKeys(definitions);
    inbox.slots.limit = connectionsForHandlers(database.size, definitions.length);
    this.#consumers = this.#makeConsumers(definitions);
    const supervisor = new Supervisor({
      services: this.#services(options),
      stopDeadlineMs: settings.shutdownMs,
      onStopTrouble: (_name, error) => {
        this.#clean = false;
        this.#late ||= error === undefined || isSagaboxError(error, "SHUTDOWN_TIMEOUT");
      },
    });
    this.#supervisor = supervisor;
    observer.tell("worker.started", { worker: settings.worker, service: settings.service });
    await supervisor.start();
    if (this.#runs("consumers")) {
      requests.open(() => {
        inbox.slots.limit = connectionsForHandlers(database.size, this.#consumers.length + 1);
      }, this.#ledger);
    }
    return { port: this.#healthServer?.port };
  }

  stop(): Promise<StopResult> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async health(): Promise<Readiness> {
    const { relay, destinations, requests } = this.#parts;
    const checks: Record<string, boolean> = {};
    const reasons: Record<string, string> = {};
    const add = (name: string, isOk: boolean, reason = "unknown"): void => {
      checks[name] = isOk;
      if (!isOk) reasons[name] = reason;
    };
    const database = await this.#probe.trouble();
    add("database", database === undefined, database);
    if (this.#running.size === 0 || this.#runs("relay"))
      add("relay", relay.ready, "it has no lease, or could not renew it");
    for (const consumer of this.#consumers) {
      const { ok, detail } = consumer.health();
      add(`consumer ${consumer.name}`, ok, detail);
    }
    const ok = Object.values(checks).every(Boolean);
    // Told, but it decides nothing: requests time out wherever they are made, and everything else goes on here.
    const asking = requests.health();
    if (asking !== undefined) add(`consumer ${asking.name}`, asking.ok);
    return { ok, checks, reasons, destinations: destinations.states() };
  }

  topology(): BusTopology {
    return topologyOf(this.#parts, this.#registry);
  }

  metricsText(): string {
    return this.#metrics.text();
  }

  #runs(...parts: readonly WorkerPart[]): boolean {
    return parts.some((part) => this.#running.has(part));
  }

  #assertNotStopped(): void {
    if (this.#stopping === undefined) return;
    throw new SagaboxError("BUS_STOPPED", "This bus was stopped. Make a new one with createBus().");
  }

  /** Sagas hear replies and events through consumers of their own, which belong to their part. */
  #definitions(): readonly ConsumerDefinition[] {
    const named = (this.#named ??= new Set(this.#registry.consumers().map(({ name }) => name)));
    if (this.#runs("sagas") && !this.#sagasListen) {
      this.#parts.sagas.listen(this.#registry);
      this.#sagasListen = true;
    }
    this.#registry.close();
    return this.#registry
      .consumers()
      .filter(({ name }) => this.#runs(named.has(name) ? "consumers" : "sagas"));
  }

  #makeConsumers(definitions: readonly ConsumerDefinition[]): Consumer[] {
    const { inbox, transport, settings } = this.#parts;
    // Without handlers, the ledger still tells the consumer of replies when to leave them to other workers of the service.
    const mayReceiveReplies = this.#runs("consumers") && !isLocalTransport(transport);
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
          stopDeadlineMs: drainMs(settings.shutdownMs),
        }),
    );
  }

  // Reading without keys is allowed, but whoever forgot a variable must not learn it from lost effects.
  #tellOfMissingKeys(definitions: readonly ConsumerDefinition[]): void {
    for (const { name: consumer, handlers } of definitions)
      for (const { contract } of handlers.values())
        if (contract.personal !== null)
          this.#parts.observer.tell("consumer.sealed", { consumer, type: contract.name });
  }

  #services(options: RunOptions): SupervisedService[] {
    const { relay, mover, history, depthWatch, sagas, claimCheck, privacy, observer } = this.#parts;
    const named = (name: string, service: SupervisedService["service"]): SupervisedService => ({
      name,
      service,
    });
    const first = (name: string, service: SupervisedService["service"]): SupervisedService => ({
      name,
      service,
      stopsFirst: true,
    });
    const when = (
      part: WorkerPart,
      ...services: readonly SupervisedService[]
    ): readonly SupervisedService[] => (this.#runs(part) ? services : []);
    return [
      named("vitals", new Vitals(this.#parts)),
      ...when(
        "upkeep",
        named("history", history),
        named("janitor", new Janitor(this.#parts)),
        named("audit sealer", auditSealer(this.#parts)),
        named("audit watch", auditWatch(this.#parts)),
        named("conservation", this.#conservation()),
      ),
      ...(privacy === undefined
        ? []
        : when("upkeep", named("sweeper", new Sweeper(eraser(this.#parts, privacy), observer)))),
      ...(claimCheck.collector === undefined ? [] : when("upkeep", named("collector", claimCheck.collector))),
      ...when("relay", named("backlog", new Backlog(this.#parts)), named("relay", relay)),
      ...(depthWatch !== undefined && this.#runs("relay", "consumers", "sagas")
        ? [named("broker depth", depthWatch)]
        : []),
      ...when("relay", named("schedule", mover)),
      named("notifications", hintListener(this.#parts)),
      ...when("sagas", first("sagas", sagas.runner), named("saga backlog", sagaBacklog(this.#parts))),
      ...(this.#ledger === undefined ? [] : [named("crash ledger", this.#ledger)]),
      ...this.#consumers.map((consumer) => first(`consumer ${consumer.name}`, consumer)),
      first("consumer watch", new ConsumerWatch({ consumers: this.#consumers, observer })),
      ...this.#server(options).map((server) => named("health server", server)),
    ];
  }

  #server(options: RunOptions): readonly HealthServer[] {
    const { port = this.#parts.settings.port ?? false, host = this.#parts.settings.host } = options;
    if (port === false) return [];
    const server = new HealthServer({ port, host, ready: () => this.health(), metrics: this.#metrics });
    this.#healthServer = server;
    return [server];
  }

  #conservation(): ConservationWatch {
    const { database, settings, outbox, observer } = this.#parts;
    const { schema, worker, conservation } = settings;
    const retentions = { deadLetterMs: settings.deadLetterMs, archiveMs: outbox.retentionMs };
    return new ConservationWatch({ database, schema, worker, observer, retentions, ...conservation });
  }

  async #stop(): Promise<StopResult> {
    const { settings, observer, sender, wakeUp, admission, transport, database, requests } = this.#parts;
    const began = systemClock.monotonicMs();
    observer.tell("worker.stopping", { worker: settings.worker });
    // One that fails must not keep the rest from being stopped.
    const calmly = async (stop: () => unknown): Promise<void> => {
      try {
        await stop();
      } catch (error) {
        this.#clean = false;
        if (isSagaboxError(error, "SHUTDOWN_TIMEOUT")) this.#late = true;
      }
    };
    const work = async (): Promise<StopResult> => {
      await this.#starting?.catch(() => undefined); // it gives up by itself, or is whole and can be stopped
      await Promise.all([calmly(() => requests.close()), calmly(() => this.#supervisor?.stop())]);
      await calmly(() => Promise.all([sender.close(), this.#notices.close()]));
      await calmly(() => transport.close());
      await calmly(() => Promise.all([wakeUp.close(), admission.close()]));
      return this.#late ? TIMED_OUT : { clean: this.#clean };
    };
    const result = await withDeadline(work(), settings.shutdownMs, () => TIMED_OUT);
    await withDeadline(database.close(), 1_000, () => undefined);
    observer.tell("worker.stopped", {
      worker: settings.worker,
      durationMs: systemClock.monotonicMs() - began,
      clean: result.clean,
    });
    return result;
  }
}
