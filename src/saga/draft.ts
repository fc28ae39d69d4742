import type { Json } from "../message/index.ts";
import { retryDelay } from "../retry/index.ts";
import { pathOf, type SagaDefinition, type Seen, type StepNode, type Undoing } from "./definition.ts";
import type { Change, DecisionPorts, SagaEffect } from "./decision.ts";
import { stepsFor } from "./event-key.ts";
import type { Effort, SagaState, SagaStatus, Snapshot, StepRecord } from "./state.ts";

/** A decision being made: a copy of the state that may be changed, and what follows from the changes. */
export class Draft {
  readonly definition: SagaDefinition;
  readonly snapshot: Snapshot;
  readonly ports: DecisionPorts;
  readonly state: SagaState;
  readonly effects: SagaEffect[] = [];
  readonly changes: Change[] = [];
  status: SagaStatus;

  constructor(definition: SagaDefinition, snapshot: Snapshot, ports: DecisionPorts) {
    this.definition = definition;
    this.snapshot = snapshot;
    this.ports = ports;
    this.state = copyOf(snapshot.state);
    this.status = snapshot.status;
  }

  get nowMs(): number {
    return this.ports.nowMs;
  }

  /** What the functions of the definition see now. */
  seen(): Seen {
    return { input: this.snapshot.input, steps: resultsOf(this.state), sagaId: this.snapshot.id };
  }

  /** The paths of the steps that an event is for. */
  stepsFor(heard: { readonly type: string; readonly data: Json }): ReadonlySet<string> {
    const { definition, snapshot } = this;
    return stepsFor(definition, () => snapshot.key ?? definition.key(snapshot.input), heard);
  }

  note(change: Change): void {
    this.changes.push(change);
  }

  /** The wait before the next try of a step or its undo. */
  delayAfter(step: StepNode, undo: boolean, attempt: number): number {
    return retryDelay(undo ? step.undoRetry : step.retry, attempt, this.ports.random);
  }
}

/** A state is plain data; copied like that it costs a fraction of what a structured clone does. */
function copyOf<T>(value: T): T {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(copyOf) as T;
  const copy: Record<string, unknown> = {};
  for (const key of Object.keys(value)) copy[key] = copyOf((value as Record<string, unknown>)[key]);
  return copy as T;
}

/** Results by name, the latest round of a repeated step winning. */
export function resultsOf(state: SagaState): Record<string, unknown> {
  const results: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  const done = Object.entries(state.records).filter(([, { status }]) => status === "completed");
  for (const [place, { result }] of done.sort(([, a], [, b]) => a.unit - b.unit)) {
    const [name = "", member] = pathOf(place).split(".");
    if (member === undefined) results[name] = result;
    else results[name] = { ...(results[name] as Record<string, Json | undefined>), [member]: result };
  }
  return results;
}

export function newEffort(nowMs: number, epoch = 1): Effort {
  return { epoch, attempt: 1, ids: [], startedAtMs: nowMs };
}

/** No longer waited for, and no longer tried. */
export function end(effort: Effort, nowMs: number, error?: string): void {
  effort.nextAtMs = undefined;
  effort.dueAtMs = undefined;
  effort.endedAtMs = nowMs;
  effort.error = error === undefined ? undefined : storable(error);
}

// Whatever somebody else put into a message: as much as is good to read, and nothing that a database refuses.
const unstorable = /[\0\p{Cs}]/gu;

export function storable(error: string): string {
  return error.slice(0, 1_000).replace(unstorable, "\uFFFD");
}

/** What the undo of a step is told about it. */
export function undoing({ outcome, result }: StepRecord): Undoing {
  return outcome === "done" ? { outcome: "done", result } : { outcome: "unknown" };
}
