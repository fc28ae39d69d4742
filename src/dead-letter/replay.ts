import { createHash } from "node:crypto";
import type { By, Details } from "../audit/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { laneFor, parseTraceparent, streamFor, type Message } from "../message/index.ts";
import type { OwnedTransaction } from "../storage/index.ts";
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
  return closeAudited(store, id, { as: "replayed", by, edit }, async (tx, letter) => {
    const { key, topic, id: messageId } = letter.message;
    const { sql } = store;
    const lane = laneFor(key ?? messageId);
    const stream = key === null ? null : streamFor(topic, key);
    const edited =
      edit === undefined ? undefined : await storeEdited(tx, sql, letter, { lane, stream, by, edit });
    if (letter.held !== null) {
      const moved = edited === undefined || (await tx.run(sql.movePlace, [id, edited])).rowCount > 0;
      if ((await tx.run(sql.rearm, [id])).rowCount > 0) {
        // Roll back: otherwise the old data would be sent while the audit log records the new data.
        if (!moved)
          throw new Error(
            `dead letter ${id} blocks its key, but its edited data could not be stored in the outbox row`,
          );
        return { letter, table: "outbox", lane: letter.held.lane };
      }
    }
    const kept = edited ?? (await tx.run<KeptRow>(sql.keepMessage, [id, lane, stream])).rows[0]?.written_on;
    const where = [id, lane, stream, kept ?? null];
    if (letter.origin === "outbox") {
      await tx.run(sql.sendAgain, where);
      return { letter, table: "outbox", lane };
    }
    const delivered = await tx.run<{ lane: number }>(sql.deliverAgain, where);
    if (delivered.rows[0] === undefined) throw groupNotFound(letter);
    return { letter, table: "queue", lane: delivered.rows[0].lane };
  });
}

type KeptRow = { readonly written_on: string };

async function storeEdited(
  tx: OwnedTransaction,
  sql: DeadLetterStatements,
  { id, message }: DeadLetter,
  {
    lane,
    stream,
    by,
    edit,
  }: {
    readonly lane: number;
    readonly stream: string | null;
    readonly by: By;
    readonly edit: Edit;
  },
): Promise<string | undefined> {
  const [before, after] = [dataHash(message.data), dataHash(edit.data)];
  await tx.run(sql.noteEdit, [id, by.actor, by.reason ?? "", before, after, edit.contract]);
  const { rows } = await tx.run<KeptRow>(sql.keepCopy, [id, lane, stream, edit.data]);
  return rows[0]?.written_on;
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
  return closeAudited(store, id, { as: "discarded", by }, async (tx, letter) => {
    if (letter.held !== null) await tx.run(store.sql.freeKey, [id]);
    return letter;
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
  work: (tx: OwnedTransaction, letter: DeadLetter) => Promise<T>,
): Promise<T> {
  const action =
    edit !== undefined ? "dead_letter.edit" : `dead_letter.${as === "replayed" ? "replay" : "discard"}`;
  const entry = { ...by, action, target: { kind: "dead_letter", id: String(id) } };
  return store.audit.runAudited(store.database, entry, async (note) => {
    assertId(id);
    const tx = await store.database.begin();
    try {
      const letter = await close(tx, store.sql, id, as);
      if (letter === undefined) {
        await tx.rollback();
        throw alreadyClosed(await readDeadLetter(store, id));
      }
      const done = await work(tx, letter);
      await note(tx, auditDetails(letter, as, edit));
      await tx.commit();
      return done;
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  });
}

function auditDetails(letter: DeadLetter, as: string, edit: Edit | undefined): Details {
  const { traceId, before, after } = closingDetails(
    { ...letter, ...letter.message, messageId: letter.message.id },
    as,
  );
  if (edit === undefined) return { traceId, before, after };
  const hashes = [dataHash(letter.message.data), dataHash(edit.data)] as const;
  return {
    traceId,
    before: { ...before, dataHash: hashes[0] },
    after: { ...after, dataHash: hashes[1], contract: edit.contract },
  };
}

/** Returns the audit details of a closed dead letter. */
export function closingDetails(
  letter: Pick<DeadLetter, "origin" | "consumer" | "reason" | "attempts" | "fingerprint"> &
    Pick<Message, "type" | "topic" | "traceparent"> & { readonly messageId: string },
  as: string,
) {
  const { origin, consumer, reason, attempts, fingerprint, type, topic, messageId } = letter;
  return {
    traceId: parseTraceparent(letter.traceparent)?.traceId ?? null,
    before: { state: "open", reason, attempts },
    after: { state: as, origin, consumer, messageId, type, topic, fingerprint },
  };
}

async function close(
  tx: OwnedTransaction,
  sql: DeadLetterStatements,
  id: string,
  as: string,
): Promise<DeadLetter | undefined> {
  const { rows } = await tx.run<DeadLetterRow>(sql.close, [id, as]);
  return rows[0] === undefined ? undefined : toDeadLetter(rows[0]);
}

function alreadyClosed(letter: DeadLetter): SagaboxError {
  return new SagaboxError(
    "DEAD_LETTER_CLOSED",
    `Dead letter ${letter.id} was ${letter.closedAs ?? "closed"} at ${letter.closedAt ?? "an unknown time"}; nothing was done.`,
  );
}

function groupNotFound(letter: DeadLetter): SagaboxError {
  return new SagaboxError(
    "TRANSPORT_UNROUTABLE",
    `No worker of consumer "${letter.consumer ?? ""}" has ever read from the tables of this database, so dead letter ${letter.id} ` +
      "would never be read. Start the consumer once, or discard the dead letter.",
  );
}
