import { createHash } from "node:crypto";
import type { Node, SagaDefinition, StepNode } from "./definition.ts";

/** One step, group, branch or repetition of a definition: what the records of an instance depend on. */
export interface StructureEntry {
  /** Its name; that of its group in front. */
  readonly path: string;
  readonly kind: StepNode["work"]["kind"] | "all" | "any" | "branch" | "repeat";
  /** How it is undone: "none" where it is said that nothing is, null where nothing can be. */
  readonly undo: NonNullable<StepNode["undo"]>["kind"] | null;
  readonly pivot: boolean;
  /** The groups, ways of branches and repetitions around it, from the outside to the inside. */
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
      // The order in which ways are written means nothing.
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

/** A hash of the structure. Stored in databases: the same structure must have the same hash in every release. */
export function hashStructure(structure: readonly StructureEntry[]): string {
  const rows = structure.map(({ path, kind, undo, pivot, within }) => [path, kind, undo, pivot, within]);
  return createHash("sha256").update(JSON.stringify(rows)).digest("hex");
}

export interface StructureDifference {
  readonly path: string;
  readonly why: string;
  /** Whether an instance that has a record of this step can continue with the new structure. */
  readonly isSafe: boolean;
}

/** What changed from one structure to another, in the order of the first; what was added comes last. */
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
  return path === undefined ? [] : [{ path, why: "has moved to another place in the order", isSafe: true }];
}
