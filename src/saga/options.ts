import { option, readOptions, type OptionsFrom, type SettingsFrom } from "../options/index.ts";

const DAY_MS = 86_400_000;
/** Ten years. Timers are stored in the database, so Node's timer limit does not apply. */
export const MAX_DURATION_MS = 3_650 * DAY_MS;

export const sagaOptions = {
  /** How many instances one worker runs at once. Default 50. */
  concurrency: option.number({ default: 50, min: 1, max: 10_000 }),
  /** How long an ended instance is kept. Default "30d". */
  retention: option.duration({ default: "30d", min: 60_000, max: MAX_DURATION_MS }),
  /** How long an event is kept for an instance that has not started yet. Default "1d". */
  earlyEvents: option.duration({ default: "1d", min: 1_000, max: MAX_DURATION_MS }),
  /** Maximum time between two polls for due instances. Default "500ms". */
  pollInterval: option.duration({ default: "500ms", min: 1, max: 60_000 }),
  /** Maximum size of the state of one instance, in bytes. Default 1,000,000. */
  maxStateBytes: option.number({ default: 1_000_000, min: 1_000, max: 100_000_000 }),
};

/** Options for all sagas of a bus. */
export interface SagaBusOptions extends OptionsFrom<typeof sagaOptions> {}

export type SagaSettings = SettingsFrom<typeof sagaOptions>;

export function sagaSettings(options: SagaBusOptions = {}): SagaSettings {
  return readOptions("sagas", sagaOptions, options);
}
