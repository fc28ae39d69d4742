import { createHash } from "node:crypto";
import type { AuditEntry, By, Details } from "../audit/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { laneFor, parseTraceparent, streamFor, type Message } from "../message/index.ts";
import { toArrayLiteral, type OwnedTransaction } from "../storage/index.ts";
import { toDeadLetter, type DeadLetter, type DeadLetterRow, type DeadLetterStore } from "./dead-letter.ts";
import { assertId, readDeadLetter } from "./search.ts";
import type { DeadLetterStatements } from "./statements.ts";

/** A replayed dead letter and the lane of its new row, so that the caller can wake the worker of that lane. */
export interface ReplayedDeadLetter {
  readonly letter: DeadLetter;
  readonly table: "outbox" | "queue";
  readonly lane: number;
}

/** Actor in the audit log when the caller names none. */
const DEFAULT_ACTOR: By = { actor: "code" };

/** New data for the replayed message. */
export interface Edit {
  /** JSON text, stored unchanged. */
  readonly data: string;
  /** Name and version of the contract that validated the data; null when there was none. */
  readonly contract: string | null;
}

/**
 * Replays a dead letter: closes it and puts the message back into the outbox or the consumer's queue in one transaction,
 * with its original id and a full set of attempts. The inbox skips it if it was handled meanwhile. An expired message is
 * delivered without expiry. With `edit`, the consumer gets the new data and the dead letter keeps the old.
 * Throws DEAD_LETTER_NOT_FOUND, DEAD_LETTER_CLOSED, or TRANSPORT_UNROUTABLE when the consumer has no queue here.
 */
export function replayDeadLetter(
  store: DeadLetterStore,
  id: string,
  by = DEFAULT_ACTOR,
  edit?: Edit,
): Promise<ReplayedDeadLetter> {
  return closeAudited(store, id, { as: "replayed", by, edit }, async (tx, row) => {
    if (edit !== undefined) {
      const hashes = [dataHash(row.data), dataHash(edit.data)];
      await tx.run(store.sql.noteEdit, [id, by.actor, by.reason ?? "", ...hashes, edit.contract]);
    }
    const { key, topic, message_id: messageId } = row;
    const lane = laneFor(key ?? messageId);
    const stream = key === null ? null : streamFor(topic, key);
    const [requeued] = await requeue(tx, store.sql, [{ ...row, lane, stream, newData: edit?.data ?? null }]);
    if (requeued === undefined)
      throw new Error(`dead letter ${id} was closed, but its message was not put back`);
    return { letter: toDeadLetter(row), table: requeued.table, lane: requeued.lane };
  });
}

/** An open dead letter, as needed to replay it together with others. */
export type ReplayCandidate = Pick<ClosedRow, "id" | "message_id" | "topic"> & {
  readonly key: string | null;
};

/** The row of a replayed message, and the failure that it had before. */
export interface ReplayedRow extends RequeuedRow {
  /** Hash of topic and key; null if the message has no key. */
  readonly stream: string | null;
  readonly fingerprint: string;
  readonly errorMessage: string;
}

/**
 * Replays many dead letters of one cause in one transaction with their audit entries, and returns the new rows. Dead
 * letters that must wait for an earlier one of their key, or that another operator has locked or closed, are left out.
 * Throws TRANSPORT_UNROUTABLE, and replays none, if the consumer has no queue here.
 */
export async function replayDeadLetters(
  { database, sql, audit }: DeadLetterStore,
  candidates: readonly ReplayCandidate[],
  by: By,
): Promise<readonly ReplayedRow[]> {
  const tx = await database.begin();
  try {
    const { rows } = await tx.run<ClosedRow & Destination>(sql.closeInOrder, [
      toArrayLiteral(candidates.map(({ id }) => id)),
      toArrayLiteral(candidates.map(({ key, message_id: id }) => laneFor(key ?? id))),
      toArrayLiteral(candidates.map(({ key, topic }) => (key === null ? null : streamFor(topic, key)))),
    ]);
    const requeued = await requeue(tx, sql, rows);
    const entries = rows.map((row) => toAuditEntry(row, "replay", by));
    await audit.recordAllDone(tx, entries);
    await tx.commit();
    const closed = new Map(rows.map((row) => [row.id, row]));
    return requeued.flatMap((row) => {
      const { stream, fingerprint, error_message: errorMessage } = closed.get(row.id) ?? {};
      if (stream === undefined || errorMessage === undefined) return [];
      return [{ ...row, stream, fingerprint: fingerprint ?? "", errorMessage }];
    });
  } catch (error) {
    await tx.rollback();
    throw error;
  }
}

/** A dead letter as returned by the statements that close many. */
export interface ClosedRow {
  readonly id: string;
  readonly origin: "outbox" | "consumer";
  readonly consumer: string | null;
  readonly message_id: string;
  readonly type: string;
  readonly topic: string;
  readonly reason: DeadLetter["reason"];
  readonly attempts: number;
  readonly error_message: string;
  readonly traceparent: string;
  readonly fingerprint: string | null;
  readonly held_lane: number | null;
  readonly held_seq: string | null;
}

/** Where a replayed message goes, and its data if an operator changed them. */
interface Destination {
  readonly lane: number;
  readonly stream: string | null;
  readonly newData?: string | null;
}

/** The outbox or queue row of a replayed message. `id` is that of the dead letter. */
interface RequeuedRow {
  readonly id: string;
  readonly table: "outbox" | "queue";
  readonly lane: number;
  readonly seq: string;
}

type Closed = Pick<ClosedRow, "id" | "origin" | "consumer" | "message_id" | "held_lane" | "held_seq"> &
  Destination;

/**
 * Puts the messages of closed dead letters back. A message whose outbox row blocks its key gets this row back, in its old
 * place. Any other message gets a new row in the outbox or in its consumer's queue.
 */
async function requeue(
  tx: OwnedTransaction,
  sql: DeadLetterStatements,
  closed: readonly Closed[],
): Promise<readonly RequeuedRow[]> {
  const edited = closed.filter(({ newData }) => typeof newData === "string");
  const days = await keepMessages(tx, sql, edited);
  const rearmed = await rearmHeldRows(tx, sql, closed, days);
  const others = closed.filter(({ id }) => !rearmed.has(id));
  const unedited = others.filter((row) => !edited.includes(row));
  for (const [id, day] of await keepMessages(tx, sql, unedited)) days.set(id, day);
  const held = closed
    .filter(({ id }) => rearmed.has(id))
    .map(({ id, held_lane: lane, held_seq: seq }) => ({
      id,
      table: "outbox" as const,
      lane: lane ?? 0,
      seq: seq ?? "0",
    }));
  const fromOutbox = others.filter(({ origin }) => origin === "outbox");
  const fromConsumers = others.filter(({ origin }) => origin === "consumer");
  return [
    ...held,
    ...(await insertRows(tx, sql.send, "outbox", fromOutbox, days)),
    ...(await insertRows(tx, sql.deliver, "queue", fromConsumers, days)),
  ];
}

/** Makes sure that the archive has each message, with its new data if it was edited. Returns the days of the copies. */
async function keepMessages(
  tx: OwnedTransaction,
  sql: DeadLetterStatements,
  closed: readonly Closed[],
): Promise<Map<string, string | null>> {
  if (closed.length === 0) return new Map();
  const { rows } = await tx.run<{ id: string; written_on: string | null }>(sql.keep, [
    ...destinationParams(closed),
    toArrayLiteral(closed.map(({ newData }) => newData ?? null)),
  ]);
  return new Map(rows.map(({ id, written_on: day }) => [id, day]));
}

/** Makes outbox rows that block their key due again. Returns the ids of their dead letters. */
async function rearmHeldRows(
  tx: OwnedTransaction,
  sql: DeadLetterStatements,
  closed: readonly Closed[],
  days: ReadonlyMap<string, string | null>,
): Promise<ReadonlySet<string>> {
  const held = closed.filter((row) => row.held_lane !== null);
  if (held.length === 0) return new Set();
  const edited = held.filter(({ id }) => days.has(id));
  const moved = new Set<string>();
  if (edited.length > 0) {
    const { rows } = await tx.run<{ id: string }>(sql.moveRow, [
      toArrayLiteral(edited.map(({ id }) => id)),
      toArrayLiteral(edited.map(({ id }) => days.get(id) ?? null)),
    ]);
    for (const { id } of rows) moved.add(id);
  }
  const { rows } = await tx.run<{ id: string }>(sql.rearm, [toArrayLiteral(held.map(({ id }) => id))]);
  const rearmed = new Set(rows.map(({ id }) => id));
  // Roll back: otherwise the old data would be sent while the audit log records the new data.
  const stale = edited.find(({ id }) => rearmed.has(id) && !moved.has(id));
  if (stale !== undefined)
    throw new Error(
      `dead letter ${stale.id} blocks its key, but its edited data could not be stored in the outbox row`,
    );
  return rearmed;
}

async function insertRows(
  tx: OwnedTransaction,
  statement: DeadLetterStatements["send" | "deliver"],
  table: RequeuedRow["table"],
  closed: readonly Closed[],
  days: ReadonlyMap<string, string | null>,
): Promise<readonly RequeuedRow[]> {
  if (closed.length === 0) return [];
  const { rows } = await tx.run<{ message_id: string; lane: number; seq: string }>(statement, [
    ...destinationParams(closed),
    toArrayLiteral(closed.map(({ id }) => days.get(id) ?? null)),
  ]);
  // Roll back: otherwise dead letters would be closed without their messages being put back.
  if (rows.length < closed.length) throw groupNotFound(closed[0]?.consumer ?? "");
  const byMessage = new Map(rows.map((row) => [row.message_id, row]));
  return closed.flatMap(({ id, message_id: messageId }) => {
    const row = byMessage.get(messageId);
    return row === undefined ? [] : [{ id, table, lane: row.lane, seq: row.seq }];
  });
}

function destinationParams(closed: readonly Closed[]): readonly string[] {
  return [
    toArrayLiteral(closed.map(({ id }) => id)),
    toArrayLiteral(closed.map(({ lane }) => lane)),
    toArrayLiteral(closed.map(({ stream }) => stream)),
  ];
}

/** SHA-256 of a payload in hexadecimal, for the audit log, which stores no payloads. */
export function dataHash(data: string): string {
  return createHash("sha256").update(data).digest("hex");
}

/** Closes a dead letter as discarded. If it blocked later messages of its key, they are released. Throws DEAD_LETTER_NOT_FOUND or DEAD_LETTER_CLOSED. */
export function discardDeadLetter(
  store: DeadLetterStore,
  id: string,
  by = DEFAULT_ACTOR,
): Promise<DeadLetter> {
  return closeAudited(store, id, { as: "discarded", by }, async (tx, row) => {
    if (row.held_lane !== null) await tx.run(store.sql.freeKeys, [toArrayLiteral([id])]);
    return toDeadLetter(row);
  });
}

interface CloseOptions {
  readonly as: "replayed" | "discarded";
  readonly by: By;
  readonly edit?: Edit | undefined;
}

// The audit entry commits with the change. A refused or failed attempt gets an entry as well.
async function closeAudited<T>(
  store: DeadLetterStore,
  id: string,
  { as, by, edit }: CloseOptions,
  work: (tx: OwnedTransaction, row: DeadLetterRow) => Promise<T>,
): Promise<T> {
  const action =
    edit !== undefined ? "dead_letter.edit" : `dead_letter.${as === "replayed" ? "replay" : "discard"}`;
  const entry = { ...by, action, target: { kind: "dead_letter", id: String(id) } };
  return store.audit.runAudited(store.database, entry, async (note) => {
    assertId(id);
    const tx = await store.database.begin();
    try {
      const [row] = (await tx.run<DeadLetterRow>(store.sql.close, [id, as])).rows;
      if (row === undefined) {
        await tx.rollback();
        throw alreadyClosed(await readDeadLetter(store, id));
      }
      const done = await work(tx, row);
      await note(tx, auditDetails(row, as, edit));
      await tx.commit();
      return done;
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  });
}

function auditDetails(row: DeadLetterRow, as: string, edit: Edit | undefined): Details {
  const { traceId, before, after } = closingDetails(row, as);
  if (edit === undefined) return { traceId, before, after };
  return {
    traceId,
    before: { ...before, dataHash: dataHash(row.data) },
    after: { ...after, dataHash: dataHash(edit.data), contract: edit.contract },
  };
}

/** Returns the audit entry of one of many dead letters that were closed together. */
export function toAuditEntry(row: ClosedRow, action: "replay" | "discard", by: By): AuditEntry {
  const details = closingDetails(row, action === "replay" ? "replayed" : "discarded");
  return { ...by, ...details, action: `dead_letter.${action}`, target: { kind: "dead_letter", id: row.id } };
}

function closingDetails(
  row: Pick<ClosedRow, "origin" | "consumer" | "reason" | "attempts" | "fingerprint" | "message_id"> &
    Pick<Message, "type" | "topic" | "traceparent">,
  as: string,
) {
  const { origin, consumer, reason, attempts, fingerprint, type, topic, message_id: messageId } = row;
  return {
    traceId: parseTraceparent(row.traceparent)?.traceId ?? null,
    before: { state: "open", reason, attempts },
    after: { state: as, origin, consumer, messageId, type, topic, fingerprint },
  };
}

function alreadyClosed(letter: DeadLetter): SagaboxError {
  return new SagaboxError(
    "DEAD_LETTER_CLOSED",
    `Dead letter ${letter.id} was ${letter.closedAs ?? "closed"} at ${letter.closedAt ?? "an unknown time"}; nothing was done.`,
  );
}

function groupNotFound(consumer: string): SagaboxError {
  return new SagaboxError(
    "TRANSPORT_UNROUTABLE",
    `No worker of consumer "${consumer}" has ever read from the tables of this database, so nothing was replayed to it. ` +
      "Start the consumer once, or discard its dead letters.",
  );
}
