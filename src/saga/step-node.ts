import { SagaboxError } from "../errors/index.ts";
import type { AnyCommand } from "../message/index.ts";
import { milliseconds, rejectUnknownKeys } from "../options/index.ts";
import { retryPolicy, type RetryPolicy } from "../retry/index.ts";
import { MAX_DURATION_MS } from "./options.ts";
import type { StepContext, StepNode, Undo, UndoContext, Work } from "./definition.ts";
import type { StepOptions, UndoOptions } from "./saga-types.ts";

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
  if (isCommand(first) && typeof second === "function") {
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
    const place = `${where}.${name}`;
    const made = onlyForward ? { undo: null, options: {} } : memberUndo(place, work, undo);
    const node = stepNode(place, name, work, options, onlyForward, made.undo);
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

function isCommand(value: unknown): value is AnyCommand {
  return typeof value === "object" && value !== null && (value as { kind?: unknown }).kind === "command";
}

function invalid(where: string, what: string): SagaboxError {
  return new SagaboxError("SAGA_INVALID", `${where}: ${what}.`);
}
