// Sagas: processes of several steps over several services that end completed or compensated. A definition is data, and
// `decide` is a pure function. Each transition writes state, history and commands in one transaction. Replies and events
// arrive through ordinary consumers; the runner finds work that is due without a message (local steps, timeouts).
export { saga, type SagaOptions } from "./define-saga.ts";
export { listSteps, type SagaDefinition } from "./definition.ts";
export { definitionStatements } from "./statements.ts";
export { compareDefinitions, type DefinitionComparison, type UnfitStep } from "./stored-definitions.ts";
export { decide } from "./decide.ts";
export type { Change, Decision, DecisionPorts, SagaEffect } from "./decision.ts";
export { instanceDiagram, instanceTimeline, sagaDiagram, type DrawnInstance } from "./diagram.ts";
export type { ReplayValues } from "./replay-values.ts";
export { otherKey } from "./event-key.ts";
export { forgetSagas, type ForgetSagasOptions } from "./upkeep.ts";
export type { Operator, SagaInput, WorkOutcome } from "./input.ts";
export { measureSagas } from "./upkeep.ts";
export { sagaSettings, type SagaBusOptions, type SagaSettings } from "./options.ts";
export { findStuckSteps, listFailedCommands } from "./operate.ts";
export { localTimeoutMs, timeoutOutcome } from "./local-step.ts";
export type { OpenTransaction } from "./instance-handle.ts";
export type { SagaTransaction } from "./engine.ts";
export { replay, type RecordedLine, type RecordedSaga, type RecordedTurn, type Replayed } from "./replay.ts";
export { openInstance, type InstanceRow, type LoadedInstance } from "./saga-store.ts";
export { keyUnavailable, decryptText, encryptText, findCipher } from "./subject-cipher.ts";
export type { SagaVault, FieldPath } from "./subject-cipher.ts";
export { Sagas, type HasDefinition, type SagasParts } from "./sagas.ts";
export { SagaResults, type ResultOptions, type ResultTarget, type SagaResult } from "./results.ts";
export { sagaStatements } from "./statements.ts";
export {
  hasEnded,
  newState,
  sagaStatuses,
  type SagaState,
  type SagaStatus,
  type Snapshot,
  type StepRecord,
} from "./state.ts";
export type { Started } from "../inbox/index.ts";
export { statusDiagram, statusMoves, type StatusMove } from "./state.ts";
export { listLocalWork, type LocalWork, nextDueMs, waitingFor } from "./timers.ts";
export type {
  Ctx,
  Group,
  NeedsUndo,
  Phase,
  RunCtx,
  Saga,
  StepOptions,
  TxCtx,
  UndoCtx,
  UndoOptions,
  WaitOptions,
} from "./saga-types.ts";
