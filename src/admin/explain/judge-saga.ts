import type { Moment } from "./explain-message.ts";

/** The state of one saga instance. Times are ISO 8601 in UTC. */
export interface SagaFacts {
  readonly id: string;
  readonly type: string;
  /** Null if the role may not read keys. */
  readonly key: string | null;
  readonly status: string;
  readonly currentStep: string | null;
  readonly waitsFor: string | null;
  readonly waitingSince: string | null;
  readonly lastError: string | null;
  readonly correlationId: string;
  /** When it runs next, also without new input. */
  readonly dueAt: string | null;
  readonly isDue: boolean | null;
  readonly claimedBy: string | null;
  readonly isClaimed: boolean | null;
  readonly createdAt: string;
  readonly completedAt: string | null;
  /** Inputs that have arrived and are not applied yet. */
  readonly pendingInputs: number;
}

/** What happens next to a message or saga, or the command for an operator. */
export interface NextStep {
  /** The type and id of the message or saga. */
  readonly of: string;
  readonly state: string;
  readonly why: string;
  readonly next: string;
}

/** Describes the state of a saga and what happens next. Pure. */
export function judgeSaga(saga: SagaFacts): Omit<NextStep, "of"> {
  const { id, status, completedAt, waitsFor, waitingSince, lastError, dueAt, pendingInputs } = saga;
  const error = lastError === null ? "" : `: ${lastError}`;
  if (completedAt !== null) {
    return { state: status, why: `it ended at ${completedAt}`, next: "Nothing: it has ended." };
  }
  if (status === "failed") {
    const why = `step ${saga.currentStep ?? "?"} failed for good${error}`;
    return { state: status, why, next: `An operator has to decide. See: sagabox saga show ${id}` };
  }
  const waits = `it waits for ${waitsFor ?? "?"} since ${waitingSince ?? saga.createdAt}`;
  const why = waitsFor === null ? `it is at step ${saga.currentStep ?? "?"}${error}` : `${waits}${error}`;
  if (saga.isClaimed === true) {
    return { state: status, why, next: `Worker ${saga.claimedBy ?? "?"} runs it now.` };
  }
  if (saga.isDue === true || pendingInputs > 0) {
    const input = pendingInputs === 0 ? "" : ` with ${pendingInputs} pending inputs`;
    const next = `A worker takes it next${input}. If this stays so, run: sagabox saga stuck`;
    return { state: status, why, next };
  }
  const next = `It goes on with its input${dueAt === null ? "." : `, or at ${dueAt}.`}`;
  return { state: status, why, next };
}

/** One line of the log of a saga. */
export interface SagaLine {
  readonly at: string;
  readonly event: string;
  readonly step: string | null;
  readonly from: string | null;
  readonly to: string | null;
  readonly note: string | null;
}

/** Describes the lines of a saga's log for a timeline. Encrypted notes are left out. Pure. */
export function sagaMoments(lines: readonly SagaLine[]): readonly Moment[] {
  return lines.map(({ at, event, step, from, to, note }) => {
    const change = from === to || to === null ? "" : from === null ? to : `${from} → ${to}`;
    const readable = note === null || note.startsWith("{") ? "" : note;
    const words = [step === null ? "" : `step ${step}`, change === "" ? event.replaceAll("_", " ") : change];
    return { at, what: `${words.filter(Boolean).join(" ")}${readable === "" ? "" : `: ${readable}`}` };
  });
}
