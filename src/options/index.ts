// Friendly values in, checked values out. A room reads its options once, on entry: unknown keys are refused with a
// suggestion, numbers and durations are held to their bounds, and the room keeps the frozen result. Settings may
// also come from the environment; the table of variables is data, so the documentation is made from it.
export { allProblems, inPart, listChecks, refuse, type OptionCheck } from "./checks.ts";
export { milliseconds, type Duration } from "./duration.ts";
export { findNearest } from "../errors/index.ts";
export { callable, flag, oneOf, rejectUnknownKeys, text, wholeNumber, type Bounds } from "./parse-options.ts";
export { readBrokerEnvironment, type BrokerEnvironment } from "./broker-environment.ts";
export { allBrokerVariables, messageFormats } from "./broker-variables.ts";
export { checkEnvironment } from "./check-environment.ts";
export { workerParts, type WorkerPart } from "./worker-parts.ts";
export { readEnvironment, type Environment, type EnvironmentOptions } from "./environment.ts";
export {
  environmentVariables,
  secretFiles,
  unknownVariables,
  type EnvironmentVariable,
} from "./environment-variables.ts";
