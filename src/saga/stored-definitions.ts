import { SagaboxError } from "../errors/index.ts";
import { toArrayLiteral, type Queryable } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import { stripRound, type SagaDefinition } from "./definition.ts";
import type { definitionStatements } from "./definition-statements.ts";
import { needsDefinition } from "./mismatch.ts";
import { openInstance, type InstanceRow } from "./saga-store.ts";
import type { SagaVault } from "./subject-cipher.ts";
import type { SagaStatements } from "./statements.ts";
import {
  compareStructures,
  hashStructure,
  describeStructure,
  type StructureDifference,
  type StructureEntry,
} from "./structure.ts";

export interface StoredDefinitionParts {
  readonly database: Queryable;
  readonly sql: ReturnType<typeof definitionStatements>;
  readonly sagas: Pick<SagaStatements, "read">;
  /** Opens instances about a person; without it they are not compared. */
  readonly vault?: SagaVault | undefined;
}

/** A step that unfinished instances have begun and that the definition cannot continue with. */
export interface UnfitStep {
  readonly step: string;
  readonly why: string;
  readonly instances: number;
}

/** How a definition differs from the one that is stored for its version. */
export interface DefinitionComparison {
  readonly type: string;
  readonly version: number;
  /** `new`: none is stored. */
  readonly verdict: "new" | "same" | "changed";
  readonly differences: readonly string[];
  /** While there are any, a worker does not start with this definition. */
  readonly unfitSteps: readonly UnfitStep[];
  /** How many unfinished instances have such a step. */
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

/** Compares definitions with those that are stored, and with the records of unfinished instances. Writes nothing. */
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
      // Another worker may have stored one meanwhile: it is the one to compare with.
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
  if (!isChanged) return { steps, instances }; // the first start of all must not depend on keys
  for await (const paths of encryptedPaths(parts, name, version)) {
    const unfit = [...paths].filter((path) => !isSafe.has(path));
    if (unfit.length > 0) instances += 1;
    for (const path of unfit) steps.set(path, (steps.get(path) ?? 0) + 1);
  }
  return { steps, instances };
}

// What is encrypted for a person cannot be compared by the database. Where the keys are not available, the comparison ends:
// a worker must start all the same, and parks an instance that does not fit when it can read it.
async function* encryptedPaths(
  { database, sql, sagas, vault }: StoredDefinitionParts,
  name: string,
  version: number,
): AsyncGenerator<ReadonlySet<string>> {
  if (vault === undefined) return; // without keys none of them is moved here
  const { rows } = await database.run<{ id: string }>(sql.encryptedUnfinished, [name, version]);
  for (const { id } of rows) {
    const [row] = (await database.run<InstanceRow>(sagas.read, [id])).rows;
    const instance = row === undefined ? "erased" : await openInstance(vault, row).catch(() => undefined);
    if (instance === undefined) return;
    if (typeof instance === "string") continue;
    const { state } = instance;
    const places = Object.keys(state.records).filter((place) => needsDefinition(state, place));
    yield new Set(places.map(stripRound));
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
  // Nothing depends on the stored one any more.
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
      `Register the definition as it was under version ${version}, and the changed one beside it under a higher version. ` +
      `To see the difference: ${checkCommand(type)}` +
      (more === "" ? "" : `. The same is true of ${more}.`),
  );
}
