import { erased, type Json } from "../message/index.ts";
import type { Queryable } from "../storage/index.ts";
import type { SagaInput, WorkOutcome } from "./input.ts";
import {
  keyUnavailable,
  decryptText,
  findCipher,
  type SubjectCipher,
  type SagaVault,
} from "./subject-cipher.ts";

const ERASED_TEXT = "[erased]";

/**
 * Encodes pending input for storage. With a cipher the whole input is encrypted, and a `frame` without personal data is
 * stored in clear: the instance still gets the frame if the data subject is erased first.
 */
export function encodePendingInput(
  seal: SubjectCipher | undefined,
  id: string,
  input: SagaInput,
  frame: SagaInput = eraseInputData(input),
): string {
  const text = JSON.stringify(input);
  return seal === undefined ? text : JSON.stringify({ ...seal.encrypt(text, id, ["pending_input"]), frame });
}

/** Decodes pending input; returns only its frame if the data subject was erased. Throws PRIVACY_KEYS_UNAVAILABLE. */
export async function decodePendingInput(
  vault: SagaVault | undefined,
  id: string,
  text: string,
  tx: Queryable,
): Promise<SagaInput> {
  const seal = await findCipher(vault, text, tx);
  if (seal === "sealed") throw keyUnavailable(id);
  if (seal === "erased") return (JSON.parse(text) as { readonly frame: SagaInput }).frame;
  return JSON.parse(decryptText(seal, text, id, ["pending_input"])) as SagaInput;
}

/** A copy in which the personal fields are erased. `*` matches every array element or object value. */
export function withoutFields(data: Json, fields: readonly string[]): Json {
  return fields.reduce((left, field) => eraseAt(left, field.split(".")), data);
}

function eraseAt(value: Json, [part, ...rest]: readonly string[]): Json {
  if (part === undefined) return { ...erased };
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) {
    return value.map((one: Json, index) =>
      part === "*" || part === String(index) ? eraseAt(one, rest) : one,
    );
  }
  const every = part === "*" && !Object.hasOwn(value, part);
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => [
      key,
      one !== undefined && (every || key === part) ? eraseAt(one, rest) : one,
    ]),
  );
}

function eraseInputData(input: SagaInput): SagaInput {
  switch (input.kind) {
    case "event":
      return { ...input, data: { ...erased } };
    case "reply":
    case "worked":
      return { ...input, outcome: eraseOutcomeData(input.outcome) };
    case "child":
      return (input.results ?? null) === null ? input : { ...input, results: { ...erased } };
    case "settle":
      return (input.result ?? null) === null ? input : { ...input, result: { ...erased } };
    default:
      return input;
  }
}

function eraseOutcomeData(outcome: WorkOutcome): WorkOutcome {
  if (outcome.kind !== "done") return { ...outcome, error: ERASED_TEXT };
  return (outcome.result ?? null) === null ? outcome : { ...outcome, result: { ...erased } };
}
