import { createHash } from "node:crypto";
import { SagaboxError } from "../errors/index.ts";
import { type Queryable, toArrayLiteral } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { definitionStatements, SagaStatements } from "./statements.ts";
import { type Node, type SagaDefinition, type StepNode, stripRound } from "./definition.ts";
import { needsDefinition } from "./mismatch.ts";
import { type InstanceRow, openInstance } from "./saga-store.ts";
import type { SagaVault } from "./subject-cipher.ts";

export interface StoredDefinitionParts {
  readonly database: Queryable;
  readonly sql: ReturnType<typeof definitionStatements>;
  readonly sagas: Pick<SagaStatements, "read">;
  /** Decrypts instances with personal data. Without it they are not compared. */
  readonly vault?: SagaVault | undefined;
}

/** A step that unfinished instances have begun and that the definition cannot continue. */
export interface UnfitStep {
  readonly step: string;
  readonly why: string;
  readonly instances: number;
}

/** How a definition differs from the stored definition of its version. */
export interface DefinitionComparison {
  readonly type: string;
  readonly version: number;
  /** `new`: no definition is stored for this version. */
  readonly verdict: "new" | "same" | "changed";
  readonly differences: readonly string[];
  /** A worker does not start with this definition while there are any. */
  readonly unfitSteps: readonly UnfitStep[];
  /** How many unfinished instances have an unfit step. */
  readonly unfitInstances: number;
}

interface StoredRow {
  readonly type: string;
  readonly version: number;
  readonly hash: string;
  readonly structure: string;
}

interface ComparedDefinition {
  readonly comparison: DefinitionComparison;
  readonly definition: SagaDefinition;
  readonly current: StoredRow;
  readonly stored: StoredRow | undefined;
}

/** Compares definitions with the stored ones and with the records of unfinished instances. Writes nothing. */
export async function compareDefinitions(
  parts: StoredDefinitionParts,
  definitions: readonly SagaDefinition[],
): Promise<readonly DefinitionComparison[]> {
  return (await compareAll(parts, definitions)).map(({ comparison }) => comparison);
}

/**
 * Stores each definition whose version is new, and warns of each that was changed without a new version. Throws
 * SAGA_DEFINITION_CHANGED if unfinished instances have begun steps that a definition cannot continue with; nothing is
 * stored then.
 */
export async function registerDefinitions(
  parts: StoredDefinitionParts,
  definitions: readonly SagaDefinition[],
  observer: Observer,
): Promise<void> {
  let pending = definitions;
  while (pending.length > 0) {
    const compared = await compareAll(parts, pending);
    const refused = compared
      .map(({ comparison }) => comparison)
      .filter(({ unfitSteps }) => unfitSteps.length > 0);
    if (refused.length > 0) throw changedDefinition(refused);
    const overtaken: SagaDefinition[] = [];
    for (const one of compared) {
      const { verdict } = one.comparison;
      if (verdict === "changed") await warnUnfit(parts, one, observer);
      // Another worker may have stored this version meanwhile; compare with its definition.
      else if (verdict === "new" && !(await insertDefinition(parts, one))) overtaken.push(one.definition);
    }
    pending = overtaken;
  }
}

async function compareAll(
  parts: StoredDefinitionParts,
  definitions: readonly SagaDefinition[],
): Promise<readonly ComparedDefinition[]> {
  const names = definitions.map(({ name, version }) => `${name}/${version}`);
  const { rows } = await parts.database.run<StoredRow>(parts.sql.readDefinitions, [toArrayLiteral(names)]);
  const known = new Map(rows.map((row) => [`${row.type}/${row.version}`, row]));
  const compared: ComparedDefinition[] = [];
  for (const definition of definitions) {
    compared.push(await compareOne(parts, definition, known.get(`${definition.name}/${definition.version}`)));
  }
  return compared;
}

async function compareOne(
  parts: StoredDefinitionParts,
  definition: SagaDefinition,
  stored: StoredRow | undefined,
): Promise<ComparedDefinition> {
  const { name: type, version } = definition;
  const structure = describeStructure(definition);
  const hash = hashStructure(structure);
  const current = { type, version, hash, structure: JSON.stringify(structure) };
  const same = { type, version, differences: [], unfitSteps: [], unfitInstances: 0 };
  if (stored?.hash === hash) {
    return { comparison: { ...same, verdict: "same" }, definition, current, stored };
  }
  const before = stored === undefined ? [] : (JSON.parse(stored.structure) as readonly StructureEntry[]);
  const found = stored === undefined ? [] : compareStructures(before, structure);
  const unsafe = new Set(found.filter(({ isSafe }) => !isSafe).map(({ path }) => path));
  const safe = structure.map(({ path }) => path).filter((path) => !unsafe.has(path));
  const unfit = await findUnfit(parts, definition, safe, stored !== undefined);
  const comparison: DefinitionComparison = {
    type,
    version,
    verdict: stored === undefined ? "new" : "changed",
    differences: found.map(({ path, why }) => `"${path}" ${why}`),
    unfitSteps: [...unfit.steps].map(([step, instances]) => ({
      step,
      why: explainStep(step, found),
      instances,
    })),
    unfitInstances: unfit.instances,
  };
  return { comparison, definition, current, stored };
}

function explainStep(step: string, differences: readonly StructureDifference[]): string {
  const found = differences.filter(({ path, isSafe }) => path === step && !isSafe);
  return found.length === 0 ? "is not in the definition" : found.map(({ why }) => why).join(", ");
}

interface Unfit {
  readonly steps: ReadonlyMap<string, number>;
  readonly instances: number;
}

/** The steps that unfinished instances have begun and that are not among the safe ones. */
async function findUnfit(
  parts: StoredDefinitionParts,
  { name, version }: SagaDefinition,
  safe: readonly string[],
  isChanged: boolean,
): Promise<Unfit> {
  const { database, sql } = parts;
  const params = [name, version, toArrayLiteral(safe)];
  const { rows } = await database.run<{ path: string | null; instances: number }>(sql.unfitRecords, params);
  const steps = new Map(rows.flatMap(({ path, instances }) => (path === null ? [] : [[path, instances]])));
  let instances = rows.find(({ path }) => path === null)?.instances ?? 0;
  const isSafe = new Set(safe);
  if (!isChanged) return { steps, instances }; // the first start must not depend on keys
  for await (const paths of encryptedPaths(parts, name, version)) {
    const unfit = [...paths].filter((path) => !isSafe.has(path));
    if (unfit.length > 0) instances += 1;
    for (const path of unfit) steps.set(path, (steps.get(path) ?? 0) + 1);
  }
  return { steps, instances };
}

// The database cannot compare encrypted records. Without keys the comparison stops, because the worker must start
// anyway; it parks an instance that does not fit once it can decrypt it.
async function* encryptedPaths(
  { database, sql, sagas, vault }: StoredDefinitionParts,
  name: string,
  version: number,
): AsyncGenerator<ReadonlySet<string>> {
  if (vault === undefined) return; // without keys this worker moves no encrypted instance
  const { rows } = await database.run<{ id: string }>(sql.encryptedUnfinished, [name, version]);
  for (const { id } of rows) {
    const [row] = (await database.run<InstanceRow>(sagas.read, [id])).rows;
    const instance = row === undefined ? "erased" : await openInstance(vault, row).catch(() => undefined);
    if (instance === undefined) return;
    if (typeof instance === "string") continue;
    const { state } = instance;
    const stepPaths = Object.keys(state.records).filter((stepPath) => needsDefinition(state, stepPath));
    yield new Set(stepPaths.map(stripRound));
  }
}

async function insertDefinition(
  { database, sql }: StoredDefinitionParts,
  { current }: ComparedDefinition,
): Promise<boolean> {
  const { type, version, hash, structure } = current;
  return (await database.run(sql.addDefinition, [type, version, hash, structure])).rows.length > 0;
}

async function warnUnfit(
  { database, sql }: StoredDefinitionParts,
  { comparison, current, stored }: ComparedDefinition,
  observer: Observer,
): Promise<void> {
  const { type, version, differences } = comparison;
  const { rows } = await database.run<{ count: number }>(sql.countUnfinished, [type, version]);
  const unfinished = rows[0]?.count ?? 0;
  observer.emit("saga.definition_changed", {
    type,
    version,
    differences: differences.join("; ").slice(0, 1_000),
    unfinished,
    command: checkCommand(type),
  });
  // No unfinished instance depends on the stored definition.
  if (unfinished > 0 || stored === undefined) return;
  const { hash, structure } = current;
  await database.run(sql.replaceDefinition, [type, version, hash, structure, stored.hash]);
}

function checkCommand(type: string): string {
  return `sagabox saga check --app <module> --type ${type}`;
}

function changedDefinition(refused: readonly DefinitionComparison[]): SagaboxError {
  const [first, ...others] = refused;
  const { type = "", version = 0, unfitSteps = [], unfitInstances = 0 } = first ?? {};
  const steps = unfitSteps.map(
    ({ step, why, instances }) => `step "${step}" ${why} (instances: ${instances})`,
  );
  const more = others.map((one) => `"${one.type}" version ${one.version}`).join(", ");
  return new SagaboxError(
    "SAGA_DEFINITION_CHANGED",
    `Saga "${type}" version ${version} was changed without a new version, and ${unfitInstances} unfinished ` +
      `${unfitInstances === 1 ? "instance has" : "instances have"} begun steps that it lacks: ${steps.join("; ")}. ` +
      `Register the definition as it was under version ${version}, and the changed one alongside it under a higher version. ` +
      `To see the difference: ${checkCommand(type)}` +
      (more === "" ? "" : `. Also changed: ${more}.`),
  );
}

/** One step, group, branch or repetition of a definition: what the records of an instance depend on. */
interface StructureEntry {
  /** The node's name, prefixed with `group.` inside a group. */
  readonly path: string;
  readonly kind: StepNode["work"]["kind"] | "all" | "any" | "branch" | "repeat";
  /** The kind of undo; "none" if noUndo() was called, null if the node cannot have an undo. */
  readonly undo: NonNullable<StepNode["undo"]>["kind"] | null;
  readonly pivot: boolean;
  /** The enclosing groups, branch ways and repetitions, outermost first. */
  readonly within: string;
}

/** The steps of a definition in their order, without functions, schemas, timeouts and retries. */
export function describeStructure({ nodes }: SagaDefinition): readonly StructureEntry[] {
  return nodes.flatMap((node) => listEntries(node, ""));
}

function listEntries(node: Node, within: string): readonly StructureEntry[] {
  const inside = (label: string): string => (within === "" ? label : `${within} > ${label}`);
  const block = (kind: StructureEntry["kind"]): StructureEntry => ({
    path: node.name,
    kind,
    undo: null,
    pivot: false,
    within,
  });
  switch (node.kind) {
    case "step":
      return [stepEntry(node, node.name, within)];
    case "group": {
      const around = inside(`${node.mode} ${node.name}`);
      const members = node.members.map((step) => stepEntry(step, `${node.name}.${step.name}`, around));
      return [block(node.mode), ...members];
    }
    case "branch": {
      // The order of the ways has no meaning.
      const ways = Object.entries(node.ways).sort(([a], [b]) => (a < b ? -1 : 1));
      const steps = ways.flatMap(([way, body]) =>
        body.flatMap((one) => listEntries(one, inside(`branch ${node.name} ${way}`))),
      );
      return [block("branch"), ...steps];
    }
    case "repeat":
      return [
        block("repeat"),
        ...node.body.flatMap((one) => listEntries(one, inside(`repeat ${node.name}`))),
      ];
  }
}

function stepEntry({ work, undo, pivot }: StepNode, path: string, within: string): StructureEntry {
  return { path, kind: work.kind, undo: undo?.kind ?? null, pivot, within };
}

/** Hashes a structure. The hash is stored in databases, so it must be equal in every release. */
export function hashStructure(structure: readonly StructureEntry[]): string {
  const rows = structure.map(({ path, kind, undo, pivot, within }) => [path, kind, undo, pivot, within]);
  return createHash("sha256").update(JSON.stringify(rows)).digest("hex");
}

interface StructureDifference {
  readonly path: string;
  readonly why: string;
  /** Whether an instance that has a record of this step can continue with the new structure. */
  readonly isSafe: boolean;
}

/** Lists the differences between two structures in the order of `before`. Added nodes and order changes come last. */
export function compareStructures(
  before: readonly StructureEntry[],
  after: readonly StructureEntry[],
): readonly StructureDifference[] {
  const now = new Map(after.map((entry) => [entry.path, entry]));
  const then = new Set(before.map(({ path }) => path));
  const changed = before.flatMap((entry) => entryDifferences(entry, now.get(entry.path)));
  const added = after
    .filter(({ path }) => !then.has(path))
    .map(({ path, kind }) => ({ path, why: `was added (${kind})`, isSafe: true }));
  return [...changed, ...added, ...orderDifference(before, after)];
}

function entryDifferences(
  before: StructureEntry,
  after: StructureEntry | undefined,
): readonly StructureDifference[] {
  const { path } = before;
  if (after === undefined) return [{ path, why: `was removed or renamed (${before.kind})`, isSafe: false }];
  const found: StructureDifference[] = [];
  const add = (why: string, isSafe: boolean): void => void found.push({ path, why, isSafe });
  if (before.kind !== after.kind) add(`was of the kind ${before.kind} and is ${after.kind} now`, false);
  if (before.within !== after.within) {
    add(`was ${whereText(before.within)} and is ${whereText(after.within)} now`, false);
  }
  if (before.undo !== after.undo) {
    const hadUndo = before.undo !== null && before.undo !== "none";
    const hasUndo = after.undo !== null && after.undo !== "none";
    add(`had ${undoText(before.undo)} and has ${undoText(after.undo)} now`, hasUndo || !hadUndo);
  }
  if (before.pivot !== after.pivot) add(after.pivot ? "is the pivot now" : "is not the pivot any more", true);
  return found;
}

function whereText(within: string): string {
  return within === "" ? "at the top level" : `inside ${within}`;
}

function undoText(undo: StructureEntry["undo"]): string {
  return undo === null || undo === "none" ? "no undo" : `an undo of the kind ${undo}`;
}

function orderDifference(
  before: readonly StructureEntry[],
  after: readonly StructureEntry[],
): readonly StructureDifference[] {
  const paths = (entries: readonly StructureEntry[], other: readonly StructureEntry[]): readonly string[] => {
    const common = new Set(other.map(({ path }) => path));
    return entries.map(({ path }) => path).filter((path) => common.has(path));
  };
  const now = paths(after, before);
  const moved = paths(before, after).findIndex((path, index) => path !== now[index]);
  const path = now[moved];
  return path === undefined ? [] : [{ path, why: "has moved to another position", isSafe: true }];
}
