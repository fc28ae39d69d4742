import { HandlerRegistry } from "../inbox/index.ts";
import { Notices } from "../notify/index.ts";
import { fanOut, logger, prometheus, sagaLog, type Observer } from "../telemetry/index.ts";
import { postgres } from "../transports/postgres/index.ts";
import { Bus } from "./bus.ts";
import { readBusSettings, type BusOptions, type BusSettings } from "./bus-options.ts";
import { wireParts } from "./parts.ts";
import { rememberSagaVault } from "./saga-vaults.ts";
import { SagaWatch } from "./saga-watch.ts";
import { rememberShutdownMs } from "./shutdown-limits.ts";
import { Worker } from "./worker.ts";

/**
 * Creates a bus from its options, the environment and the defaults. It opens no connection before the first use. Throws
 * one error that lists every invalid option and variable.
 */
export function createBus(options: BusOptions): Bus {
  const settings = readBusSettings(options, process.env);
  const metrics = prometheus();
  const { tracing, observer: telemetryObserver } = options.telemetry ?? {};
  const exporters = telemetryObserver === undefined ? [] : [telemetryObserver];
  const watch = new SagaWatch();
  const reporting = fanOut([metrics, ...logs(settings), ...(options.observers ?? []), ...exporters, watch]);
  const notices = new Notices({ service: settings.service, settings: settings.notices, observer: reporting });
  const observer = fanOut([reporting, notices]);
  const registry = new HandlerRegistry(
    settings.routing,
    settings.concurrency === undefined ? {} : { concurrency: settings.concurrency },
  );
  const parts = wireParts(settings, options.transport ?? postgres(), observer, registry, { tracing, watch });
  const bus = new Bus(parts, registry, new Worker(parts, registry, metrics, notices));
  return rememberShutdownMs(
    rememberSagaVault(bus, parts.sagas.engine.parts.vault),
    settings.shutdownTimeoutMs,
  );
}

function logs({ log }: BusSettings): Observer[] {
  if (log === false) return [];
  const { sagas, write, ...others } = log;
  const options = { ...others, ...(write === undefined ? {} : { write }) };
  const stream = sagas === undefined ? [] : [sagaLog({ ...options, write: sagas })];
  return [logger(options), ...stream];
}
