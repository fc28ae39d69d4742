import type { FieldValues, LogLevel, TelemetryEvent } from "./event.ts";
import { consumerEvents, outboxEvents, payloadEvents } from "./message-events.ts";
import { auditEvents, measuredEvents, sagaEvents, workerEvents } from "./worker-events.ts";

/**
 * Every telemetry event. Log lines, metrics, types and docs/reference/telemetry.md follow from it. Names and fields are
 * public API.
 */
export const telemetryEvents = {
  ...auditEvents,
  ...consumerEvents,
  ...sagaEvents,
  ...payloadEvents,
  ...measuredEvents,
  ...outboxEvents,
  ...workerEvents,
};

type Events = typeof telemetryEvents;

/** The fields of every event by its name. Durations are milliseconds. */
export type TelemetryEvents = {
  readonly [Name in keyof Events]: FieldValues<Events[Name]["fields"]>;
};

export type TelemetryName = keyof TelemetryEvents;

/** Present on any event that happens on behalf of one message. */
export interface TelemetryContext {
  readonly traceparent?: string | undefined;
  readonly sagaId?: string | null | undefined;
}

/** Returns the level at which an event is logged; it can depend on the fields. */
export function logLevelFor<Name extends TelemetryName>(
  name: Name,
  fields: TelemetryEvents[Name],
): Exclude<LogLevel, "silent"> {
  const { level, milder } = telemetryEvents[name] as TelemetryEvent;
  return milder?.is(fields) === true ? milder.level : level;
}

/** Returns whether every occurrence of an event is logged. Of other events, similar lines are counted. */
export function isAlwaysLogged(name: TelemetryName): boolean {
  return telemetryEvents[name].always === true;
}
