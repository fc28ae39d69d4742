import type { Json } from "../../message/index.ts";
import {
  newState,
  decryptText,
  findCipher,
  listSteps,
  type SagaState,
  type StepRecord,
} from "../../saga/index.ts";
import { listIncidents, type Incident } from "./incidents.ts";
import { notFound, type SagaAdmin } from "./saga-admin.ts";
import { toSummary, type SagaSummary, type SummaryRow } from "./saga-summary.ts";

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
  /** How many things came for it that nobody has taken up yet. */
  readonly waitingMail: number;
  /** As it is kept, for diagrams. */
  readonly state: SagaState;
}

interface DetailRow extends SummaryRow {
  readonly input: string;
  readonly state: string;
  readonly mail: number;
}

export async function showSaga(admin: SagaAdmin, id: string): Promise<SagaDetail> {
  const { database, sql } = admin;
  const [row] = (await database.run<DetailRow>(sql.showSaga, [String(id)])).rows;
  if (row === undefined) throw notFound(String(id));
  const [incident] = await listIncidents(admin, { sagaId: row.id, open: true, limit: 1 });
  const children = (await database.run<SummaryRow>(sql.children, [row.id])).rows;
  const { input, state } = await readContents(admin, row);
  const { mail, ...summary } = row;
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
    waitingMail: mail,
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
  const begun = new Set(Object.keys(records).map((place) => place.split("@")[0]));
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
