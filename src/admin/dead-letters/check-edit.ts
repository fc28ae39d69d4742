import type { DeadLetter } from "../../dead-letter/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import {
  claimHeader,
  decodeJson,
  readMessageKey,
  encryptedHeader,
  upcast,
  validateIgnoring,
  type AnyContract,
  type Headers,
  type HiddenField,
  type Json,
} from "../../message/index.ts";
import {
  findErasedPaths,
  parseEncryptedHeader,
  findFieldPaths,
  findEncryptedPaths,
  valueAt,
  type FieldPath,
} from "../../privacy/index.ts";

/** Data that a letter may be replayed with. */
export interface CheckedEdit {
  readonly data: string;
  /** Name and version of the contract they were held to; null when there was none to hold them to. */
  readonly contract: string | null;
}

/**
 * Holds new data to what the message promises: JSON that means the same everywhere, personal values untouched, and with
 * a contract its schema and the same key. Throws what is wrong.
 */
export async function checkEdit(
  letter: DeadLetter,
  text: string,
  contract?: AnyContract,
): Promise<CheckedEdit> {
  const { message } = letter;
  if (message.headers[claimHeader] !== undefined) {
    throw editRefused(letter, "its payload lies in a store, and the letter has only a reference to it");
  }
  const data = text.trim();
  const value = decodeJson(data);
  const before = decodeJson(message.data);
  if (JSON.stringify(value) === JSON.stringify(before)) throw editRefused(letter, "nothing was changed");
  const problem = findPersonalProblem(before, value, message.headers, contract?.personal?.fields ?? []);
  if (problem !== undefined) throw editRefused(letter, problem);
  if (contract === undefined) return { data, contract: null };
  await validateEdit(contract, letter, value);
  return { data, contract: `${contract.name} version ${contract.version}` };
}

/** What is wrong with the personal values of new data, or undefined. A seal holds only in its own place. */
export function findPersonalProblem(
  before: Json,
  after: Json,
  headers: Headers,
  fields: readonly string[],
): string | undefined {
  const hidden = [...findEncryptedPaths(before), ...findErasedPaths(before)];
  const names = new Set(hidden.map(describePath));
  for (const place of hidden) {
    if (!hasValueAt(after, place) || !isSameJson(valueAt(before, place), valueAt(after, place))) {
      return `${describePath(place)} is personal and sealed, so it must stay as it is and where it is`;
    }
  }
  const strange = [...findEncryptedPaths(after), ...findErasedPaths(after)].find(
    (place) => !names.has(describePath(place)),
  );
  if (strange !== undefined) return `${describePath(strange)} is a sealed value that was not there before`;
  const sealed = parseEncryptedHeader(headers[encryptedHeader] ?? "");
  const open = findFieldPaths(after, [...fields, ...(sealed?.fields ?? [])])?.find(
    (place) => !names.has(describePath(place)),
  );
  return open === undefined
    ? undefined
    : `${describePath(open)} is personal, and cannot be written in clear by hand`;
}

async function validateEdit(contract: AnyContract, letter: DeadLetter, value: Json): Promise<void> {
  const { message } = letter;
  const hidden: HiddenField[] = [
    ...findEncryptedPaths(value).map((path) => ({ path, as: "sealed" as const })),
    ...findErasedPaths(value).map((path) => ({ path, as: "erased" as const })),
  ];
  const current = await validateIgnoring(contract, upcast(contract, message.schemaVersion, value), hidden);
  const key = contract.key === undefined ? null : readMessageKey(contract, current);
  if (message.key !== null && key !== null && key !== message.key) {
    throw editRefused(
      letter,
      `its key would become ${JSON.stringify(key)} instead of ${JSON.stringify(message.key)}`,
    );
  }
}

function hasValueAt(data: unknown, place: FieldPath): boolean {
  let value = data;
  for (const key of place) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return false;
    value = (value as Record<string | number, unknown>)[key];
  }
  return true;
}

function isSameJson(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

function describePath(place: FieldPath): string {
  return place.length === 0 ? "the whole payload" : place.join(".");
}

function editRefused({ id }: DeadLetter, why: string): SagaboxError {
  return new SagaboxError(
    "DEAD_LETTER_EDIT_REFUSED",
    `Letter ${id} cannot be replayed with these data: ${why}.`,
  );
}
