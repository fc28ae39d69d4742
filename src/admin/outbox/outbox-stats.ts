import { quoteSchema, type Database } from "../../storage/index.ts";
import { outboxStatements } from "./statements.ts";

export interface TopicStats {
  readonly topic: string;
  readonly type: string;
  readonly waiting: number;
  /** Of those that wait: tried before. */
  readonly failed: number;
  /** Dead, and keeping their key standing still. */
  readonly held: number;
  readonly scheduled: number;
  readonly mostAttempts: number;
  readonly oldestDueSeconds: number | null;
}

export interface OutboxStats {
  /** False when there is more than was counted. */
  readonly exact: boolean;
  readonly topics: readonly TopicStats[];
}

const MAX_COUNTED = 500_000;

/** What is still to be sent by topic and type, most first. */
export async function outboxStats(database: Database, schema: string): Promise<OutboxStats> {
  const { stats } = outboxStatements(quoteSchema(schema));
  const { rows } = await database.run<Row>(stats, [MAX_COUNTED]);
  return {
    exact: rows[0]?.exact ?? true,
    topics: rows.map((row) => ({
      topic: row.topic,
      type: row.type,
      waiting: row.waiting,
      failed: row.failed,
      held: row.held,
      scheduled: row.scheduled,
      mostAttempts: row.most_attempts,
      oldestDueSeconds: row.oldest_due_seconds === null ? null : Math.round(row.oldest_due_seconds * 10) / 10,
    })),
  };
}

interface Row {
  readonly topic: string;
  readonly type: string;
  readonly waiting: number;
  readonly failed: number;
  readonly held: number;
  readonly scheduled: number;
  readonly most_attempts: number;
  readonly oldest_due_seconds: number | null;
  readonly exact: boolean;
}
