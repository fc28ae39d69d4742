import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { AnyCommand, AnyEvent } from "../message/index.ts";
import type { RetryPolicy } from "../retry/index.ts";
import type { Sql } from "../storage/index.ts";

// A definition after its types were checked: plain data and the user's functions. The fluent words that make one are in
// define-saga.ts; everything that runs, draws or checks a saga reads only this.

/** What every function of a definition sees. */
export interface StepContext {
  readonly input: unknown;
  /** Results by the name of the step; those of a group lie below its name. */
  readonly steps: Readonly<Record<string, unknown>>;
  readonly sagaId: string;
}

/** What a function outside the transaction sees as well. */
export interface RunStepContext extends StepContext {
  /** The same for every attempt at this step. An undo sees that of the step it undoes. */
  readonly idempotencyKey: string;
  readonly signal: AbortSignal;
  readonly attempt: number;
}

export interface TxStepContext extends StepContext {
  readonly tx: Sql;
}

/** What the undo of a step knows about it. */
export interface UndoContext {
  readonly outcome: "done" | "unknown";
  readonly result?: unknown;
}

export type Work =
  | { readonly kind: "send"; readonly command: AnyCommand; readonly data: (seen: StepContext) => unknown }
  | { readonly kind: "run"; readonly work: (seen: RunStepContext) => unknown }
  | { readonly kind: "tx"; readonly work: (seen: TxStepContext) => unknown }
  | {
      readonly kind: "wait";
      readonly event: AnyEvent;
      readonly by: ((data: unknown) => string) | null;
      readonly onTimeout: "fail" | "continue";
    }
  | { readonly kind: "delay"; readonly delayMs: (seen: StepContext) => number }
  | { readonly kind: "child"; readonly saga: SagaDefinition; readonly input: (seen: StepContext) => unknown };

export type Undo =
  | {
      readonly kind: "send";
      readonly command: AnyCommand;
      readonly data: (seen: StepContext & UndoContext) => unknown;
    }
  | { readonly kind: "run"; readonly work: (seen: RunStepContext & UndoContext) => unknown }
  | { readonly kind: "tx"; readonly work: (seen: TxStepContext & UndoContext) => unknown }
  /** A child saga undoes itself. */
  | { readonly kind: "child" }
  | { readonly kind: "none"; readonly reason: string };

export interface StepNode {
  readonly kind: "step";
  readonly name: string;
  readonly work: Work;
  /** Null after the pivot, where nothing is undone. */
  readonly undo: Undo | null;
  readonly pivot: boolean;
  /** Null: no limit. */
  readonly timeoutMs: number | null;
  readonly retry: RetryPolicy;
  readonly undoRetry: RetryPolicy;
}

/** Steps side by side. */
export interface GroupNode {
  readonly kind: "group";
  readonly name: string;
  readonly mode: "all" | "any";
  /** What happens to the others when one of `all` fails: they may finish, or are undone at once. */
  readonly whenOneFails: "finish" | "abandon";
  readonly members: readonly StepNode[];
}

/** One of several ways, chosen once. */
export interface BranchNode {
  readonly kind: "branch";
  readonly name: string;
  readonly choose: (seen: StepContext) => string | null;
  readonly ways: Readonly<Record<string, readonly Node[]>>;
}

export interface RepeatNode {
  readonly kind: "repeat";
  readonly name: string;
  readonly body: readonly Node[];
  readonly until: (seen: StepContext) => boolean;
  readonly maxRounds: number;
}

export type Node = StepNode | GroupNode | BranchNode | RepeatNode;

export interface SagaDefinition {
  readonly name: string;
  readonly version: number;
  readonly input: StandardSchemaV1;
  readonly key: (input: unknown) => string;
  readonly deadlineMs: number | null;
  /** Whose saga it is, where it is about a person: what it holds is sealed then. */
  readonly personal: { readonly subject: (input: unknown) => string } | null;
  readonly nodes: readonly Node[];
}

/** Every step, wherever it stands, with the name it is known by: that of its group comes first. */
export function listSteps(
  nodes: readonly Node[],
): readonly { readonly path: string; readonly step: StepNode }[] {
  return nodes.flatMap((node) => {
    switch (node.kind) {
      case "step":
        return [{ path: node.name, step: node }];
      case "group":
        return node.members.map((step) => ({ path: `${node.name}.${step.name}`, step }));
      case "branch":
        return Object.values(node.ways).flatMap(listSteps);
      case "repeat":
        return listSteps(node.body);
    }
  });
}

/** A node with the number of repetitions around it. */
interface IndexedNode {
  readonly node: Node;
  readonly depth: number;
}

const nodeIndexes = new WeakMap<SagaDefinition, ReadonlyMap<string, IndexedNode>>();

function indexNodes(definition: SagaDefinition): ReadonlyMap<string, IndexedNode> {
  let index = nodeIndexes.get(definition);
  if (index === undefined) {
    index = new Map(listNodes(definition.nodes, 0));
    nodeIndexes.set(definition, index);
  }
  return index;
}

function listNodes(nodes: readonly Node[], depth: number): (readonly [string, IndexedNode])[] {
  return nodes.flatMap((node) => {
    const own = [node.name, { node, depth }] as const;
    switch (node.kind) {
      case "step":
        return [own];
      case "group":
        return [
          own,
          ...node.members.map((step) => [`${node.name}.${step.name}`, { node: step, depth }] as const),
        ];
      case "branch":
        return [own, ...Object.values(node.ways).flatMap((way) => listNodes(way, depth))];
      case "repeat":
        return [own, ...listNodes(node.body, depth + 1)];
    }
  });
}

/** The step at a place. A place is the step's path, followed by `@` and the round where it is repeated. */
export function stepAt(definition: SagaDefinition, place: string): StepNode | undefined {
  const node = indexNodes(definition).get(stripRound(place))?.node;
  return node?.kind === "step" ? node : undefined;
}

/** The step, group, branch or repetition at a place; undefined if the definition repeats it more or less often. */
export function nodeAt(definition: SagaDefinition, place: string): Node | undefined {
  const at = place.indexOf("@");
  const found = indexNodes(definition).get(at === -1 ? place : place.slice(0, at));
  const rounds = at === -1 ? 0 : place.slice(at).split(".").length;
  return found?.depth === rounds ? found.node : undefined;
}

const awaitsEventsCache = new WeakMap<SagaDefinition, boolean>();

/** Whether any step of it waits for an event. */
export function awaitsEvents(definition: SagaDefinition): boolean {
  let hears = awaitsEventsCache.get(definition);
  if (hears === undefined) {
    hears = listSteps(definition.nodes).some(({ step }) => step.work.kind === "wait");
    awaitsEventsCache.set(definition, hears);
  }
  return hears;
}

export function stripRound(place: string): string {
  const at = place.indexOf("@");
  return at === -1 ? place : place.slice(0, at);
}
