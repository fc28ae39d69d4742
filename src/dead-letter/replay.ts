import { SagaboxError } from "../errors/index.ts";
import { laneOf, streamOf } from "../message/index.ts";
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

/**
 * Back to life, once: closes the letter and puts the message where it failed, in one transaction, under its own id
 * and with all its attempts. What was handled in the meantime is recognised by that id; an expired message gets
 * through, since a person asked for it.
 */
export function replayDeadLetter(store: DeadLetterStore, id: string): Promise<Replayed> {
  return closing(store, id, "replayed", async (tx, letter) => {
    const { key, topic, id: messageId } = letter.message;
    if (
      letter.held !== null &&
      (await tx.run(store.sql.rearm, [letter.held.lane, letter.held.seq])).rowCount > 0
    ) {
      return { letter, table: "outbox", lane: letter.held.lane };
    }
    const lane = laneOf(key ?? messageId);
    const stream = key === null ? null : streamOf(topic, key);
    const kept = await tx.run<{ written_on: string }>(store.sql.keepMessage, [id, messageId, lane]);
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
export function discardDeadLetter(store: DeadLetterStore, id: string): Promise<DeadLetter> {
  return closing(store, id, "discarded", async (tx, letter) => {
    if (letter.held !== null) await tx.run(store.sql.freeKey, [letter.held.lane, letter.held.seq]);
    return letter;
  });
}

async function closing<T>(
  store: DeadLetterStore,
  id: string,
  as: "replayed" | "discarded",
  work: (tx: OwnedTransaction, letter: DeadLetter) => Promise<T>,
): Promise<T> {
  assertId(id);
  const tx = await store.database.begin();
  try {
    const letter = await close(tx, store.sql, id, as);
    if (letter === undefined) {
      await tx.rollback();
      throw closed(await readDeadLetter(store, id));
    }
    const done = await work(tx, letter);
    await tx.commit();
    return done;
  } catch (error) {
    await tx.rollback();
    throw error;
  }
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
