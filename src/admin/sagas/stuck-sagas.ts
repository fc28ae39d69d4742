import { decodeJson, SUBJECT_ERASED } from "../../message/index.ts";
import { milliseconds, rejectUnknownKeys, text, wholeNumber, type Duration } from "../../options/index.ts";
import { findStuckSteps, type SagaState } from "../../saga/index.ts";
import { stepFailureText } from "./step-failure-text.ts";
import { MAX_AGE_MS } from "./list-sagas.ts";
import type { SagaAdmin } from "./saga-admin.ts";
import { toSummary, type SagaSummary, type SummaryRow } from "./saga-summary.ts";

/**
 * `incident`: failed for good, a person decides. `unclaimed`: something is due and no worker takes it. `held`: a worker
 * has it and does not get on. `slow`: somebody should have answered long ago.
 */
export type StuckReason = "incident" | "unclaimed" | "held" | "slow";

export interface StuckSaga extends SagaSummary {
  readonly reason: StuckReason;
  readonly why: string;
  readonly whatToDo: string;
}

export interface StuckOptions {
  /** For how long nothing must have happened. Incidents are told at once. Default "10m". */
  readonly olderThan?: Duration | number;
  readonly type?: string;
  /** At most this many, the most urgent first; up to 10,000. Default 100. */
  readonly limit?: number;
}

interface StuckRow extends SummaryRow {
  readonly reason: StuckReason;
  /** Since when something is due or has come: never in the future. */
  readonly overdueSince: string | null;
  /** Of those that failed. */
  readonly state: string | null;
}

/** Instances that do not get on by themselves, each with the reason and what to do about it. */
export async function findStuckSagas(
  admin: SagaAdmin,
  options: StuckOptions = {},
): Promise<readonly StuckSaga[]> {
  rejectUnknownKeys("sagas.stuck", options, ["olderThan", "type", "limit"]);
  const { olderThan = "10m", type, limit = 100 } = options;
  const olderThanMs = milliseconds("sagas.stuck: olderThan", olderThan, { max: MAX_AGE_MS });
  wholeNumber("sagas.stuck: limit", limit, { min: 1, max: 10_000 });
  if (type !== undefined) text("sagas.stuck: type", type);
  const { rows } = await admin.database.run<StuckRow>(admin.sql.stuck, [olderThanMs, type ?? null, limit]);
  return rows.map(({ reason, overdueSince, state, ...summary }) => ({
    ...toSummary(summary),
    reason,
    ...explainStuck(admin, { ...summary, reason, overdueSince, state }),
  }));
}

function explainStuck(admin: SagaAdmin, row: StuckRow): Pick<StuckSaga, "why" | "whatToDo"> {
  const { type, definitionVersion: version } = row;
  switch (row.reason) {
    case "incident":
      return {
        why: failuresText(row),
        whatToDo: adviceFor(row),
      };
    case "unclaimed":
      return unclaimedText(admin, row, `${type} version ${version}`);
    case "held":
      return {
        why: `Worker ${row.claimedBy ?? "?"} has had it since before ${row.overdueSince ?? "?"} without getting on.`,
        whatToDo: "Look at that worker. If it hangs, stop it: another one takes over when its lease is over.",
      };
    case "slow":
      return {
        why: `Nothing has happened since ${row.updatedAt}; it waits for ${row.waitsFor ?? "?"}.`,
        whatToDo: `Look at whoever should answer: its consumer, its dead letters. It gives up at ${row.dueAt ?? "no time"}.`,
      };
  }
}

function adviceFor(row: StuckRow): string {
  const { id, type, lastError: error } = row;
  if (error === SUBJECT_ERASED) {
    return `Nothing can be undone without its state. Close it: sagabox privacy end-saga ${id} --reason …`;
  }
  if (readState(row)?.mismatches !== undefined) {
    return (
      "Run a worker with the definition that it began with and retry; or skip the step; or cancel the saga. " +
      `See what changed: sagabox saga check --app <module> --type ${type}`
    );
  }
  return `Repair the cause and retry; or do it by hand and settle it; or skip it. See: sagabox saga show ${id}`;
}

function readState({ state }: StuckRow): SagaState | null {
  const isReadable = state !== null && !state.startsWith('{"$sealed"');
  return isReadable ? (decodeJson(state) as unknown as SagaState) : null;
}

function failuresText(row: StuckRow): string {
  const { currentStep: step, lastError: error } = row;
  const kept = readState(row);
  const places = kept === null ? [] : findStuckSteps(kept);
  const told = places.map((place) => {
    const mismatch = kept?.mismatches?.[place];
    return mismatch === undefined
      ? stepFailureText(place, kept?.records[place] ?? {})
      : `step ${place}: ${mismatch}`;
  });
  const text = told.length === 0 ? stepFailureText(step ?? "?", { error }) : told.join("; ");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}

function unclaimedText(
  { definitionOf }: SagaAdmin,
  { type, definitionVersion: version, overdueSince: since }: StuckRow,
  name: string,
): Pick<StuckSaga, "why" | "whatToDo"> {
  const known = definitionOf(type, version) !== undefined;
  return {
    why: `Something has been due since ${since ?? "?"}, and no worker has taken it.${known ? "" : ` Perhaps none knows ${name}.`}`,
    whatToDo: `Run a worker that registers ${name}, and look whether workers reach the database.`,
  };
}
