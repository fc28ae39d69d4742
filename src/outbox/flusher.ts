import { systemClock } from "../runtime/index.ts";
import { quoteSchema, type Database } from "../storage/index.ts";
import { leasedRowKeys, type OptimisticSender } from "./optimistic-sender.ts";
import { settleStatements } from "./statements.ts";
import type { LeasedMessage } from "./writer.ts";

/** Above this number of unflushed messages the oldest are left to the relay. */
const MAX_WAITING = 10_000;

interface WaitingMessage {
  readonly message: LeasedMessage;
  readonly writtenAtMs: number;
}

/**
 * Sends messages that were written in the caller's own transaction and leased to this process, once the
 * caller says that it has committed. Only rows that are committed are sent, so a rolled-back message never
 * is.
 */
export class Flusher {
  readonly #database: Database;
  readonly #sender: OptimisticSender;
  readonly #sql: ReturnType<typeof settleStatements>;
  #waiting: WaitingMessage[] = [];

  constructor(database: Database, schema: string, sender: OptimisticSender) {
    this.#database = database;
    this.#sender = sender;
    this.#sql = settleStatements(quoteSchema(schema));
  }

  keep(messages: readonly LeasedMessage[], writtenAtMs: number): void {
    for (const message of messages) this.#waiting.push({ message, writtenAtMs });
    if (this.#waiting.length > MAX_WAITING) this.#waiting.splice(0, this.#waiting.length - MAX_WAITING);
  }

  async flush(): Promise<void> {
    const oldestMs = systemClock.monotonicMs() - this.#sender.leaseMs / 2;
    const waiting = this.#waiting.filter((entry) => entry.writtenAtMs > oldestMs);
    this.#waiting = [];
    if (waiting.length === 0) return;
    const { rows } = await this.#database.run<{ seq: string }>(
      this.#sql.committedLeased,
      leasedRowKeys(waiting.map(({ message }) => message)),
    );
    const committed = new Set(rows.map((row) => Number(row.seq)));
    for (const entry of waiting) {
      if (committed.has(entry.message.seq)) this.#sender.send([entry.message], entry.writtenAtMs);
      else this.#waiting.push(entry); // its transaction may still be open
    }
  }
}
