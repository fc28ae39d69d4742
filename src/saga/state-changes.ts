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
  const brought = broughtBy(input).filter((value) => typeof value === "object" && value !== null);
  const texts = brought.map((value) => JSON.stringify(value));
  const isBrought = (value: unknown): boolean =>
    typeof value === "object" &&
    value !== null &&
    (brought.includes(value) || (texts.length > 0 && texts.includes(JSON.stringify(value))));
  const changed = difference(before, after, isBrought);
  return changed === undefined ? null : JSON.stringify(changed);
}

function broughtBy(input: SagaInput): readonly unknown[] {
  switch (input.kind) {
    case "reply":
    case "worked":
      return input.outcome.kind === "done" ? [input.outcome.result] : [];
    case "event":
      return [input.data];
    case "child":
      return [input.results];
    case "settle":
      return [input.result];
    default:
      return [];
  }
}

type Test = (value: unknown) => boolean;

function difference(before: unknown, after: unknown, isBrought: Test): unknown {
  if (before === after) return undefined;
  if (!isNested(before) || !isNested(after) || shrinks(before, after)) {
    if (before === undefined || after === undefined || !sameText(before, after)) {
      return [before ?? null, marked(after ?? null, isBrought)];
    }
    return undefined;
  }
  let changed: Record<string, unknown> | undefined;
  for (const key of Object.keys(before)) {
    const part = difference(before[key], after[key], isBrought);
    if (part !== undefined) (changed ??= {})[key] = part;
  }
  for (const key of Object.keys(after)) {
    if (Object.hasOwn(before, key)) continue;
    const part = difference(undefined, after[key], isBrought);
    if (part !== undefined) (changed ??= {})[key] = part;
  }
  return changed;
}

// A new record holds its result one level down.
function marked(value: unknown, isBrought: Test): unknown {
  if (isBrought(value)) return FROM_INPUT;
  if (!isNested(value) || Array.isArray(value)) return value;
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
