import { SagaboxError } from "../errors/index.ts";
import { isValidId } from "./message-id.ts";

/** On a command that undoes: which earlier commands it takes back, should they have been carried out. */
export const undoesHeader = "sagabox-undoes";
/** On a command that is sent again under a new id: which earlier ones it stands for. */
export const supersedesHeader = "sagabox-supersedes";

/** Earlier commands of one type. */
export interface References {
  /** Name of their contract. */
  readonly type: string;
  readonly ids: readonly string[];
}

const MAX_HEADER_BYTES = 8_192;
const shape = /^([^\s,]+) ([^\s,]+(?:,[^\s,]+)*)$/;

/** The value of either header: `<type> <id>[,<id>…]`. Ids may hold any character, so what separates is escaped. */
export function formatUndoes(type: string, ids: readonly string[]): string {
  const distinct = [...new Set(ids)];
  if (type === "" || /[\s,]/.test(type)) throw referencesInvalid(`"${type}" is no name of a contract`);
  if (distinct.length === 0) throw referencesInvalid("it names no message");
  if (!distinct.every(isValidId))
    throw referencesInvalid("an id must be a text of 1 to 255 printable characters");
  const value = `${type} ${distinct.map(escapeId).join(",")}`;
  if (Buffer.byteLength(value) > MAX_HEADER_BYTES)
    throw referencesInvalid(`it is longer than ${MAX_HEADER_BYTES} bytes`);
  return value;
}

/** Reads what `formatUndoes` wrote; anything else is refused, since guessing could skip or repeat an effect. */
export function parseReferences(value: string): References {
  const [, type, list] = shape.exec(value) ?? [];
  if (type === undefined || list === undefined) throw referencesInvalid("it must read `<type> <id>[,<id>…]`");
  const ids = [...new Set(list.split(",").map(unescapeId))];
  if (!ids.every(isValidId)) throw referencesInvalid("an id must be a text of 1 to 255 printable characters");
  return { type, ids };
}

function escapeId(id: string): string {
  return id.replace(/[%,\s]/gu, (character) => encodeURIComponent(character));
}

function unescapeId(id: string): string {
  try {
    return decodeURIComponent(id);
  } catch (cause) {
    throw referencesInvalid("an id is escaped in a way that cannot be read", cause);
  }
}

function referencesInvalid(why: string, cause?: unknown): SagaboxError {
  return new SagaboxError(
    "HEADER_INVALID",
    `A header that refers to earlier commands cannot be used: ${why}.`,
    {
      cause,
    },
  );
}
