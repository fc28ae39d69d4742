// What sagabox tells about itself: a catalogue of events, the port that rooms speak to, and the sinks that turn
// events into log lines and metrics. Nothing in here knows a message's payload.
export type { TelemetryContext, TelemetryEvents, TelemetryName } from "./events.ts";
export { fanOut, silentObserver, type Observer } from "./observer.ts";
