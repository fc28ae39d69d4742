import { laneFor, streamFor, type Message } from "../../src/message/index.ts";
import { OutboxWriter, type Outgoing } from "../../src/outbox/index.ts";
import { pgDatabase } from "../../src/storage/index.ts";
import { temporaryDatabase } from "./database.ts";
import { aMessage } from "./messages.ts";
import { RecordingObserver } from "./recording-observer.ts";

export interface OutboxRow {
  readonly message?: Partial<Message>;
  readonly delayMs?: number;
  readonly ownId?: boolean;
}

/** A message ready to be written; say only what the test is about. */
export function anOutgoing({ message = {}, delayMs, ownId = false }: OutboxRow = {}): Outgoing {
  const whole = aMessage(message);
  return {
    message: whole,
    lane: laneFor(whole.key ?? whole.id),
    stream: whole.key === null ? null : streamFor(whole.topic, whole.key),
    maxAttempts: 10,
    holdsOnDeath: false,
    strict: false,
    ttlMs: null,
    schedule: delayMs === undefined ? null : { delayMs, atMs: null },
    ownId,
    flush: false,
  };
}

/** A migrated schema `sagabox` in a database of the test's own, and the means to fill and read it. */
export async function outboxDatabase() {
  const { pool } = await temporaryDatabase({ migrated: true });
  const database = pgDatabase(pool);
  const observer = new RecordingObserver();
  const writer = new OutboxWriter("sagabox", observer);
  const rows = async <R = Record<string, unknown>>(sql: string, params: unknown[] = []): Promise<R[]> =>
    (await pool.query(sql, params)).rows as R[];
  const write = async (...wanted: readonly OutboxRow[]): Promise<readonly string[]> => [
    ...(await writer.write(database, wanted.map(anOutgoing))),
  ];
  return { pool, database, observer, writer, rows, write };
}
