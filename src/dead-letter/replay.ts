import { createHash } from "node:crypto";
import type { By, Details } from "../audit/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { laneFor, parseTraceparent, streamFor, type Message } from "../message/index.ts";
import type { OwnedTransaction } from "../storage/index.ts";
import { toDeadLetter, type DeadLetter, type DeadLetterRow, type DeadLetterStore } from "./dead-letter.ts";
import { assertId, readDeadLetter } from "./search.ts";
import type { DeadLetterStatements } from "./statements.ts";

/** Where the message waits now, so that whoever works on that lane can be woken. */
export interface ReplayedDeadLetter {
  readonly letter: DeadLetter;
  readonly table: "outbox" | "queue";
  readonly lane: number;
}

/** Who acts when nobody says so. */
const DEFAULT_ACTOR: By = { actor: "code" };

/** Other data for a message, as a person wants it to be replayed. */
export interface Edit {
  /** JSON, as it is stored. */
  readonly data: string;
  /** Name and version of the contract it was checked against; null when there was none. */
  readonly contract: string | null;
}

/**
 * Back to life, once: closes the letter and puts the message where it failed, in one transaction, under its own id
 * and with all its attempts. What was handled in the meantime is recognised by that id; an expired message gets
 * through, since a person asked for it. With an edit the consumer gets those data; the letter keeps what was.
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
        // Rolls everything back: its old data would go out, and everybody be told that the new ones did.
        if (!moved) throw new Error(`letter ${id} holds its place, and its new data were not put there`);
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

/** What payloads are compared by where they must not be shown. */
export function dataHash(data: string): string {
  return createHash("sha256").update(data).digest("hex");
}

/** Closes the letter for good. Where it held its key back, the key goes on. */
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

// The line of the audit log is written with the deed; one that is refused or fails is written as well.
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

/** What the audit log says about a letter that was closed. */
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
    `No worker of consumer "${letter.consumer ?? ""}" has ever read from the tables of this database, so letter ${letter.id} ` +
      "would lie there unread. Start the consumer once, or discard the letter.",
  );
}
