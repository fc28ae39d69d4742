// Checks options and environment variables. A room reads its options once: unknown keys are refused with a suggestion,
// numbers and durations are checked against their bounds, and the result is frozen. Options and variables are declared
// as data, and the reference pages are generated from them.
export { allProblems, Problems } from "./checks.ts";
export {
  callable,
  flag,
  milliseconds,
  oneOf,
  rejectUnknownKeys,
  text,
  wholeNumber,
  type Bounds,
  type Duration,
} from "./checks.ts";
export {
  option,
  type DurationOrMs,
  type Option,
  type OptionsFrom,
  type OptionTable,
  type SettingsFrom,
} from "./option.ts";
export { readOptions, readValues } from "./read-options.ts";
export { findNearest } from "../errors/index.ts";
export { checkEnvironment, readBrokerEnvironment, type BrokerEnvironment } from "./broker-environment.ts";
export { allBrokerVariables, messageFormats, saslMechanisms } from "./broker-variables.ts";
export { isLoopback } from "./loopback.ts";
export { workerParts, type WorkerPart } from "./worker-parts.ts";
export {
  environmentOfBus,
  isCommandLine,
  isGeneralName,
  loadForCommandLine,
  readEnvironment,
  type Environment,
  type EnvironmentOptions,
} from "./environment.ts";
export {
  describeUnknownVariables,
  environmentVariables,
  secretFiles,
  unknownVariables,
  type EnvironmentVariable,
} from "./environment-variables.ts";
