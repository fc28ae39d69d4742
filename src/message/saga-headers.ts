import { SagaboxError } from "../errors/index.ts";
import { isValidId } from "./message-id.ts";

/** Header of a compensating command: the earlier commands it undoes, if they were executed. */
export const undoesHeader = "sagabox-undoes";
/** Header of a command that is sent again under a new id: the earlier commands it replaces. */
export const supersedesHeader = "sagabox-supersedes";

/** Earlier commands of one type. */
export interface References {
  /** Name of their contract. */
  readonly type: string;
  readonly ids: readonly string[];
}

const MAX_HEADER_BYTES = 8_192;
const shape = /^([^\s,]+) ([^\s,]+(?:,[^\s,]+)*)$/;

/**
 * Formats the value of either header: `<type> <id>[,<id>…]`. Separators inside ids are escaped. Throws
 * HEADER_INVALID.
 */
export function formatUndoes(type: string, ids: readonly string[]): string {
  const distinct = [...new Set(ids)];
  if (type === "" || /[\s,]/.test(type)) throw referencesInvalid(`"${type}" is not a contract name`);
  if (distinct.length === 0) throw referencesInvalid("it lists no message id");
  if (!distinct.every(isValidId))
    throw referencesInvalid("an id must be a string of 1 to 255 printable characters");
  const value = `${type} ${distinct.map(escapeId).join(",")}`;
  if (Buffer.byteLength(value) > MAX_HEADER_BYTES)
    throw referencesInvalid(`it is longer than ${MAX_HEADER_BYTES} bytes`);
  return value;
}

/**
 * Parses a value of `formatUndoes`. Throws HEADER_INVALID for anything else, because a guess could skip or
 * repeat an effect.
 */
export function parseReferences(value: string): References {
  const [, type, list] = shape.exec(value) ?? [];
  if (type === undefined || list === undefined) throw referencesInvalid("it must read `<type> <id>[,<id>…]`");
  const ids = [...new Set(list.split(",").map(unescapeId))];
  if (!ids.every(isValidId))
    throw referencesInvalid("an id must be a string of 1 to 255 printable characters");
  return { type, ids };
}

function escapeId(id: string): string {
  return id.replace(/[%,\s]/gu, (character) => encodeURIComponent(character));
}

function unescapeId(id: string): string {
  try {
    return decodeURIComponent(id);
  } catch (cause) {
    throw referencesInvalid("the escapes of an id are invalid", cause);
  }
}

function referencesInvalid(why: string, cause?: unknown): SagaboxError {
  return new SagaboxError("HEADER_INVALID", `A header that refers to earlier commands is invalid: ${why}.`, {
    cause,
  });
}
