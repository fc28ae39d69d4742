import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { BusTransaction } from "../inbox/index.ts";
import type { AnyCommand, AnyEvent } from "../message/index.ts";
import type { RetryPolicy } from "../retry/index.ts";

// A saga definition as plain data plus the user's functions. The builder is in define-saga.ts; everything that runs,
// draws or checks a saga reads only these types.

/** Argument of every function in a definition. */
export interface StepContext {
  readonly input: unknown;
  /** Results by step name. The results of a group are nested under the group's name. */
  readonly steps: Readonly<Record<string, unknown>>;
  readonly sagaId: string;
}

/** Argument of a `run` function, which runs outside the transaction. */
export interface RunStepContext extends StepContext {
  /** Equal for all attempts at this step, and for its undo. */
  readonly idempotencyKey: string;
  readonly signal: AbortSignal;
  readonly attempt: number;
}

export interface TxStepContext extends StepContext {
  readonly tx: BusTransaction;
  readonly publish: BusTransaction["publish"];
  readonly start: BusTransaction["start"];
}

/** What an undo function knows about the step it undoes. */
export interface UndoContext {
  readonly outcome: "done" | "unknown";
  readonly result?: unknown;
}

export type Work =
  | { readonly kind: "send"; readonly command: AnyCommand; readonly data: (seen: StepContext) => unknown }
  | { readonly kind: "run"; readonly work: (seen: RunStepContext) => unknown }
  | {
      readonly kind: "tx";
      readonly work: (seen: TxStepContext) => unknown;
      /** Set for a step that only publishes this event. */
      readonly publishes?: AnyEvent;
    }
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
  | {
      readonly kind: "tx";
      readonly work: (seen: TxStepContext & UndoContext) => unknown;
      /** Set for an undo that only publishes this event. */
      readonly publishes?: AnyEvent;
    }
  /** The child saga is compensated. */
  | { readonly kind: "child" }
  | { readonly kind: "none"; readonly reason: string };

export interface StepNode {
  readonly kind: "step";
  readonly name: string;
  readonly work: Work;
  /** Null after the pivot, where steps are never undone. */
  readonly undo: Undo | null;
  readonly pivot: boolean;
  /** Null means no timeout. */
  readonly timeoutMs: number | null;
  readonly retry: RetryPolicy;
  readonly undoRetry: RetryPolicy;
}

/** Steps that run in parallel. */
export interface GroupNode {
  readonly kind: "group";
  readonly name: string;
  readonly mode: "all" | "any";
  /** When one member of `all` fails, the others finish first (`finish`) or are undone at once (`abandon`). */
  readonly whenOneFails: "finish" | "abandon";
  readonly members: readonly StepNode[];
}

/** A branch with several ways. The choice is made once and stored. */
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
  /** Names the data subject, with whose key the instance is encrypted. Null if the saga holds no personal data. */
  readonly personal: { readonly subject: (input: unknown) => string } | null;
  /** The library whose transactions its `tx` steps use. Null for a `BusTransaction`. */
  readonly library: string | null;
  readonly nodes: readonly Node[];
}

/** Every step at any depth with its path: the step's name, prefixed with `group.` inside a group. */
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

/** A node and the number of repetitions that enclose it. */
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

/** The step at a step path. Inside a repetition the path ends with `@` and the round, like `charge@2`. */
export function stepAt(definition: SagaDefinition, stepPath: string): StepNode | undefined {
  const node = indexNodes(definition).get(stripRound(stepPath))?.node;
  return node?.kind === "step" ? node : undefined;
}

/** The node at a step path. Undefined if the definition nests it in a different number of repetitions. */
export function nodeAt(definition: SagaDefinition, stepPath: string): Node | undefined {
  const at = stepPath.indexOf("@");
  const found = indexNodes(definition).get(at === -1 ? stepPath : stepPath.slice(0, at));
  const rounds = at === -1 ? 0 : stepPath.slice(at).split(".").length;
  return found?.depth === rounds ? found.node : undefined;
}

const awaitsEventsCache = new WeakMap<SagaDefinition, boolean>();

/** Whether any step of the saga waits for an event. */
export function awaitsEvents(definition: SagaDefinition): boolean {
  let awaits = awaitsEventsCache.get(definition);
  if (awaits === undefined) {
    awaits = listSteps(definition.nodes).some(({ step }) => step.work.kind === "wait");
    awaitsEventsCache.set(definition, awaits);
  }
  return awaits;
}

export function stripRound(stepPath: string): string {
  const at = stepPath.indexOf("@");
  return at === -1 ? stepPath : stepPath.slice(0, at);
}
