// For tests of what is built on sagabox: a broker inside the process with switches for what can go wrong, the suite that
// every transport has to pass, stories of sagas without a database, and for sagas on a real one: time that is moved, probes
// that wait, and processes that die at every step.
export {
  exerciseTransport,
  type BrokerDeadLetter,
  type ExerciseOptions,
  type Hook,
  type SkippedCase,
  type TestRunner,
  type TransportUnderTest,
} from "./exercise-transport.ts";
export { MemoryTransport, type MemoryTransportOptions } from "./memory-transport.ts";
export { sagaSpecification, type ScenarioEvents, type SagaScenario } from "./saga-specification.ts";
export type { SagaExpectations } from "./saga-expectations.ts";
export { crashAtEveryStep } from "./crash-at-every-step.ts";
export type { CrashReport, CrashRun, CrashTest } from "./crash-test.ts";
export type { CrashPoint } from "./cuttable-pool.ts";
export { eventually, type ProbeOptions } from "./eventually.ts";
export { sagaEnds, sagaWaitsFor, type SagaEnd } from "./saga-probes.ts";
export {
  timeTraveller,
  type TimeMoved,
  type TimeTraveller,
  type TimeTravellerOptions,
} from "./time-traveller.ts";
