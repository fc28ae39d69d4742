// Checks options and environment variables. A room reads its options once: unknown keys are refused with a suggestion,
// numbers and durations are checked against their bounds, and the result is frozen. Options and variables are declared
// as data, and the reference pages are generated from them.
export { allProblems, inPart, listChecks, refuse, type OptionCheck } from "./checks.ts";
export { milliseconds, type Duration } from "./duration.ts";
export { findNearest } from "../errors/index.ts";
export { callable, flag, oneOf, rejectUnknownKeys, text, wholeNumber, type Bounds } from "./parse-options.ts";
export { readBrokerEnvironment, type BrokerEnvironment } from "./broker-environment.ts";
export { allBrokerVariables, messageFormats } from "./broker-variables.ts";
export { checkEnvironment } from "./check-environment.ts";
export { isLoopback } from "./loopback.ts";
export { workerParts, type WorkerPart } from "./worker-parts.ts";
export { readEnvironment, type Environment, type EnvironmentOptions } from "./environment.ts";
export {
  environmentVariables,
  secretFiles,
  unknownVariables,
  type EnvironmentVariable,
} from "./environment-variables.ts";
