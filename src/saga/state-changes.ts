import type { SagaInput } from "./input.ts";
import type { SagaState } from "./state.ts";

/** Stands for a value that the transition's own input brought: it is in the line already, and is not written twice. */
const FROM_INPUT = { $from: "input" };

/**
 * What a transition changed in the state, for the audit log: nested like the state, with `[before, after]` for each
 * value that changed and nothing for those that did not. Null when it changed nothing. It may hold personal data, as
 * the input beside it.
 */
export function changesText(before: SagaState, after: SagaState, input: SagaInput): string | null {
  const changed = diffValues(before, after, matchInputData(readInputData(input)));
  return changed === undefined ? null : JSON.stringify(changed);
}

function matchInputData(brought: unknown): Test {
  if (!isNested(brought)) return () => false;
  let text: string | undefined;
  return (value) => {
    if (value === brought) return true;
    if (!isNested(value) || Array.isArray(value) !== Array.isArray(brought)) return false;
    return JSON.stringify(value) === (text ??= JSON.stringify(brought));
  };
}

function readInputData(input: SagaInput): unknown {
  switch (input.kind) {
    case "reply":
    case "worked":
      return input.outcome.kind === "done" ? input.outcome.result : undefined;
    case "event":
      return input.data;
    case "child":
      return input.results;
    case "settle":
      return input.result;
    default:
      return undefined;
  }
}

type Test = (value: unknown) => boolean;

function diffValues(before: unknown, after: unknown, isBrought: Test): unknown {
  if (before === after) return undefined;
  if (!isNested(before) || !isNested(after) || shrinks(before, after)) {
    if (before === undefined || after === undefined || !sameText(before, after)) {
      return [before ?? null, replaceInputData(after ?? null, isBrought)];
    }
    return undefined;
  }
  let changed: Record<string, unknown> | undefined;
  for (const key of Object.keys(before)) {
    const part = diffValues(before[key], after[key], isBrought);
    if (part !== undefined) (changed ??= {})[key] = part;
  }
  for (const key of Object.keys(after)) {
    if (after[key] === undefined || Object.hasOwn(before, key)) continue;
    (changed ??= {})[key] = diffValues(undefined, after[key], isBrought);
  }
  return changed;
}

// A new record holds its result one level down.
function replaceInputData(value: unknown, isBrought: Test): unknown {
  if (isBrought(value)) return FROM_INPUT;
  if (!isNested(value) || Array.isArray(value) || !Object.values(value).some(isBrought)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, isBrought(inner) ? FROM_INPUT : inner]),
  );
}

function isNested(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

function shrinks(before: object, after: object): boolean {
  if (Array.isArray(before) !== Array.isArray(after)) return true;
  return Array.isArray(before) && Array.isArray(after) && after.length < before.length;
}

function sameText(before: unknown, after: unknown): boolean {
  return JSON.stringify(before) === JSON.stringify(after);
}
