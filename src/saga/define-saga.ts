import type { StandardSchemaV1 } from "@standard-schema/spec";
import { SagaboxError } from "../errors/index.ts";
import type { BusTransaction } from "../inbox/index.ts";
import type { AnyCommand, AnyEvent, InputFor, InputSafe, WireOf } from "../message/index.ts";
import { type Duration, milliseconds, rejectUnknownKeys, wholeNumber } from "../options/index.ts";
import { retryPolicy, type RetryPolicy } from "../retry/index.ts";
import type { TransactionAdapter } from "../storage/index.ts";
import {
  type GroupNode,
  listSteps,
  type Node,
  type SagaDefinition,
  type StepContext,
  type StepNode,
  type TxStepContext,
  type Undo,
  type UndoContext,
  type Work,
} from "./definition.ts";
import { MAX_DURATION_MS } from "./options.ts";
import type { GroupOptions, None, Saga, StepOptions, UndoOptions, WaitOptions } from "./saga-types.ts";

export interface SagaOptions<T extends StandardSchemaV1, Tx = BusTransaction> {
  /** Raise it when the steps change. An instance finishes on the version it began with. */
  readonly version: number;
  readonly input: T;
  /**
   * Identifies the instance: a second start with an equal key returns the first instance. Reads the input in the form in
   * which it is stored.
   */
  readonly key: (input: WireOf<T>) => string;
  /** An instance that has not reached its pivot within this time is compensated. Default: no deadline. */
  readonly deadline?: Duration | number;
  /** Names the data subject. Input, state and history of the instance are encrypted with the subject's key. */
  readonly personal?: { readonly subject: (input: WireOf<T>) => string };
  /** The library whose transactions `tx` steps use. It must be the one of the bus. Default: `tx` is a `BusTransaction`. */
  readonly transactions?: TransactionAdapter<Tx>;
}

/**
 * Defines a saga step by step. The result is data, so it can be drawn, checked, versioned and replayed without running
 * it. Throws SAGA_INVALID if a name, option or step is not valid.
 */
export function saga<const T extends StandardSchemaV1, Tx = BusTransaction>(
  name: string,
  options: SagaOptions<T, Tx> & InputSafe<T>,
): Saga<InputFor<T>, None, "undoable", Tx> {
  const where = `saga "${name}"`;
  rejectUnknownKeys(where, options, ["version", "input", "key", "deadline", "personal", "transactions"]);
  const { version, input, key, deadline, personal, transactions } = options as SagaOptions<T, Tx>;
  if (personal !== undefined && typeof personal?.subject !== "function") {
    throw invalid(where, "needs `subject` in `personal`, a function of its input");
  }
  if (typeof key !== "function") throw invalid(where, "needs `key`, a function of its input");
  if (input?.["~standard"] === undefined) throw invalid(where, "needs `input`, a Standard Schema");
  const definition: SagaDefinition = {
    name,
    version: wholeNumber(`${where}.version`, version, { min: 1, max: 1_000_000 }),
    input,
    key: (value) => key(value as WireOf<T>),
    deadlineMs:
      deadline === undefined
        ? null
        : milliseconds(`${where}.deadline`, deadline, { min: 1, max: MAX_DURATION_MS }),
    personal: personal === undefined ? null : { subject: (value) => personal.subject(value as WireOf<T>) },
    library: transactions?.name ?? null,
    nodes: [],
  };
  return new SagaBuilder(definition) as unknown as Saga<InputFor<T>, None, "undoable", Tx>;
}

type BuilderMode = { readonly inside: boolean; readonly forward: boolean };

/** Untyped implementation of `Saga`. Every method returns a new builder. */
class SagaBuilder {
  readonly definition: SagaDefinition;
  readonly #forward: boolean;

  constructor(
    definition: SagaDefinition,
    { inside, forward }: BuilderMode = { inside: false, forward: false },
  ) {
    checkDefinition(definition);
    this.definition = definition;
    this.#forward = forward;
    this.#inside = inside;
  }

  readonly #inside: boolean;

  send(
    name: string,
    command: AnyCommand,
    data: (seen: StepContext) => unknown,
    options: StepOptions = {},
  ): unknown {
    return this.#step(name, { kind: "send", command, data }, options);
  }

  run(name: string, work: Extract<Work, { kind: "run" }>["work"], options: StepOptions = {}): unknown {
    return this.#step(name, { kind: "run", work }, options);
  }

  tx(name: string, work: Extract<Work, { kind: "tx" }>["work"], options: StepOptions = {}): unknown {
    return this.#step(name, { kind: "tx", work }, options);
  }

  publish(
    name: string,
    event: AnyEvent,
    data: (seen: StepContext) => unknown,
    options: StepOptions = {},
  ): unknown {
    return this.#step(name, publishWork(this.#describePath(name), event, data), options);
  }

  child(
    name: string,
    saga: { definition: SagaDefinition },
    input: (seen: StepContext) => unknown,
    options: StepOptions = {},
  ): unknown {
    return this.#step(name, { kind: "child", saga: saga.definition, input }, options);
  }

  waitFor(
    name: string,
    event: AnyEvent,
    options: WaitOptions & { by?: (data: unknown) => string },
  ): SagaBuilder {
    const { by = null, onTimeout = "fail", timeout } = options;
    const work: Work = { kind: "wait", event, by, onTimeout };
    return this.#addNode(stepNode(this.#describePath(name), name, work, { timeout }, this.#forward, null));
  }

  delay(name: string, time: Duration | number | ((seen: StepContext) => Duration | number)): SagaBuilder {
    const where = this.#describePath(name);
    const timeFor = typeof time === "function" ? time : () => time;
    if (typeof time !== "function") milliseconds(where, time, { max: MAX_DURATION_MS });
    const work: Work = {
      kind: "delay",
      delayMs: (seen) => milliseconds(where, timeFor(seen), { max: MAX_DURATION_MS }),
    };
    return this.#addNode(stepNode(where, name, work, {}, this.#forward, null));
  }

  all(name: string, group: (g: unknown) => unknown, options: GroupOptions = {}): SagaBuilder {
    rejectUnknownKeys(this.#describePath(name), options, ["whenOneFails"]);
    return this.#group(name, "all", group, options.whenOneFails ?? "finish");
  }

  any(name: string, group: (g: unknown) => unknown): SagaBuilder {
    return this.#group(name, "any", group, "finish");
  }

  when(
    name: string,
    test: (seen: StepContext) => boolean,
    then: (s: SagaBuilder) => SagaBuilder,
  ): SagaBuilder {
    return this.#addNode({
      kind: "branch",
      name,
      choose: (seen) => (test(seen) ? "taken" : null),
      ways: { taken: this.#buildBlock(then) },
    });
  }

  choose(
    name: string,
    which: (seen: StepContext) => string | null,
    ways: Readonly<Record<string, (s: SagaBuilder) => SagaBuilder>>,
  ): SagaBuilder {
    const nested = Object.entries(ways).map(([way, steps]) => [way, this.#buildBlock(steps)] as const);
    return this.#addNode({ kind: "branch", name, choose: which, ways: Object.fromEntries(nested) });
  }

  repeat(
    name: string,
    body: (s: SagaBuilder) => SagaBuilder,
    until: (seen: StepContext) => boolean,
    { max }: { readonly max: number },
  ): SagaBuilder {
    const maxRounds = wholeNumber(`${this.#describePath(name)}.max`, max, { min: 1, max: 10_000 });
    return this.#addNode({ kind: "repeat", name, body: this.#buildBlock(body), until, maxRounds });
  }

  #group(
    name: string,
    mode: GroupNode["mode"],
    group: (g: unknown) => unknown,
    whenOneFails: GroupNode["whenOneFails"],
  ): SagaBuilder {
    const members = groupMembers(this.#describePath(name), this.#forward, group);
    return this.#addNode({ kind: "group", name, mode, whenOneFails, members });
  }

  // A nested builder starts with the nodes so far, so that it can reject duplicate names.
  #buildBlock(block: (s: SagaBuilder) => SagaBuilder): readonly Node[] {
    const before = this.definition.nodes;
    const built = block(new SagaBuilder(this.definition, { inside: true, forward: this.#forward }));
    return built.definition.nodes.slice(before.length);
  }

  #step(name: string, work: Work, options: StepOptions): unknown {
    const where = this.#describePath(name);
    const addStep = (undo: Undo | null, pivot = false, undoOptions: UndoOptions = {}): SagaBuilder => {
      const node = stepNode(where, name, work, options, this.#forward || pivot, undo);
      return this.#addNode({ ...node, pivot, undoRetry: undoRetry(where, undoOptions) }, pivot);
    };
    if (this.#forward) return addStep(null);
    return {
      undo: (...args: unknown[]) => {
        const { undo, options: undoOptions } = undoFrom(where, work, args);
        return addStep(undo, false, undoOptions);
      },
      undoChild: () => addStep({ kind: "child" }),
      noUndo: (reason: string) => {
        if (typeof reason !== "string" || reason.trim() === "") throw invalid(where, "noUndo needs a reason");
        return addStep({ kind: "none", reason });
      },
      pivot: () => {
        if (this.#inside) throw invalid(where, "a pivot must not be inside a branch or a repetition");
        return addStep(null, true);
      },
    };
  }

  #addNode(node: Node | StepNode, pivot = false): SagaBuilder {
    const definition = { ...this.definition, nodes: [...this.definition.nodes, node] };
    return new SagaBuilder(definition, { inside: this.#inside, forward: this.#forward || pivot });
  }

  #describePath(name: string): string {
    return `saga "${this.definition.name}", step "${name}"`;
  }
}

function invalid(where: string, what: string): SagaboxError {
  return new SagaboxError("SAGA_INVALID", `${where}: ${what}.`);
}

const NAME = /^[A-Za-z][A-Za-z0-9_-]{0,99}$/;
const MAX_STEPS = 500;

/**
 * Checks what the types cannot, or what a JavaScript caller got wrong. Throws SAGA_INVALID at the first mistake.
 * Reachability needs no check: no builder method ends a saga or skips steps, so every step after a block is reached
 * once the block is done. Empty blocks are rejected.
 */
function checkDefinition({ name, nodes, personal }: SagaDefinition): void {
  if (!NAME.test(name)) throw definitionError(`saga "${name}"`, "its name", NAME_RULE);
  const names = new Set<string>();
  checkNames(name, nodes, names);
  const steps = listSteps(nodes);
  if (steps.length > MAX_STEPS)
    throw definitionError(`saga "${name}"`, "it", `has more than ${MAX_STEPS} steps`);
  for (const { path, step } of steps) {
    const where = `saga "${name}", step "${path}"`;
    const { work, undo } = step;
    if (
      work.kind === "child" &&
      undo?.kind === "child" &&
      listSteps(work.saga.nodes).some((one) => one.step.pivot)
    ) {
      throw definitionError(
        where,
        "its child saga",
        "has a pivot and cannot be undone: call noUndo(reason) or pivot()",
      );
    }
    const source = findPersonalSource(work);
    if (personal === null && source !== undefined) {
      throw definitionError(
        where,
        `"${source}"`,
        "brings personal data into the saga: name the data subject in `personal`",
      );
    }
    if (work.kind === "wait" && work.by === null && work.event.key === undefined) {
      throw definitionError(where, `the event "${work.event.name}"`, "has no key: set `by`");
    }
  }
}

/** The contract or child saga that would bring personal data into the state. */
function findPersonalSource(work: Work): string | undefined {
  if (work.kind === "wait") return work.event.personal === null ? undefined : work.event.name;
  if (work.kind === "send") return work.command.personal === null ? undefined : work.command.name;
  return work.kind === "child" && work.saga.personal !== null ? work.saga.name : undefined;
}

const NAME_RULE = "must be 1 to 100 letters, digits, - or _, beginning with a letter";

function checkNames(saga: string, nodes: readonly Node[], names: Set<string>): void {
  for (const node of nodes) {
    const where = `saga "${saga}", step "${node.name}"`;
    if (!NAME.test(node.name)) throw definitionError(where, "its name", NAME_RULE);
    if (names.has(node.name))
      throw definitionError(where, "its name", "is used by another step: names are unique");
    names.add(node.name);
    if (node.kind === "group") {
      if (node.members.length === 0) throw definitionError(where, "the group", "is empty");
      checkNames(`${saga}", group "${node.name}`, node.members, new Set());
    } else if (node.kind === "branch") {
      if (Object.keys(node.ways).length === 0) throw definitionError(where, "the branch", "has no way");
      for (const [name, way] of Object.entries(node.ways)) {
        if (way.length === 0)
          throw definitionError(where, `the way "${name}"`, "is empty: leave it out and choose null instead");
        checkNames(saga, way, names);
      }
    } else if (node.kind === "repeat") {
      if (node.body.length === 0) throw definitionError(where, "the repetition", "is empty");
      checkNames(saga, node.body, names);
    }
  }
}

function definitionError(where: string, what: string, rule: string): SagaboxError {
  return new SagaboxError("SAGA_INVALID", `${where}: ${what} ${rule}.`);
}

const SECOND = 1_000;
/** The consumer of a command retries it, so the saga does not send it again before the pivot. */
const once: RetryPolicy = { maxAttempts: 1, firstDelayMs: SECOND, factor: 2, maxDelayMs: 60 * SECOND };
const local: RetryPolicy = { ...once, maxAttempts: 3 };
const forward: RetryPolicy = { ...once, maxAttempts: 10 };
const backward: RetryPolicy = { ...once, maxAttempts: 10 };

/** One step with its defaults filled in. */
export function stepNode(
  where: string,
  name: string,
  work: Work,
  options: StepOptions,
  onlyForward: boolean,
  undo: Undo | null,
): StepNode {
  rejectUnknownKeys(where, options, ["timeout", "retry"]);
  const defaults = onlyForward ? forward : work.kind === "send" ? once : local;
  const noLimit = work.kind === "child" || work.kind === "delay";
  const { timeout = noLimit ? undefined : 30 * SECOND, retry = {} } = options;
  return {
    kind: "step",
    name,
    work,
    undo,
    pivot: false,
    timeoutMs:
      timeout === undefined
        ? null
        : milliseconds(`${where}.timeout`, timeout, { min: 1, max: MAX_DURATION_MS }),
    // A child saga starts once. A wait that timed out is only retried by an operator.
    retry:
      work.kind === "wait" || work.kind === "child" ? once : retryPolicy(`${where}.retry`, retry, defaults),
    undoRetry: backward,
  };
}

export function undoRetry(where: string, { retry = {} }: UndoOptions): RetryPolicy {
  return retryPolicy(`${where}.undo.retry`, retry, backward);
}

/** Reads the arguments `(command, data, options)` or `(work, options)` of `undo`. Throws SAGA_INVALID. */
export function undoFrom(
  where: string,
  work: Work,
  args: readonly unknown[],
): { readonly undo: Undo; readonly options: UndoOptions } {
  const [first, second, third] = args;
  if (typeof first === "function") {
    const options = readUndoOptions(where, second);
    return work.kind === "tx"
      ? { undo: { kind: "tx", work: first as Extract<Undo, { kind: "tx" }>["work"] }, options }
      : { undo: { kind: "run", work: first as Extract<Undo, { kind: "run" }>["work"] }, options };
  }
  if (work.kind === "tx" && isContract(first, "event") && typeof second === "function") {
    const data = second as (seen: StepContext) => unknown;
    return { undo: publishWork(where, first, data), options: readUndoOptions(where, third) };
  }
  if (isContract(first, "command") && typeof second === "function") {
    const data = second as (seen: StepContext & UndoContext) => unknown;
    return { undo: { kind: "send", command: first, data }, options: readUndoOptions(where, third) };
  }
  throw invalid(where, "undo takes a function, or a command and a function that makes its data");
}

interface MemberOptions extends StepOptions {
  readonly undo?: unknown;
}

/** Collects the steps that the callback of `all` or `any` declares. */
export function groupMembers(
  where: string,
  onlyForward: boolean,
  group: (g: unknown) => unknown,
): readonly StepNode[] {
  const members: StepNode[] = [];
  const add = (name: string, work: Work, { undo, ...options }: MemberOptions = {}): unknown => {
    const stepPath = `${where}.${name}`;
    const made = onlyForward ? { undo: null, options: {} } : memberUndo(stepPath, work, undo);
    const node = stepNode(stepPath, name, work, options, onlyForward, made.undo);
    members.push(node);
    return builder;
  };
  const builder = {
    send: (
      name: string,
      command: AnyCommand,
      data: (seen: StepContext) => unknown,
      options?: MemberOptions,
    ) => add(name, { kind: "send", command, data }, options),
    run: (name: string, work: Extract<Work, { kind: "run" }>["work"], options?: MemberOptions) =>
      add(name, { kind: "run", work }, options),
    publish: (name: string, event: AnyEvent, data: (seen: StepContext) => unknown, options?: MemberOptions) =>
      add(name, publishWork(`${where}.${name}`, event, data), options),
  };
  group(builder);
  return members;
}

function memberUndo(where: string, work: Work, undo: unknown): ReturnType<typeof undoFrom> {
  if (typeof undo === "object" && undo !== null && "none" in undo) {
    const { none } = undo as { none: unknown };
    if (typeof none !== "string" || none.trim() === "") throw invalid(where, "undo: { none } needs a reason");
    return { undo: { kind: "none", reason: none }, options: {} };
  }
  return undoFrom(where, work, Array.isArray(undo) ? undo : [undo]);
}

function readUndoOptions(where: string, options: unknown = {}): UndoOptions {
  rejectUnknownKeys(`${where}.undo`, options as object, ["retry"]);
  return options as UndoOptions;
}

/** A `tx` step, or its undo, that only publishes an event: it shares the transaction that saves the step. */
function publishWork(
  where: string,
  event: AnyEvent,
  data: (seen: StepContext) => unknown,
): Extract<Work & Undo, { kind: "tx" }> {
  if (!isContract(event, "event") || typeof data !== "function")
    throw invalid(where, "publish takes an event and a function that makes its data");
  return {
    kind: "tx",
    publishes: event,
    work: async (seen: TxStepContext) => void (await seen.publish(event, data(seen) as never)),
  };
}

function isContract(value: unknown, kind: "command"): value is AnyCommand;
function isContract(value: unknown, kind: "event"): value is AnyEvent;
function isContract(value: unknown, kind: string): boolean {
  return typeof value === "object" && value !== null && (value as { kind?: unknown }).kind === kind;
}
