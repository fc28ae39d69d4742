import {
  dataHash,
  type DeadLetter,
  readDeadLetter,
  replayDeadLetter,
  type ReplayedDeadLetter,
} from "../../dead-letter/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import {
  type AnyContract,
  claimHeader,
  decodeJson,
  encryptedHeader,
  type Headers,
  type HiddenField,
  type Json,
  readMessageKey,
  upcast,
  validateIgnoring,
} from "../../message/index.ts";
import {
  type FieldPath,
  findEncryptedPaths,
  findErasedPaths,
  findFieldPaths,
  parseEncryptedHeader,
  valueAt,
} from "../../privacy/index.ts";
import { readOperator } from "../sagas/saga-admin.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";

export interface EditOptions {
  /** JSON. */
  readonly data: string;
  /** Finds the contract by the consumer, null for the outbox, and the type. Without it only JSON is checked. */
  readonly contractOf?: (consumer: string | null, type: string) => AnyContract | undefined;
}

/** What an edit would change. */
export interface EditPlan {
  readonly letter: DeadLetter;
  readonly edit: CheckedEdit;
  readonly beforeHash: string;
  readonly afterHash: string;
}

/** Checks new data for a letter and changes nothing. */
export async function planEdit(admin: DeadLetterAdmin, id: string, options: EditOptions): Promise<EditPlan> {
  const letter = await readDeadLetter(admin.store, id);
  if (letter.closedAs !== null) {
    throw new SagaboxError(
      "DEAD_LETTER_CLOSED",
      `Dead letter ${id} was ${letter.closedAs} at ${letter.closedAt}.`,
    );
  }
  const { type } = letter.message;
  const contract = options.contractOf?.(letter.consumer, type);
  if (options.contractOf !== undefined && contract === undefined) {
    throw new SagaboxError(
      "HANDLER_MISSING",
      `The application has no handler of ${letter.consumer ?? "any consumer"} for "${type}", so there is no contract to ` +
        "check the data against. Give the module that has it, or none at all.",
    );
  }
  const edit = await checkEdit(letter, options.data, contract);
  return { letter, edit, beforeHash: dataHash(letter.message.data), afterHash: dataHash(edit.data) };
}

/**
 * Replays a letter with other data under its own id, so that a message whose effect had happened is still recognised.
 * The letter keeps the data that died; who changed them, why, and both hashes are kept beside it.
 */
export async function editDeadLetter(
  admin: DeadLetterAdmin,
  id: string,
  { actor, reason, ...options }: EditOptions & { readonly actor: string; readonly reason: string },
): Promise<EditPlan & Pick<ReplayedDeadLetter, "table">> {
  const by = readOperator("deadLetters.edit", { actor, reason });
  const { store } = admin;
  const entry = { ...by, action: "dead_letter.edit", target: { kind: "dead_letter", id: String(id) } };
  const plan = await planEdit(admin, id, options).catch(async (error: unknown) => {
    await store.audit.recordFailure(store.database, entry, error).catch(() => undefined);
    throw error;
  });
  const { table, lane } = await replayDeadLetter(store, id, by, plan.edit);
  await admin.wake([lane]);
  return { ...plan, table };
}

/** Data that a letter may be replayed with. */
interface CheckedEdit {
  readonly data: string;
  /** Name and version of the contract they were held to; null when there was none to hold them to. */
  readonly contract: string | null;
}

/**
 * Holds new data to what the message promises: JSON that means the same everywhere, personal values untouched, and with
 * a contract its schema and the same key. Throws what is wrong.
 */
async function checkEdit(letter: DeadLetter, text: string, contract?: AnyContract): Promise<CheckedEdit> {
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
