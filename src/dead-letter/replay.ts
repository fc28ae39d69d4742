import type { By, Details } from "../audit/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { laneOf, parseTraceparent, streamOf } from "../message/index.ts";
import type { OwnedTransaction } from "../storage/index.ts";
import { deadLetterOf, type DeadLetter, type DeadLetterRow, type DeadLetterStore } from "./dead-letter.ts";
import { assertId, readDeadLetter } from "./search.ts";
import type { DeadLetterStatements } from "./statements.ts";

/** Where the message waits now, so that whoever works on that lane can be woken. */
export interface Replayed {
  readonly letter: DeadLetter;
  readonly table: "outbox" | "queue";
  readonly lane: number;
}

/** Who acts when nobody says so. */
const NOBODY: By = { actor: "code" };

/**
 * Back to life, once: closes the letter and puts the message where it failed, in one transaction, under its own id
 * and with all its attempts. What was handled in the meantime is recognised by that id; an expired message gets
 * through, since a person asked for it.
 */
export function replayDeadLetter(store: DeadLetterStore, id: string, by = NOBODY): Promise<Replayed> {
  return closing(store, id, { as: "replayed", by }, async (tx, letter) => {
    const { key, topic, id: messageId } = letter.message;
    if (letter.held !== null && (await tx.run(store.sql.rearm, [id])).rowCount > 0) {
      return { letter, table: "outbox", lane: letter.held.lane };
    }
    const lane = laneOf(key ?? messageId);
    const stream = key === null ? null : streamOf(topic, key);
    const kept = await tx.run<{ written_on: string }>(store.sql.keepMessage, [id, lane]);
    const where = [id, lane, stream, kept.rows[0]?.written_on ?? null];
    if (letter.origin === "outbox") {
      await tx.run(store.sql.sendAgain, where);
      return { letter, table: "outbox", lane };
    }
    const delivered = await tx.run<{ lane: number }>(store.sql.deliverAgain, where);
    if (delivered.rows[0] === undefined) throw noGroup(letter);
    return { letter, table: "queue", lane: delivered.rows[0].lane };
  });
}

/** Closes the letter for good. Where it held its key back, the key goes on. */
export function discardDeadLetter(store: DeadLetterStore, id: string, by = NOBODY): Promise<DeadLetter> {
  return closing(store, id, { as: "discarded", by }, async (tx, letter) => {
    if (letter.held !== null) await tx.run(store.sql.freeKey, [id]);
    return letter;
  });
}

interface Closing {
  readonly as: "replayed" | "discarded";
  readonly by: By;
}

// The line of the audit log is written with the deed; one that is refused or fails is written as well.
async function closing<T>(
  store: DeadLetterStore,
  id: string,
  { as, by }: Closing,
  work: (tx: OwnedTransaction, letter: DeadLetter) => Promise<T>,
): Promise<T> {
  const action = as === "replayed" ? "dead_letter.replay" : "dead_letter.discard";
  const entry = { ...by, action, target: { kind: "dead_letter", id: String(id) } };
  return store.audit.audited(store.database, entry, async (note) => {
    assertId(id);
    const tx = await store.database.begin();
    try {
      const letter = await close(tx, store.sql, id, as);
      if (letter === undefined) {
        await tx.rollback();
        throw closed(await readDeadLetter(store, id));
      }
      const done = await work(tx, letter);
      await note(tx, details(letter, as));
      await tx.commit();
      return done;
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  });
}

function details({ origin, consumer, reason, attempts, message }: DeadLetter, as: string): Details {
  const { id, type, topic, traceparent } = message;
  return {
    traceId: parseTraceparent(traceparent)?.traceId ?? null,
    before: { state: "open", reason, attempts },
    after: { state: as, origin, consumer, messageId: id, type, topic },
  };
}

async function close(
  tx: OwnedTransaction,
  sql: DeadLetterStatements,
  id: string,
  as: string,
): Promise<DeadLetter | undefined> {
  const { rows } = await tx.run<DeadLetterRow>(sql.close, [id, as]);
  return rows[0] === undefined ? undefined : deadLetterOf(rows[0]);
}

function closed(letter: DeadLetter): SagaboxError {
  return new SagaboxError(
    "DEAD_LETTER_CLOSED",
    `Dead letter ${letter.id} was ${letter.closedAs ?? "closed"} at ${letter.closedAt ?? "an unknown time"}; nothing was done.`,
  );
}

function noGroup(letter: DeadLetter): SagaboxError {
  return new SagaboxError(
    "TRANSPORT_UNROUTABLE",
    `Consumer group "${letter.consumer ?? ""}" does not exist in this database, so letter ${letter.id} cannot be ` +
      "delivered to it. Start the consumer once, or discard the letter.",
  );
}
