import {
  decide,
  newState,
  type SagaDefinition,
  type SagaInput,
  type SagaState,
} from "../../src/saga/index.ts";
import { recordPorts } from "../../src/saga/replay-values.ts";
import type { RecordedSaga, RecordedTurn } from "../../src/saga/replay.ts";
import { listHistoryLines } from "../../src/saga/transition.ts";
import type { SagaStatus } from "../../src/saga/index.ts";

/** Something that happens so many milliseconds after the start. What it needs of the state it finds there. */
export type Turn = readonly [atMs: number, input: SagaInput | ((state: SagaState) => SagaInput)];

export const STARTED_MS = 1_767_225_600_000;

/** An instance that lived through these turns, with the history the database would have. */
export function runSaga(definition: SagaDefinition, input: RecordedSaga["input"], turns: readonly Turn[]) {
  let nr = 0;
  let state = newState();
  let status: SagaStatus = "started";
  const recorded: RecordedTurn[] = [];
  for (const [afterMs, given] of [[0, { kind: "start" }] as Turn, ...turns]) {
    const said = typeof given === "function" ? given(state) : given;
    const nowMs = STARTED_MS + afterMs;
    const { ports, drawn } = recordPorts({ nowMs, newId: () => `id-${(nr += 1)}`, random: () => 0.5 });
    const decision = decide(definition, { id: "saga-1", input, parent: null, status, state }, said, ports);
    if (decision.ignored !== undefined) continue;
    ({ state, status } = decision);
    const lines = listHistoryLines(decision.changes).map(({ event, place, from, to }) => ({
      event,
      step: place ?? null,
      from: from ?? null,
      to: to ?? null,
    }));
    recorded.push({ version: recorded.length + 1, atMs: nowMs + 3, input: said, drawn, lines });
  }
  const saga: RecordedSaga = {
    id: "saga-1",
    input,
    parent: null,
    status,
    state,
    version: recorded.length,
    turns: recorded,
  };
  return { ...saga, type: definition.name, key: "o1" };
}

/** A step that ended here. */
export function workInput(
  place: string,
  outcome: Extract<SagaInput, { kind: "worked" }>["outcome"],
  undo = false,
) {
  return ({ records }: SagaState): SagaInput => {
    const effort = undo ? records[place]?.undo : records[place];
    const { epoch = 1, attempt = 1 } = effort ?? {};
    return { kind: "worked", place, undo, epoch, attempt, outcome };
  };
}

/** The reply to the latest command of a step. */
export function replyInput(
  place: string,
  outcome: Extract<SagaInput, { kind: "reply" }>["outcome"],
  undo = false,
) {
  return ({ records }: SagaState): SagaInput => {
    const ids = (undo ? records[place]?.undo?.ids : records[place]?.ids) ?? [];
    return { kind: "reply", requestId: ids.at(-1) ?? "none", outcome };
  };
}
