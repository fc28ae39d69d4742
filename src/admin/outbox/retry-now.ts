import { AuditWriter } from "../../audit/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { encodeChangedHints, wakeUpChannel } from "../../lanes/index.ts";
import { text } from "../../options/index.ts";
import type { Operator } from "../../saga/index.ts";
import { notify, quoteSchema, type Database } from "../../storage/index.ts";
import { readOperator } from "../sagas/saga-admin.ts";
import { outboxStatements } from "./statements.ts";

export interface RetriedMessage {
  readonly messageId: string;
  readonly lane: number;
  /** How often it was tried before. */
  readonly attempts: number;
  /** When it would have been tried next. */
  readonly wasDueAt: string;
}

/** Has a message tried at once that could not be sent and waits for its next time. Its attempts stay as they are. */
export async function retryNow(
  database: Database,
  schema: string,
  messageId: string,
  by: Operator,
): Promise<RetriedMessage> {
  text("outbox retry-now: the message id", messageId, { max: 255 });
  const entry = {
    ...readOperator("outbox retry-now", by),
    action: "outbox.retry_now",
    target: { kind: "message", id: messageId },
  };
  const { retryNow: retry } = outboxStatements(quoteSchema(schema));
  const retried = await new AuditWriter(schema).runAudited(database, entry, async (note) => {
    const tx = await database.begin();
    try {
      const [row] = (await tx.run<Row>(retry, [messageId])).rows;
      if (row === undefined) throw notFailed(messageId);
      await note(tx, { before: { dueAt: row.was_due } });
      await tx.commit();
      return { messageId, lane: row.lane, attempts: row.attempts, wasDueAt: row.was_due };
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  });
  // Lost, it costs no more than the longest pause of a relay.
  for (const hint of encodeChangedHints([retried.lane])) {
    await notify(database, wakeUpChannel(schema), hint).catch(() => undefined);
  }
  return retried;
}

interface Row {
  readonly lane: number;
  readonly attempts: number;
  readonly was_due: string;
}

function notFailed(id: string): SagaboxError {
  return new SagaboxError(
    "MESSAGE_NOT_FOUND",
    `Message ${JSON.stringify(id)} does not wait for another try: it was sent, is dead, is due already, or is not in this ` +
      "database. `sagabox explain` says which.",
  );
}
