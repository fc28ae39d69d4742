import { computeFingerprint } from "../../dead-letter/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { text } from "../../options/index.ts";
import { readOperator } from "../sagas/saga-admin.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";

export interface BuryOptions {
  readonly actor: string;
  readonly reason: string;
  /** Whose delivery, where the message waits in several places. Null for the outbox. */
  readonly consumer?: string | null;
}

export interface BuriedMessage {
  readonly letter: string;
  readonly messageId: string;
  /** Null: it was waiting to be sent. */
  readonly consumer: string | null;
}

/** A place where a message waits. */
export interface WaitingRow {
  readonly line: "outbox" | "queue";
  readonly lane: number;
  readonly seq: string;
  readonly consumer: string | null;
  readonly type: string;
  readonly attempts: number;
}

/**
 * Puts a message that waits to be sent, or for one consumer, among the dead letters, from where it may be replayed or
 * discarded. A handler that has it in hand loses it and rolls back; what a relay may be sending is left alone.
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
    const place = await findWaitingRow(admin, id, options.consumer);
    const { line, lane, seq, consumer, type, attempts } = place;
    const why = { consumer, type, reason: "buried", errorType: "Buried", errorMessage: by.reason } as const;
    const tx = await store.database.begin();
    try {
      const statement = line === "outbox" ? sql.buryWaiting : sql.buryDelivery;
      const { rows } = await tx.run<{ letter: string | null }>(statement, [
        lane,
        seq,
        id,
        computeFingerprint(why),
        by.reason,
      ]);
      const letter = rows[0]?.letter ?? null;
      if (letter === null) throw messageInFlight(id, place);
      await note(tx, {
        before: { state: "waiting", line, consumer, attempts },
        after: { state: "open", letter, type },
      });
      await tx.commit();
      await wake([lane]);
      return { letter, messageId: id, consumer };
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  });
}

/** Where the message waits: the only place, or the one that is named. */
export async function findWaitingRow(
  { store, sql }: DeadLetterAdmin,
  id: string,
  consumer: string | null | undefined,
): Promise<WaitingRow> {
  const { rows } = await store.database.run<WaitingRow>(sql.waiting, [id]);
  const found = consumer === undefined ? rows : rows.filter((row) => row.consumer === consumer);
  const [place] = found;
  if (place !== undefined && found.length === 1) return place;
  if (place === undefined)
    throw burialRefused(
      id,
      `it waits nowhere${consumer === undefined || consumer === null ? "" : ` for ${consumer}`}`,
    );
  const names = found.map((row) => row.consumer ?? "the outbox").join(", ");
  throw burialRefused(id, `it waits in ${found.length} places, so one must be named: ${names}`);
}

function messageInFlight(id: string, { line }: WaitingRow): SagaboxError {
  const why =
    line === "outbox"
      ? "it is due and a relay runs, which may be sending it this moment"
      : "it was settled meanwhile";
  return burialRefused(id, why);
}

function burialRefused(id: string, why: string): SagaboxError {
  return new SagaboxError(
    "BURIAL_REFUSED",
    `Message ${id} was not buried: ${why}. See where it is: sagabox explain ${id}`,
  );
}
