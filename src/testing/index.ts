// Tools for tests of applications and transports: an in-memory transport with switches for faults, the conformance
// suite of transports, saga scenarios without a database, and, for sagas on a real database, probes that wait for a
// state, a time traveller, and crash tests.
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
export type { SagaExpectations } from "./saga-specification.ts";
export { crashAtEveryStep } from "./crash-at-every-step.ts";
export type { CrashReport, CrashRun, CrashTest } from "./crash-at-every-step.ts";
export type { CrashPoint } from "./cuttable-pool.ts";
export { eventually, type ProbeOptions } from "./eventually.ts";
export { sagaEnds, sagaWaitsFor, type SagaEnd } from "./saga-probes.ts";
export {
  timeTraveller,
  type TimeMoved,
  type TimeTraveller,
  type TimeTravellerOptions,
} from "./time-traveller.ts";
