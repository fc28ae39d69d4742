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

/** An instance for which the definitions given are not what they were. */
export interface CheckFinding {
  readonly id: string;
  readonly type: string;
  readonly definitionVersion: number;
  readonly key: string;
  readonly status: SagaStatus;
  readonly verdict: "diverges" | "stuck";
  /** The transition from which on it differs. */
  readonly version: number | null;
  readonly at: string | null;
  readonly step: string | null;
  readonly why: string;
}

export interface CheckReport {
  readonly checked: number;
  readonly same: number;
  readonly diverges: number;
  readonly stuck: number;
  /** Ended instances of versions that are not known here: nothing is left to be done for them. */
  readonly skipped: number;
  /** Sagas of names that are not known here in any version, perhaps those of another service: none was checked. */
  readonly strangers: readonly UnknownSagaType[];
  /** How the definitions that are known here differ from the stored ones. */
  readonly definitions: readonly DefinitionComparison[];
  /** At most 1,000 of them. */
  readonly findings: readonly CheckFinding[];
}

export interface UnknownSagaType {
  readonly type: string;
  /** How many instances of it have not ended. */
  readonly open: number;
}

export interface CheckOptions {
  readonly type?: string;
  /** How many ended instances are played again, the newest first. All that still run are. Default 1,000. */
  readonly ended?: number;
}

const PAGE = 100;
const MAX_FINDINGS = 1_000;

/**
 * Plays the history of instances again on the definitions this process knows: all that still run, and the newest that
 * have ended. Changes nothing, and runs no step.
 */
export async function checkSagas(admin: SagaAdmin, options: CheckOptions = {}): Promise<CheckReport> {
  rejectUnknownKeys("sagas.check", options, ["type", "ended"]);
  const { type, ended = 1_000 } = options;
  if (type !== undefined) text("sagas.check: type", type);
  wholeNumber("sagas.check: ended", ended);
  const counts = { checked: 0, same: 0, diverges: 0, stuck: 0, skipped: 0 };
  const findings: CheckFinding[] = [];
  const count = (instance: LoadedInstance, replayed: Replayed | "skipped"): void => {
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
  await checkPages(admin, { open: true, type, limit: Number.POSITIVE_INFINITY }, count);
  await checkPages(admin, { open: false, type, limit: ended }, count);
  const strangers = await findUnknownTypes(admin, type);
  return { ...counts, strangers, definitions: await compareKnownDefinitions(admin, type), findings };
}

function compareKnownDefinitions(
  { database, definitions, sagas, vault, known }: SagaAdmin,
  type: string | undefined,
): Promise<readonly DefinitionComparison[]> {
  const asked = known().filter(({ name }) => type === undefined || name === type);
  return compareDefinitions({ database, sql: definitions, sagas, vault }, asked);
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
  count: (instance: LoadedInstance, replayed: Replayed | "skipped") => void,
): Promise<void> {
  let last: string | null = null;
  for (let left = limit; left > 0;) {
    const size = Math.min(PAGE, left);
    // One moment for the instances and their histories: a worker may be moving them.
    const tx = await admin.database.begin({ isolation: "repeatable read" });
    try {
      const params: Param[] = [open, type ?? null, last, size, JSON.stringify(admin.names())];
      const rows: readonly { id: string }[] = (await tx.run<{ id: string }>(admin.sql.page, params)).rows;
      for (const { id } of rows) await checkInstance(admin, tx, id, count);
      if (rows.length < size) return;
      last = rows.at(-1)?.id ?? null;
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
  count: (instance: LoadedInstance, replayed: Replayed | "skipped") => void,
): Promise<void> {
  const [row] = (await tx.run<InstanceRow>(sagas.read, [id])).rows;
  if (row === undefined) return;
  const instance = await openInstance(vault, row, tx);
  if (typeof instance === "string") return; // its state cannot be decrypted here
  const definition = definitionOf(instance.type, instance.definitionVersion);
  if (definition === undefined && hasEnded(instance.status)) {
    count(instance, "skipped");
    return;
  }
  const turns = toTurns((await tx.run<TurnRow>(sql.turns, [id])).rows, instance);
  count(instance, replay(definition, { ...instance, turns }));
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

function toTurns(rows: readonly TurnRow[], { id, seal }: LoadedInstance): RecordedTurn[] {
  const read = (text: string, stepPath: string, version: number): unknown =>
    JSON.parse(decryptText(seal, text, id, [stepPath, version]));
  const turns = new Map<number, RecordedTurn>();
  for (const row of rows) {
    const line = { event: row.event_type, step: row.step, from: row.old_status, to: row.new_status };
    const known = turns.get(row.version);
    if (known !== undefined) turns.set(row.version, { ...known, lines: [...known.lines, line] });
    else if (row.input !== null) {
      turns.set(row.version, {
        version: row.version,
        atMs: Number(row.at_ms),
        input: read(row.input, "cause", row.version) as SagaInput,
        drawn: row.drawn === null ? null : (read(row.drawn, "metadata", row.version) as ReplayValues),
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
