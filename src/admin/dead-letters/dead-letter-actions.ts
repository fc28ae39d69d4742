import type { By } from "../../audit/index.ts";
import {
  type ClosedRow,
  computeFingerprint,
  dataHash,
  type DeadLetter,
  type DeadLetterCriteria,
  type DeadLetterFilter,
  type DeadLetterSummary,
  discardDeadLetter,
  filterKeys,
  listDeadLetters,
  readDeadLetter,
  replayDeadLetter,
  type ReplayedDeadLetter,
  toAuditEntry,
  toConditions,
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
import { rejectUnknownKeys, text } from "../../options/index.ts";
import {
  type FieldPath,
  findEncryptedPaths,
  findErasedPaths,
  findFieldPaths,
  parseEncryptedHeader,
  valueAt,
} from "../../privacy/index.ts";
import { toArrayLiteral } from "../../storage/index.ts";
import { readOperator } from "../sagas/saga-admin.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";

/** Lists dead letters, newest first. Throws OPTIONS_INVALID for an invalid filter. */
export function findDeadLetters(
  { store }: DeadLetterAdmin,
  filter?: DeadLetterFilter,
): Promise<readonly DeadLetterSummary[]> {
  return listDeadLetters(store, filter);
}

/** Replays a dead letter and wakes the worker of its lane. Throws like `replayDeadLetter`. */
export async function replayAndWake(
  { store, wake }: DeadLetterAdmin,
  id: string,
  by: By,
): Promise<ReplayedDeadLetter> {
  const replayed = await replayDeadLetter(store, id, by);
  await wake([replayed.lane]);
  return replayed;
}

/** Discards a dead letter and wakes the relay if it blocked its key. Throws like `discardDeadLetter`. */
export async function discardAndWake(
  { store, wake }: DeadLetterAdmin,
  id: string,
  by: By,
): Promise<DeadLetter> {
  const letter = await discardDeadLetter(store, id, by);
  if (letter.held !== null) await wake([letter.held.lane]);
  return letter;
}

export interface DiscardOptions {
  readonly actor: string;
  readonly reason: string;
  readonly signal?: AbortSignal;
  readonly onProgress?: (discarded: number) => void;
}

const WHERE = "deadLetters.discardAll";
const PAGE = 500;

export interface DiscardResult {
  readonly discarded: number;
  /** Number of dead letters that are still open, because another operator had locked them or `signal` stopped the run. */
  readonly left: number;
  readonly finished: boolean;
}

/**
 * Discards the open dead letters that match a filter, in pages of 500, each with its audit entries. Skips dead letters
 * that are newer than the start of the run or locked by another operator.
 */
export async function discardDeadLetters(
  admin: DeadLetterAdmin,
  filter: Omit<DeadLetterCriteria, "open">,
  { signal, onProgress, ...by }: DiscardOptions,
): Promise<DiscardResult> {
  rejectUnknownKeys(
    WHERE,
    filter,
    filterKeys.filter((key) => key !== "open"),
  );
  const { names, params } = toConditions(WHERE, filter);
  const operator = readOperator(WHERE, by);
  const { store, sql } = admin;
  const upTo = (await store.database.run<{ id: string }>(sql.newest)).rows[0]?.id ?? "0";
  let discarded = 0;
  while (signal?.aborted !== true) {
    const count = await discardPage(admin, operator, async (tx) => {
      return (await tx.run<ClosedRow>(sql.discard(names), [upTo, PAGE, ...params])).rows;
    });
    discarded += count;
    onProgress?.(discarded);
    if (count < PAGE) break;
  }
  const { rows } = await store.database.run<{ left_open: number }>(sql.leftOpen(names), [upTo, ...params]);
  const left = rows[0]?.left_open ?? 0;
  return { discarded, left, finished: left === 0 };
}

type Transaction = Awaited<ReturnType<DeadLetterAdmin["store"]["database"]["begin"]>>;

async function discardPage(
  { store, wake }: DeadLetterAdmin,
  by: { readonly actor: string; readonly reason: string },
  close: (tx: Transaction) => Promise<readonly ClosedRow[]>,
): Promise<number> {
  const tx = await store.database.begin();
  try {
    const rows = await close(tx);
    const holding = rows.filter((row) => row.held_lane !== null);
    if (holding.length > 0) await tx.run(store.sql.freeKeys, [toArrayLiteral(holding.map(({ id }) => id))]);
    await store.audit.recordAllDone(
      tx,
      rows.map((row) => toAuditEntry(row, "discard", by)),
    );
    await tx.commit();
    await wake(holding.flatMap(({ held_lane: lane }) => lane ?? []));
    return rows.length;
  } catch (error) {
    await tx.rollback();
    throw error;
  }
}

export interface BuryOptions {
  readonly actor: string;
  readonly reason: string;
  /** Consumer whose delivery is dead-lettered; null for the outbox row. Required if the message waits more than once. */
  readonly consumer?: string | null;
}

export interface BuriedMessage {
  readonly deadLetterId: string;
  readonly messageId: string;
  /** Null if the message was waiting in the outbox. */
  readonly consumer: string | null;
}

/** An outbox or queue row of a message that waits. */
interface WaitingRow {
  readonly table: "outbox" | "queue";
  readonly lane: number;
  readonly seq: string;
  readonly consumer: string | null;
  readonly type: string;
  readonly attempts: number;
}

/**
 * Dead-letters a message that waits in the outbox or for one consumer, so that it can be replayed or discarded later. If
 * a handler is processing the message, it loses the row and rolls back. Throws BURIAL_REFUSED if the message does not
 * wait, waits more than once without `consumer`, or may be in flight in a relay.
 */
export async function buryLiveMessage(
  admin: DeadLetterAdmin,
  messageId: string,
  options: BuryOptions,
): Promise<BuriedMessage> {
  const by = readOperator("deadLetters.bury", options);
  const id = text("deadLetters.bury: the message id", messageId);
  const { store, sql, wake } = admin;
  const entry = { ...by, action: "dead_letter.bury", target: { kind: "message", id } };
  return store.audit.runAudited(store.database, entry, async (note) => {
    const row = await findWaitingRow(admin, id, options.consumer);
    const { table, lane, seq, consumer, type, attempts } = row;
    const failure = {
      consumer,
      type,
      reason: "buried",
      errorType: "Buried",
      errorMessage: by.reason,
    } as const;
    const tx = await store.database.begin();
    try {
      const statement = table === "outbox" ? sql.buryWaiting : sql.buryDelivery;
      const { rows } = await tx.run<{ letter: string | null }>(statement, [
        lane,
        seq,
        id,
        computeFingerprint(failure),
        by.reason,
      ]);
      const deadLetterId = rows[0]?.letter ?? null;
      if (deadLetterId === null) throw messageInFlight(id, row);
      await note(tx, {
        before: { state: "waiting", table, consumer, attempts },
        after: { state: "open", deadLetterId, type },
      });
      await tx.commit();
      await wake([lane]);
      return { deadLetterId, messageId: id, consumer };
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  });
}

/** Finds the row of a waiting message: its only one, or that of the given consumer. */
async function findWaitingRow(
  { store, sql }: DeadLetterAdmin,
  id: string,
  consumer: string | null | undefined,
): Promise<WaitingRow> {
  const { rows } = await store.database.run<WaitingRow>(sql.waiting, [id]);
  const found = consumer === undefined ? rows : rows.filter((row) => row.consumer === consumer);
  const [row] = found;
  if (row !== undefined && found.length === 1) return row;
  if (row === undefined)
    throw burialRefused(
      id,
      `it does not wait${typeof consumer === "string" ? ` for consumer ${consumer}` : ""} in this database`,
    );
  const names = found.map((one) => one.consumer ?? "the outbox").join(", ");
  throw burialRefused(id, `it waits ${found.length} times, so a consumer must be named: ${names}`);
}

function messageInFlight(id: string, { table }: WaitingRow): SagaboxError {
  const why =
    table === "outbox" ? "it is due, and a running relay may be sending it now" : "it was settled meanwhile";
  return burialRefused(id, why);
}

function burialRefused(id: string, why: string): SagaboxError {
  return new SagaboxError(
    "BURIAL_REFUSED",
    `Message ${id} was not dead-lettered: ${why}. See its state: sagabox explain ${id}`,
  );
}

export interface EditOptions {
  /** The new data, as JSON text. */
  readonly data: string;
  /** Returns the contract for a consumer (null for the outbox) and type. Without it, only the JSON syntax is checked. */
  readonly contractOf?: (consumer: string | null, type: string) => AnyContract | undefined;
}

/** A validated edit of a dead letter. */
export interface EditPlan {
  readonly deadLetter: DeadLetter;
  readonly edit: CheckedEdit;
  readonly beforeHash: string;
  readonly afterHash: string;
}

/**
 * Validates new data for a dead letter. Read-only. Throws DEAD_LETTER_CLOSED, DEAD_LETTER_EDIT_REFUSED, HANDLER_MISSING
 * if `contractOf` has no contract, and PAYLOAD_INVALID.
 */
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
        "check the data against. Name the module that has it, or no module.",
    );
  }
  const edit = await checkEdit(letter, options.data, contract);
  return {
    deadLetter: letter,
    edit,
    beforeHash: dataHash(letter.message.data),
    afterHash: dataHash(edit.data),
  };
}

/**
 * Replays a dead letter with new data under the original message id, so that the inbox still detects duplicates. The dead
 * letter keeps the old data. The actor, the reason and both hashes are stored with it. Throws like `planEdit`.
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

/** Validated new data of a dead letter. */
interface CheckedEdit {
  readonly data: string;
  /** Name and version of the contract that validated the data; null if there was none. */
  readonly contract: string | null;
}

/**
 * Checks that new data are portable JSON and keep the personal values and, with a contract, that they match its schema
 * and keep the message key. Throws if not.
 */
async function checkEdit(letter: DeadLetter, text: string, contract?: AnyContract): Promise<CheckedEdit> {
  const { message } = letter;
  if (message.headers[claimHeader] !== undefined) {
    throw editRefused(
      letter,
      "its payload is in a blob store, and the dead letter has only a reference to it",
    );
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

/**
 * Returns what is wrong with the personal values of new data, or undefined. Encrypted values are bound to their field
 * path, so they cannot be moved.
 */
export function findPersonalProblem(
  before: Json,
  after: Json,
  headers: Headers,
  fields: readonly string[],
): string | undefined {
  const hidden = [...findEncryptedPaths(before), ...findErasedPaths(before)];
  const names = new Set(hidden.map(describePath));
  for (const path of hidden) {
    if (!hasValueAt(after, path) || !isSameJson(valueAt(before, path), valueAt(after, path))) {
      return `${describePath(path)} is personal and encrypted, so it must not be changed, moved or removed`;
    }
  }
  const added = [...findEncryptedPaths(after), ...findErasedPaths(after)].find(
    (path) => !names.has(describePath(path)),
  );
  if (added !== undefined) return `${describePath(added)} is an encrypted value that was not there before`;
  const encrypted = parseEncryptedHeader(headers[encryptedHeader] ?? "");
  const plain = findFieldPaths(after, [...fields, ...(encrypted?.fields ?? [])])?.find(
    (path) => !names.has(describePath(path)),
  );
  return plain === undefined
    ? undefined
    : `${describePath(plain)} is personal, and an edit cannot store it unencrypted`;
}

async function validateEdit(contract: AnyContract, letter: DeadLetter, value: Json): Promise<void> {
  const { message } = letter;
  const hidden: HiddenField[] = [
    ...findEncryptedPaths(value).map((path) => ({ path, as: "sealed" as const })),
    ...findErasedPaths(value).map((path) => ({ path, as: "erased" as const })),
  ];
  const current = upcast(contract, message.schemaVersion, value);
  await validateIgnoring(contract, current, hidden);
  const key = contract.key === undefined ? null : readMessageKey(contract, current);
  if (message.key !== null && key !== null && key !== message.key) {
    throw editRefused(
      letter,
      `its key would become ${JSON.stringify(key)} instead of ${JSON.stringify(message.key)}`,
    );
  }
}

function hasValueAt(data: unknown, path: FieldPath): boolean {
  let value = data;
  for (const key of path) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return false;
    value = (value as Record<string | number, unknown>)[key];
  }
  return true;
}

function isSameJson(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

function describePath(path: FieldPath): string {
  return path.length === 0 ? "the whole payload" : path.join(".");
}

function editRefused({ id }: DeadLetter, why: string): SagaboxError {
  return new SagaboxError(
    "DEAD_LETTER_EDIT_REFUSED",
    `Dead letter ${id} cannot be replayed with these data: ${why}.`,
  );
}
