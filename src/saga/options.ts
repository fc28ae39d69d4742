import { milliseconds, rejectUnknownKeys, wholeNumber, type Duration } from "../options/index.ts";

/** Options for all sagas of a bus. */
export interface SagaBusOptions {
  /** How many instances one worker runs at once. Default 50. */
  readonly concurrency?: number;
  /** How long an ended instance is kept. Default 30 days. */
  readonly retention?: Duration | number;
  /** How long an event is kept for an instance that has not started yet. Default 1 day. */
  readonly earlyEvents?: Duration | number;
  /** Maximum time between two polls for due instances. Default 500 ms. */
  readonly pollInterval?: Duration | number;
  /** Maximum size of the state of one instance, in bytes. Default 1,000,000. */
  readonly maxStateBytes?: number;
}

export interface SagaSettings {
  readonly concurrency: number;
  readonly retentionMs: number;
  readonly earlyMs: number;
  readonly pollMs: number;
  readonly maxStateBytes: number;
}

const DAY_MS = 86_400_000;
/** Ten years. Timers are stored in the database, so Node's timer limit does not apply. */
export const MAX_DURATION_MS = 3_650 * DAY_MS;

export function sagaSettings(options: SagaBusOptions = {}): SagaSettings {
  rejectUnknownKeys("sagas", options, [
    "concurrency",
    "retention",
    "earlyEvents",
    "pollInterval",
    "maxStateBytes",
  ]);
  const { concurrency = 50, retention = 30 * DAY_MS, earlyEvents = DAY_MS, pollInterval = 500 } = options;
  return Object.freeze({
    concurrency: wholeNumber("sagas.concurrency", concurrency, { min: 1, max: 10_000 }),
    retentionMs: milliseconds("sagas.retention", retention, { min: 60_000, max: MAX_DURATION_MS }),
    earlyMs: milliseconds("sagas.earlyEvents", earlyEvents, { min: 1_000, max: MAX_DURATION_MS }),
    pollMs: milliseconds("sagas.pollInterval", pollInterval, { min: 1, max: 60_000 }),
    maxStateBytes: wholeNumber("sagas.maxStateBytes", options.maxStateBytes ?? 1_000_000, {
      min: 1_000,
      max: 100_000_000,
    }),
  });
}
