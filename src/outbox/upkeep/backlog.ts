import { quoteSchema, type Database } from "../../storage/index.ts";
import { estimate, type SampledTopic } from "./depths.ts";
import { depthStatements } from "./statements.ts";

export interface BacklogSize {
  readonly pending: number;
  readonly oldestMs: number;
  readonly deadLetters: number;
  readonly unownedLanes: number;
}

export interface DeadLetterCount {
  /** `outbox` for messages that could not be sent. */
  readonly consumer: string;
  readonly type: string;
  readonly count: number;
}

interface BacklogRow {
  readonly pending: number;
  readonly oldest_ms: number;
  readonly dead_letters: number;
  readonly unowned: number;
}

/**
 * Measures the backlog: waiting messages (an estimate), the age of the oldest one, open dead letters, and
 * lanes without an owner.
 */
export async function measureBacklog(database: Database, schema: string): Promise<BacklogSize> {
  const { backlog } = depthStatements(quoteSchema(schema));
  const { rows } = await database.run<BacklogRow>(backlog);
  const row = rows[0] ?? { pending: 0, oldest_ms: 0, dead_letters: 0, unowned: 0 };
  return {
    pending: row.pending,
    oldestMs: row.oldest_ms,
    deadLetters: row.dead_letters,
    unownedLanes: row.unowned,
  };
}

/**
 * Estimates per topic how many messages wait in the queue of the Postgres transport for their slowest group.
 */
export async function measureQueue(database: Database, schema: string): Promise<ReadonlyMap<string, number>> {
  const { rows } = await database.run<SampledTopic>(depthStatements(quoteSchema(schema)).queued);
  return new Map(rows.map((row) => [row.topic, estimate(row)]));
}

/** Returns the consumers and types with the most open dead letters, at most fifty. */
export async function measureDeadLetters(
  database: Database,
  schema: string,
): Promise<readonly DeadLetterCount[]> {
  const { rows } = await database.run<DeadLetterCount>(depthStatements(quoteSchema(schema)).deadLetters);
  return rows;
}
