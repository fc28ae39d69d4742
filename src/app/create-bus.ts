import { type BusTransaction, HandlerRegistry } from "../inbox/index.ts";
import { Notices } from "../notify/index.ts";
import {
  describeUnknownVariables,
  environmentOfBus,
  isCommandLine,
  type Environment,
} from "../options/index.ts";
import type { SagaVault } from "../saga/index.ts";
import type { TransactionAdapter } from "../storage/index.ts";
import { fanOut, logger, type Observer, prometheus, sagaLog } from "../telemetry/index.ts";
import { postgres } from "../transports/postgres/index.ts";
import { type BusOptions, type BusSettings, readBusSettings } from "./bus-options.ts";
import { Bus } from "./bus.ts";
import { wireParts } from "./parts.ts";
import { SagaWatch } from "./saga-watch.ts";
import { Worker } from "./worker.ts";

/**
 * Creates a bus from its options, the environment and the defaults. It opens no connection before the first use. Throws
 * one error that lists every invalid option and variable.
 */
export function createBus<Tx extends object>(
  options: BusOptions<Tx> & { readonly transactions: TransactionAdapter<Tx> },
): Bus<Tx>;
export function createBus(options: BusOptions): Bus;
export function createBus<Tx = BusTransaction>(options: BusOptions<Tx>): Bus<Tx> {
  const settings = readBusSettings(options as unknown as BusOptions, environmentOfBus(process.env));
  warnUnknownVariables(process.env);
  const metrics = prometheus();
  const { tracing, observer: telemetryObserver } = options.telemetry ?? {};
  const exporters = telemetryObserver === undefined ? [] : [telemetryObserver];
  const watch = new SagaWatch();
  const reporting = fanOut([metrics, ...logs(settings), ...(options.observers ?? []), ...exporters, watch]);
  const notices = new Notices({ service: settings.service, settings: settings.notices, observer: reporting });
  const observer = fanOut([reporting, notices]);
  const registry = new HandlerRegistry<Tx>(
    settings.routing,
    settings.concurrency === undefined ? {} : { concurrency: settings.concurrency },
  );
  const handlers = registry as unknown as HandlerRegistry; // what runs handlers does not know the type of their transaction
  const parts = wireParts(settings, options.transport ?? postgres(), observer, handlers, { tracing, watch });
  const bus = new Bus<Tx>(parts, registry, new Worker(parts, handlers, metrics, notices));
  return rememberShutdownMs(
    rememberSagaVault(bus, parts.sagas.engine.parts.vault),
    settings.shutdownTimeoutMs,
  );
}

const warned = new Set<string>();

// The command line prints these warnings itself, before it loads the application.
function warnUnknownVariables(env: Environment): void {
  if (isCommandLine()) return;
  for (const problem of describeUnknownVariables(env)) {
    if (warned.has(problem)) continue; // a process may create many buses
    warned.add(problem);
    process.emitWarning(problem, "SagaboxWarning");
  }
}

function logs({ log }: BusSettings): Observer[] {
  if (log === false) return [];
  const { sagas, write, ...others } = log;
  const options = { ...others, ...(write === undefined ? {} : { write }) };
  const stream = sagas === undefined ? [] : [sagaLog({ ...options, write: sagas })];
  return [logger(options), ...stream];
}

const vaults = new WeakMap<object, SagaVault>();

export function rememberSagaVault<B extends object>(bus: B, vault: SagaVault | undefined): B {
  if (vault !== undefined) vaults.set(bus, vault);
  return bus;
}

/** Returns the cipher for saga data of a bus, for other rooms that read its tables; undefined without a key ring. */
export function findSagaVault(bus: object): SagaVault | undefined {
  return vaults.get(bus);
}

const limits = new WeakMap<object, number>();

export function rememberShutdownMs<B extends object>(bus: B, shutdownMs: number): B {
  limits.set(bus, shutdownMs);
  return bus;
}

/** Returns the shutdown timeout of a bus in milliseconds, for callers that wait for its stop; undefined for other objects. */
export function findShutdownMs(bus: object): number | undefined {
  return limits.get(bus);
}
