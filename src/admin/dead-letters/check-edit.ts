import type { DeadLetter } from "../../dead-letter/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import {
  claimHeader,
  decodeJson,
  keyOf,
  sealedHeader,
  upcast,
  validateAround,
  type AnyContract,
  type Headers,
  type Hidden,
  type Json,
} from "../../message/index.ts";
import { erasedIn, parseSealedHeader, placesOf, sealedIn, valueAt, type Place } from "../../privacy/index.ts";

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
    throw refused(letter, "its payload lies in a store, and the letter has only a reference to it");
  }
  const data = text.trim();
  const value = decodeJson(data);
  const before = decodeJson(message.data);
  if (JSON.stringify(value) === JSON.stringify(before)) throw refused(letter, "nothing was changed");
  const problem = personalProblem(before, value, message.headers, contract?.personal?.fields ?? []);
  if (problem !== undefined) throw refused(letter, problem);
  if (contract === undefined) return { data, contract: null };
  await holdTo(contract, letter, value);
  return { data, contract: `${contract.name} version ${contract.version}` };
}

/** What is wrong with the personal values of new data, or undefined. A seal holds only in its own place. */
export function personalProblem(
  before: Json,
  after: Json,
  headers: Headers,
  fields: readonly string[],
): string | undefined {
  const hidden = [...sealedIn(before), ...erasedIn(before)];
  const names = new Set(hidden.map(nameOf));
  for (const place of hidden) {
    if (!isThere(after, place) || !same(valueAt(before, place), valueAt(after, place))) {
      return `${nameOf(place)} is personal and sealed, so it must stay as it is and where it is`;
    }
  }
  const strange = [...sealedIn(after), ...erasedIn(after)].find((place) => !names.has(nameOf(place)));
  if (strange !== undefined) return `${nameOf(strange)} is a sealed value that was not there before`;
  const sealed = parseSealedHeader(headers[sealedHeader] ?? "");
  const open = placesOf(after, [...fields, ...(sealed?.fields ?? [])])?.find(
    (place) => !names.has(nameOf(place)),
  );
  return open === undefined
    ? undefined
    : `${nameOf(open)} is personal, and cannot be written in clear by hand`;
}

async function holdTo(contract: AnyContract, letter: DeadLetter, value: Json): Promise<void> {
  const { message } = letter;
  const hidden: Hidden[] = [
    ...sealedIn(value).map((path) => ({ path, as: "sealed" as const })),
    ...erasedIn(value).map((path) => ({ path, as: "erased" as const })),
  ];
  const current = await validateAround(contract, upcast(contract, message.schemaVersion, value), hidden);
  const key = contract.key === undefined ? null : keyOf(contract, current);
  if (message.key !== null && key !== null && key !== message.key) {
    throw refused(
      letter,
      `its key would become ${JSON.stringify(key)} instead of ${JSON.stringify(message.key)}`,
    );
  }
}

function isThere(data: unknown, place: Place): boolean {
  let value = data;
  for (const key of place) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return false;
    value = (value as Record<string | number, unknown>)[key];
  }
  return true;
}

function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

function nameOf(place: Place): string {
  return place.length === 0 ? "the whole payload" : place.join(".");
}

function refused({ id }: DeadLetter, why: string): SagaboxError {
  return new SagaboxError(
    "DEAD_LETTER_EDIT_REFUSED",
    `Letter ${id} cannot be replayed with these data: ${why}.`,
  );
}
