import { validateIfSync, type AnyEvent, type Json } from "../message/index.ts";
import { type SagaDefinition, stepAt, type StepNode } from "./definition.ts";

// The state of an instance holds data in the form in which they are sent, because that is JSON and is never
// transformed twice. The functions of a definition see the output of the schemas.

/** The input of an instance as the functions of its steps see it. */
export function readInput({ input }: SagaDefinition, wire: unknown): unknown {
  return validateIfSync(input, wire);
}

/** The data of an awaited event as `by` and later steps see it. */
export function readEvent({ schema }: AnyEvent, wire: unknown): unknown {
  return validateIfSync(schema, wire);
}

/** The result of a step as later steps and its undo see it. */
export function readResult(step: StepNode | undefined, result: Json | undefined): unknown {
  if (step === undefined || result === undefined || result === null) return result;
  const { work } = step;
  switch (work.kind) {
    case "send":
      return work.command.reply === null ? result : validateIfSync(work.command.reply, result);
    case "wait":
      return readEvent(work.event, result);
    case "child":
      return readChildResults(work.saga, result);
    default:
      return result;
  }
}

function readChildResults(child: SagaDefinition, results: Json): unknown {
  return mapValues(results, (result, name) => {
    const step = stepAt(child, name);
    if (step !== undefined) return readResult(step, result);
    return mapValues(result, (one, member) => readResult(stepAt(child, `${name}.${member}`), one));
  });
}

function mapValues(value: Json | undefined, read: (item: Json | undefined, key: string) => unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(
    Object.entries(value as object).map(([key, item]) => [key, read(item as Json, key)]),
  );
}
