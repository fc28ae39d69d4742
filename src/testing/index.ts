// For tests of what is built on sagabox: a broker inside the process with switches for what can go wrong, the suite that
// every transport has to pass, and stories of sagas without a database.
export {
  exerciseTransport,
  type DeadCopy,
  type ExerciseOptions,
  type Hook,
  type SkippedCase,
  type TestRunner,
  type TransportUnderTest,
} from "./exercise-transport.ts";
export { MemoryTransport, type MemoryTransportOptions } from "./memory-transport.ts";
export { sagaSpecification, type SagaHappenings, type SagaStory } from "./saga-specification.ts";
export type { SagaExpectations } from "./saga-expectations.ts";
