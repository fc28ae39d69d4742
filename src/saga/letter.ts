import { erased, type Json } from "../message/index.ts";
import type { Queryable } from "../storage/index.ts";
import type { SagaInput, WorkOutcome } from "./input.ts";
import { noKeyHere, openedText, sealOf, type PersonSeal, type SagaVault } from "./sealing.ts";

const ERASED_TEXT = "[erased]";

/**
 * What is left for an instance, as it is kept. Where it is about a person it is sealed whole; beside it stands in clear
 * what the instance must hear of it even when that person, who need not be its own, is erased before it reads it.
 */
export function letterText(
  seal: PersonSeal | undefined,
  id: string,
  input: SagaInput,
  frame: SagaInput = frameOf(input),
): string {
  const text = JSON.stringify(input);
  return seal === undefined ? text : JSON.stringify({ ...seal.seal(text, id, ["mail"]), frame });
}

/** What was left, or as much of it as there is when the person it was about was erased. */
export async function openLetter(
  vault: SagaVault | undefined,
  id: string,
  text: string,
  tx: Queryable,
): Promise<SagaInput> {
  const seal = await sealOf(vault, text, tx);
  if (seal === "sealed") throw noKeyHere(id);
  if (seal === "erased") return (JSON.parse(text) as { readonly frame: SagaInput }).frame;
  return JSON.parse(openedText(seal, text, id, ["mail"])) as SagaInput;
}

/** A copy in which the personal fields are erased. `*` stands for every element of a list or every value of an object. */
export function withoutFields(data: Json, fields: readonly string[]): Json {
  return fields.reduce((left, field) => erasedAt(left, field.split(".")), data);
}

function erasedAt(value: Json, [part, ...rest]: readonly string[]): Json {
  if (part === undefined) return { ...erased };
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) {
    return value.map((one: Json, index) =>
      part === "*" || part === String(index) ? erasedAt(one, rest) : one,
    );
  }
  const every = part === "*" && !Object.hasOwn(value, part);
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => [
      key,
      one !== undefined && (every || key === part) ? erasedAt(one, rest) : one,
    ]),
  );
}

function frameOf(input: SagaInput): SagaInput {
  switch (input.kind) {
    case "event":
      return { ...input, data: { ...erased } };
    case "reply":
    case "worked":
      return { ...input, outcome: outcomeFrame(input.outcome) };
    case "child":
      return (input.results ?? null) === null ? input : { ...input, results: { ...erased } };
    case "settle":
      return (input.result ?? null) === null ? input : { ...input, result: { ...erased } };
    default:
      return input;
  }
}

function outcomeFrame(outcome: WorkOutcome): WorkOutcome {
  if (outcome.kind !== "done") return { ...outcome, error: ERASED_TEXT };
  return (outcome.result ?? null) === null ? outcome : { ...outcome, result: { ...erased } };
}
