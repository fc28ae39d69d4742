import { rejectUnknownKeys, text, wholeNumber } from "../../options/index.ts";
import {
  compareDefinitions,
  decryptText,
  type DefinitionComparison,
  hasEnded,
  type InstanceRow,
  type LoadedInstance,
  openInstance,
  type RecordedTurn,
  replay,
  type Replayed,
  type ReplayValues,
  type SagaInput,
  type SagaStatus,
} from "../../saga/index.ts";
import type { Param } from "../../storage/index.ts";
import type { AdminTransaction } from "../admin-database.ts";
import type { SagaAdmin } from "./saga-admin.ts";

/** An instance whose replay differs from its history (`diverges`), or that cannot continue (`stuck`). */
export interface CheckFinding {
  readonly id: string;
  readonly type: string;
  readonly definitionVersion: number;
  readonly key: string;
  readonly status: SagaStatus;
  readonly verdict: "diverges" | "stuck";
  /** Version of the instance after the first transition that differs. Null if the instance is stuck. */
  readonly version: number | null;
  /** Time of that transition in ISO 8601. */
  readonly at: string | null;
  readonly step: string | null;
  readonly why: string;
}

export interface CheckReport {
  readonly checked: number;
  readonly same: number;
  readonly diverges: number;
  readonly stuck: number;
  /** Ended instances of definition versions that are not registered here. They were not replayed. */
  readonly skipped: number;
  /** Saga names that are not registered here in any version, perhaps of another service. They were not checked. */
  readonly strangers: readonly UnknownSagaType[];
  /** How the definitions that are registered here differ from the stored ones. */
  readonly definitions: readonly DefinitionComparison[];
  /** The first 1,000 instances that diverge or are stuck. */
  readonly findings: readonly CheckFinding[];
}

export interface UnknownSagaType {
  readonly type: string;
  /** How many of its instances have not ended. */
  readonly open: number;
}

export interface CheckOptions {
  /** Checks only sagas of this name. */
  readonly type?: string;
  /** How many ended instances are replayed, newest first. Default 1,000. */
  readonly ended?: number;
}

const PAGE_SIZE = 100;
const MAX_FINDINGS = 1_000;

/**
 * Replays the history of all running instances, and of the newest ended ones, on the definitions that are registered in
 * this process. Changes nothing and runs no steps. Throws OPTIONS_INVALID if an option is invalid.
 */
export async function checkSagas(admin: SagaAdmin, options: CheckOptions = {}): Promise<CheckReport> {
  rejectUnknownKeys("sagas.check", options, ["type", "ended"]);
  const { type, ended = 1_000 } = options;
  if (type !== undefined) text("sagas.check: type", type);
  wholeNumber("sagas.check: ended", ended);
  const counts = { checked: 0, same: 0, diverges: 0, stuck: 0, skipped: 0 };
  const findings: CheckFinding[] = [];
  const countResult = (instance: LoadedInstance, replayed: Replayed | "skipped"): void => {
    if (replayed === "skipped") {
      counts.skipped += 1;
      return;
    }
    counts.checked += 1;
    counts[replayed.verdict] += 1;
    if (replayed.verdict !== "same" && findings.length < MAX_FINDINGS) {
      findings.push(toFinding(instance, replayed));
    }
  };
  await checkPages(admin, { open: true, type, limit: Number.POSITIVE_INFINITY }, countResult);
  await checkPages(admin, { open: false, type, limit: ended }, countResult);
  const strangers = await findUnknownTypes(admin, type);
  return { ...counts, strangers, definitions: await compareKnownDefinitions(admin, type), findings };
}

function compareKnownDefinitions(
  { database, definitions, sagas, vault, known }: SagaAdmin,
  type: string | undefined,
): Promise<readonly DefinitionComparison[]> {
  const selected = known().filter(({ name }) => type === undefined || name === type);
  return compareDefinitions({ database, sql: definitions, sagas, vault }, selected);
}

async function findUnknownTypes(
  { database, sql, names }: SagaAdmin,
  type: string | undefined,
): Promise<readonly UnknownSagaType[]> {
  const params = [JSON.stringify(names()), type ?? null];
  return (await database.run<UnknownSagaType>(sql.strangers, params)).rows.map(({ type: name, open }) => ({
    type: name,
    open,
  }));
}

interface PageSelection {
  readonly open: boolean;
  readonly type: string | undefined;
  readonly limit: number;
}

async function checkPages(
  admin: SagaAdmin,
  { open, type, limit }: PageSelection,
  countResult: (instance: LoadedInstance, replayed: Replayed | "skipped") => void,
): Promise<void> {
  let lastId: string | null = null;
  for (let left = limit; left > 0;) {
    const size = Math.min(PAGE_SIZE, left);
    // One snapshot for instances and histories, because workers may be changing them.
    const tx = await admin.database.begin({ isolation: "repeatable read" });
    try {
      const params: Param[] = [open, type ?? null, lastId, size, JSON.stringify(admin.names())];
      const rows: readonly { id: string }[] = (await tx.run<{ id: string }>(admin.sql.page, params)).rows;
      for (const { id } of rows) await checkInstance(admin, tx, id, countResult);
      if (rows.length < size) return;
      lastId = rows.at(-1)?.id ?? null;
      left -= rows.length;
    } finally {
      await tx.rollback();
    }
  }
}

async function checkInstance(
  { sql, sagas, definitionOf, vault }: SagaAdmin,
  tx: AdminTransaction,
  id: string,
  countResult: (instance: LoadedInstance, replayed: Replayed | "skipped") => void,
): Promise<void> {
  const [row] = (await tx.run<InstanceRow>(sagas.read, [id])).rows;
  if (row === undefined) return;
  const instance = await openInstance(vault, row, tx);
  if (typeof instance === "string") return; // the state cannot be decrypted here
  const definition = definitionOf(instance.type, instance.definitionVersion);
  if (definition === undefined && hasEnded(instance.status)) {
    countResult(instance, "skipped");
    return;
  }
  const turns = toTurns((await tx.run<TurnRow>(sql.turns, [id])).rows, instance);
  countResult(instance, replay(definition, { ...instance, turns }));
}

interface TurnRow {
  readonly version: number;
  readonly event_type: string;
  readonly step: string | null;
  readonly old_status: string | null;
  readonly new_status: string | null;
  readonly input: string | null;
  readonly drawn: string | null;
  readonly at_ms: string | number;
}

// A turn is one transition. It has a row for each history line; the first row holds the input.
function toTurns(rows: readonly TurnRow[], { id, seal }: LoadedInstance): RecordedTurn[] {
  const readJson = (text: string, fieldPath: string, version: number): unknown =>
    JSON.parse(decryptText(seal, text, id, [fieldPath, version]));
  const turns = new Map<number, RecordedTurn>();
  for (const row of rows) {
    const line = { event: row.event_type, step: row.step, from: row.old_status, to: row.new_status };
    const turn = turns.get(row.version);
    if (turn !== undefined) turns.set(row.version, { ...turn, lines: [...turn.lines, line] });
    else if (row.input !== null) {
      turns.set(row.version, {
        version: row.version,
        atMs: Number(row.at_ms),
        input: readJson(row.input, "cause", row.version) as SagaInput,
        drawn: row.drawn === null ? null : (readJson(row.drawn, "metadata", row.version) as ReplayValues),
        lines: [line],
      });
    }
  }
  return [...turns.values()];
}

function toFinding(
  { id, type, definitionVersion, key, status }: LoadedInstance,
  replayed: Exclude<Replayed, { verdict: "same" }>,
): CheckFinding {
  const { verdict, step, why } = replayed;
  const [version, atMs] = verdict === "diverges" ? [replayed.version, replayed.atMs] : [null, null];
  const at = atMs === null ? null : new Date(atMs).toISOString();
  return { id, type, definitionVersion, key, status, verdict, version, at, step, why };
}
