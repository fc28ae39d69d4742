import { auditFlags } from "../../errors/index.ts";
import { decodeJson, SUBJECT_ERASED } from "../../message/index.ts";
import {
  type Duration,
  flag,
  milliseconds,
  oneOf,
  rejectUnknownKeys,
  text,
  wholeNumber,
} from "../../options/index.ts";
import {
  decryptText,
  findCipher,
  findStuckSteps,
  listFailedCommands,
  type SagaState,
  type SagaStatus,
  sagaStatuses,
} from "../../saga/index.ts";
import { type Param, toArrayLiteral } from "../../storage/index.ts";
import type { SagaAdmin } from "./saga-admin.ts";
import type { FilterName } from "./statements.ts";

/** One instance, as a list shows it. Times are ISO 8601 in UTC. */
export interface SagaSummary {
  readonly id: string;
  readonly type: string;
  /** The version of the definition it began with and ends with. */
  readonly definitionVersion: number;
  /** Its business key. There is one instance for each type and key. */
  readonly key: string;
  readonly status: SagaStatus;
  readonly currentStep: string | null;
  readonly waitsFor: string | null;
  readonly waitingSince: string | null;
  /** How many transitions it has made. */
  readonly version: number;
  readonly lastError: string | null;
  readonly retryCount: number;
  readonly traceId: string;
  /** The correlation id of the message that started it, and of everything it sends. */
  readonly correlationId: string;
  readonly parent: { readonly id: string; readonly step: string } | null;
  /** When a worker must process it next, also without new input. */
  readonly dueAt: string | null;
  readonly claimedBy: string | null;
  readonly claimedUntil: string | null;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly completedAt: string | null;
}

export interface SummaryRow extends Omit<SagaSummary, "parent"> {
  readonly parentId: string | null;
  readonly parentStep: string | null;
}

export function toSummary({ parentId, parentStep, ...rest }: SummaryRow): SagaSummary {
  return { ...rest, parent: parentId === null ? null : { id: parentId, step: parentStep ?? "" } };
}

export interface SagaFilter {
  readonly type?: string;
  readonly status?: SagaStatus;
  /** The step it stands at; without a round, that step in any. */
  readonly step?: string;
  /** The key of the instance. */
  readonly key?: string;
  /** The correlation id that it shares with the messages around it. */
  readonly correlationId?: string;
  /** Only those that started longer ago. */
  readonly olderThan?: Duration | number;
  /** At most this many, newest first; up to 10,000. Default 50. */
  readonly limit?: number;
  /** Only those that started before this one: the last id of the page before. */
  readonly after?: string;
}

/** Ten years, as for the times in definitions. */
export const MAX_AGE_MS = 3_650 * 86_400_000;
const TEXT_KEYS = ["type", "step", "key", "correlationId", "after"] as const;
const KNOWN = [...TEXT_KEYS, "status", "olderThan", "limit"];

/** Instances, newest first. */
export async function listSagas(
  { database, sql }: SagaAdmin,
  filter: SagaFilter = {},
): Promise<readonly SagaSummary[]> {
  rejectUnknownKeys("sagas.list", filter, KNOWN);
  const { limit = 50, status, olderThan } = filter;
  wholeNumber("sagas.list: limit", limit, { min: 1, max: 10_000 });
  const names: FilterName[] = [];
  const params: Param[] = [limit];
  const add = (name: FilterName, value: Param): void => {
    names.push(name);
    params.push(value);
  };
  for (const name of TEXT_KEYS) {
    const value = filter[name];
    if (value !== undefined) add(name, text(`sagas.list: ${name}`, value, { max: 1_000 }));
  }
  if (status !== undefined) add("status", oneOf("sagas.list: status", status, sagaStatuses));
  if (olderThan !== undefined) {
    add("olderThanMs", milliseconds("sagas.list: olderThan", olderThan, { max: MAX_AGE_MS }));
  }
  const { rows } = await database.run<SummaryRow>(sql.listSagas(names), params);
  return rows.map(toSummary);
}

/** Something a person has to decide, or had to. */
export interface Incident {
  readonly id: string;
  readonly sagaId: string;
  readonly type: string;
  readonly key: string;
  /** The steps that failed for good. */
  readonly steps: readonly string[];
  readonly error: string;
  /** Numbers of the open dead letters of the failed commands, in this database. They are discarded with the incident. */
  readonly deadLetters: readonly string[];
  readonly openedAt: string;
  readonly closedAt: string | null;
  /** The status it went to when it was closed. */
  readonly resolution: string | null;
}

export interface IncidentFilter {
  /** True for open ones only, false for closed ones only. Default: open ones. */
  readonly open?: boolean | "both";
  readonly type?: string;
  readonly sagaId?: string;
  /** At most this many, newest first; up to 10,000. Default 50. */
  readonly limit?: number;
  /** Only those older than this one: the last id of the page before. */
  readonly after?: string;
}

interface IncidentRow extends Omit<Incident, "steps" | "deadLetters"> {
  readonly steps: string;
  readonly version: number;
  /** Null if the incident is closed. */
  readonly state: string | null;
}

export async function listIncidents(
  admin: SagaAdmin,
  filter: IncidentFilter = {},
): Promise<readonly Incident[]> {
  rejectUnknownKeys("sagas.incidents", filter, ["open", "type", "sagaId", "limit", "after"]);
  const { open = true, type = null, sagaId = null, limit = 50, after = null } = filter;
  wholeNumber("sagas.incidents: limit", limit, { min: 1, max: 10_000 });
  if (open !== "both") flag("sagas.incidents: open", open);
  if (after !== null) text("sagas.incidents: after", after, { pattern: /^\d{1,18}$/ });
  const params = [limit, open === "both" ? null : open, type, sagaId, after];
  const { rows } = await admin.database.run<IncidentRow>(admin.sql.incidents, params);
  const letters = await findDeadLetters(admin, rows);
  return rows.map(({ id, sagaId, type, key, error, openedAt, closedAt, resolution, ...row }) => ({
    id,
    sagaId,
    type,
    key,
    steps: JSON.parse(row.steps) as string[],
    error,
    deadLetters: letters.get(id) ?? [],
    openedAt,
    closedAt,
    resolution,
  }));
}

/** Finds the open dead letters of each incident. A saga that cannot be decrypted here has none. */
async function findDeadLetters(
  { database, sql, vault }: SagaAdmin,
  incidents: readonly IncidentRow[],
): Promise<ReadonlyMap<string, readonly string[]>> {
  const incidentOf = new Map<string, string>();
  for (const { id, sagaId, version, state: text } of incidents) {
    const seal = text === null ? "closed" : await findCipher(vault, text);
    if (text === null || typeof seal === "string") continue;
    const state = JSON.parse(decryptText(seal, text, sagaId, ["state", version])) as SagaState;
    for (const { ids } of listFailedCommands(state)) for (const command of ids) incidentOf.set(command, id);
  }
  const found = new Map<string, string[]>();
  if (incidentOf.size === 0) return found;
  const params = [toArrayLiteral([...incidentOf.keys()])];
  const { rows } = await database.run<{ id: string; messageId: string }>(sql.openDeadLetters, params);
  for (const { id, messageId } of rows) {
    const incident = incidentOf.get(messageId) ?? "";
    found.set(incident, [...(found.get(incident) ?? []), id]);
  }
  return found;
}

/**
 * `incident`: failed, an operator must decide. `unclaimed`: due, but no worker claims it. `held`: claimed by a worker
 * without progress. `slow`: a reply is overdue.
 */
export type StuckReason = "incident" | "unclaimed" | "held" | "slow";

export interface StuckSaga extends SagaSummary {
  readonly reason: StuckReason;
  readonly why: string;
  readonly whatToDo: string;
}

export interface StuckOptions {
  /** Minimum time without progress. Incidents are always listed. Default "10m". */
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

/** Finds instances that need an operator, each with the reason and what to do. Throws OPTIONS_INVALID. */
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
        whatToDo: `Check the consumer that should reply, and its dead letters. It gives up at ${row.dueAt ?? "no time"}.`,
      };
  }
}

function adviceFor(row: StuckRow): string {
  const { id, type, lastError: error } = row;
  if (error === SUBJECT_ERASED) {
    return `Nothing can be undone without its state. Close it: sagabox privacy end-saga ${id} ${auditFlags("data erased")}`;
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
  const stepPaths = kept === null ? [] : findStuckSteps(kept);
  const failures = stepPaths.map((stepPath) => {
    const mismatch = kept?.mismatches?.[stepPath];
    return mismatch === undefined
      ? stepFailureText(stepPath, kept?.records[stepPath] ?? {})
      : `step ${stepPath}: ${mismatch}`;
  });
  const text = failures.length === 0 ? stepFailureText(step ?? "?", { error }) : failures.join("; ");
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

interface FailedStep {
  readonly error?: string | null | undefined;
  readonly undo?: { readonly status: string; readonly error?: string | null | undefined } | null | undefined;
}

/** Describes the failure of a step or of its undo. */
export function stepFailureText(stepPath: string, { error, undo }: FailedStep): string {
  const [what, why] =
    undo?.status === "failed" ? [`the undo of ${stepPath}`, undo.error] : [`step ${stepPath}`, error];
  return `${what} failed for good: ${why ?? "unknown"}`;
}
