import type { Json } from "../../message/index.ts";
import { rejectUnknownKeys, text, wholeNumber } from "../../options/index.ts";
import {
  decryptText,
  type FieldPath,
  findCipher,
  listSteps,
  newState,
  type SagaState,
  type SagaVault,
  type StepRecord,
} from "../../saga/index.ts";
import { type Incident, listIncidents, type SagaSummary, type SummaryRow, toSummary } from "./list-sagas.ts";
import { notFound, type SagaAdmin } from "./saga-admin.ts";

/** A step of one instance. */
export interface StepDetail {
  /** Its name; that of its group in front, its round behind. */
  readonly step: string;
  readonly status: StepRecord["status"] | "pending";
  /** What is known about its effect. */
  readonly outcome: StepRecord["outcome"] | null;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly durationMs: number | null;
  readonly attempts: number;
  /** When it is tried again, or given up. */
  readonly nextAt: string | null;
  readonly dueAt: string | null;
  readonly error: string | null;
  readonly result: Json | null;
  readonly undo: UndoDetail | null;
}

export interface UndoDetail {
  readonly status: NonNullable<StepRecord["undo"]>["status"];
  readonly startedAt: string;
  readonly endedAt: string | null;
  readonly durationMs: number | null;
  readonly attempts: number;
  readonly error: string | null;
}

/** Everything about one instance. */
export interface SagaDetail extends SagaSummary {
  readonly input: Json;
  readonly direction: SagaState["direction"];
  /** From here on it only goes forward. */
  readonly pivoted: boolean;
  /** Why it turned back. */
  readonly cause: string | null;
  readonly deadlineAt: string | null;
  /** In the order in which they began; those to come last, where the definition is known. */
  readonly steps: readonly StepDetail[];
  /** What a person has to decide. */
  readonly incident: Incident | null;
  readonly children: readonly SagaSummary[];
  /** Number of pending inputs. */
  readonly pendingInputs: number;
  /** As it is kept, for diagrams. */
  readonly state: SagaState;
}

interface DetailRow extends SummaryRow {
  readonly input: string;
  readonly state: string;
  readonly pendingInputs: number;
}

export async function showSaga(admin: SagaAdmin, id: string): Promise<SagaDetail> {
  const { database, sql } = admin;
  const [row] = (await database.run<DetailRow>(sql.showSaga, [String(id)])).rows;
  if (row === undefined) throw notFound(String(id));
  const [incident] = await listIncidents(admin, { sagaId: row.id, open: true, limit: 1 });
  const children = (await database.run<SummaryRow>(sql.children, [row.id])).rows;
  const { input, state } = await readContents(admin, row);
  const { pendingInputs, ...summary } = row;
  return {
    ...toSummary(summary),
    input,
    direction: state.direction,
    pivoted: state.pivoted,
    cause: state.cause ?? null,
    deadlineAt: isoTime(state.deadlineAtMs),
    steps: [...toStepDetails(state), ...listPendingSteps(admin, row, state)],
    incident: incident ?? null,
    children: children.map(toSummary),
    pendingInputs,
    state,
  };
}

// Of a person who was erased, or for whom there is no key here, only the outside of the saga can be shown.
async function readContents(
  { vault }: SagaAdmin,
  row: DetailRow,
): Promise<{ input: Json; state: SagaState }> {
  const seal = await findCipher(vault, row.state);
  if (typeof seal === "string") return { input: `[${seal}]`, state: newState() };
  return {
    input: JSON.parse(decryptText(seal, row.input, row.id, ["input"])) as Json,
    state: JSON.parse(decryptText(seal, row.state, row.id, ["state", row.version])) as SagaState,
  };
}

function toStepDetails({ records }: SagaState): StepDetail[] {
  return Object.entries(records)
    .sort(([, a], [, b]) => a.unit - b.unit || a.startedAtMs - b.startedAtMs)
    .map(([step, record]) => ({
      step,
      status: record.status,
      outcome: record.outcome ?? null,
      startedAt: isoTime(record.startedAtMs),
      endedAt: isoTime(record.endedAtMs),
      durationMs: computeDurationMs(record),
      attempts: record.attempt,
      nextAt: isoTime(record.nextAtMs),
      dueAt: isoTime(record.dueAtMs),
      error: record.error ?? null,
      result: record.result ?? null,
      undo: toUndoDetail(record),
    }));
}

function toUndoDetail({ undo }: StepRecord): UndoDetail | null {
  if (undo === undefined) return null;
  return {
    status: undo.status,
    startedAt: isoTime(undo.startedAtMs) ?? "",
    endedAt: isoTime(undo.endedAtMs),
    durationMs: computeDurationMs(undo),
    attempts: undo.attempt,
    error: undo.error ?? null,
  };
}

// What has not begun is not in the state; only the definition knows it.
function listPendingSteps(
  { definitionOf }: SagaAdmin,
  { type, definitionVersion: version, completedAt }: SummaryRow,
  { records, direction }: SagaState,
): StepDetail[] {
  if (completedAt !== null || direction === "backward") return [];
  const begun = new Set(Object.keys(records).map((stepPath) => stepPath.split("@")[0]));
  return listSteps(definitionOf(type, version)?.nodes ?? [])
    .filter(({ path }) => !begun.has(path))
    .map(({ path }) => ({
      step: path,
      status: "pending",
      outcome: null,
      startedAt: null,
      endedAt: null,
      durationMs: null,
      attempts: 0,
      nextAt: null,
      dueAt: null,
      error: null,
      result: null,
      undo: null,
    }));
}

function computeDurationMs({
  startedAtMs,
  endedAtMs,
}: Pick<StepRecord, "startedAtMs" | "endedAtMs">): number | null {
  return endedAtMs === undefined ? null : Math.max(0, Math.round(endedAtMs - startedAtMs));
}

function isoTime(ms: number | undefined): string | null {
  return ms === undefined ? null : new Date(ms).toISOString();
}

/** One line of the audit log: what happened, what or who caused it. */
export interface HistoryLine {
  readonly id: string;
  readonly at: string;
  /** The transition it belongs to. */
  readonly version: number;
  readonly event: "state_changed" | "step_executed" | "compensated" | "failed" | "noted" | "ignored";
  readonly step: string | null;
  readonly from: string | null;
  readonly to: string | null;
  readonly note: string | null;
  /** A message, the clock, a worker, a child, a person. */
  readonly cause: string;
  /** The person, where it was one. */
  readonly actor: string | null;
  /** Why they did it, on the first line of a transition. */
  readonly reason: string | null;
  readonly traceId: string | null;
  /** What happened, on the first line of a transition. */
  readonly input: Json | null;
  /** The parts of the state that it changed, before it, on the first line of a transition. */
  readonly oldState: Json | null;
  /** The parts of the state that it changed, after it, on the first line of a transition. */
  readonly newState: Json | null;
}

export interface HistoryOptions {
  /** At most this many, oldest first; up to 10,000. Default 1,000. */
  readonly limit?: number;
  /** Only lines behind this one: the last id of the page before. */
  readonly after?: string;
}

interface LineRow extends Omit<HistoryLine, "input" | "oldState" | "newState"> {
  readonly input: string | null;
  readonly oldState: string | null;
  readonly newState: string | null;
}

export async function readSagaHistory(
  { database, sql, vault }: SagaAdmin,
  id: string,
  options: HistoryOptions = {},
): Promise<readonly HistoryLine[]> {
  rejectUnknownKeys("sagas.history", options, ["limit", "after"]);
  const { limit = 1_000, after = "0" } = options;
  wholeNumber("sagas.history: limit", limit, { min: 1, max: 10_000 });
  text("sagas.history: after", after, { pattern: /^\d{1,18}$/ });
  const { rows } = await database.run<LineRow>(sql.history, [String(id), after, limit]);
  if (rows.length === 0 && (await database.run(sql.exists, [String(id)])).rows.length === 0) {
    throw notFound(String(id));
  }
  const lines: HistoryLine[] = [];
  for (const row of rows) lines.push(toHistoryLine(await decryptLine(vault, String(id), row)));
  return lines;
}

// Decrypts the personal parts of an entry, or marks them if the key is missing or erased.
async function decryptLine(vault: SagaVault | undefined, sagaId: string, row: LineRow): Promise<LineRow> {
  const seal = await findCipher(vault, row.input ?? row.note ?? row.newState);
  if (seal === undefined) return row;
  const show = (text: string | null, hidden: (as: string) => string, fieldPath: FieldPath): string | null => {
    if (text === null || !text.startsWith('{"$sealed"')) return text;
    return typeof seal === "string" ? hidden(`[${seal}]`) : decryptText(seal, text, sagaId, fieldPath);
  };
  const asText = (as: string): string => as;
  const { version, cause, event } = row;
  return {
    ...row,
    note: show(row.note, asText, ["note", version]),
    input: show(row.input, JSON.stringify, event === "ignored" ? ["ignored", cause] : ["cause", version]),
    oldState: show(row.oldState, JSON.stringify, ["old_state", version]),
    newState: show(row.newState, JSON.stringify, ["new_state", version]),
  };
}

function toHistoryLine(row: LineRow): HistoryLine {
  return {
    ...row,
    input: parseOrNull(row.input),
    oldState: parseOrNull(row.oldState),
    newState: parseOrNull(row.newState),
  };
}

function parseOrNull(text: string | null): Json | null {
  return text === null ? null : (JSON.parse(text) as Json);
}
