import { quotedSchema, type Database } from "../../storage/index.ts";
import { depthStatements } from "./statements.ts";

export interface BacklogSize {
  readonly pending: number;
  readonly oldestMs: number;
  readonly deadLetters: number;
}

/** How much is waiting, estimated cheaply; how long its oldest message has waited; how many dead letters are open. */
export async function measureBacklog(database: Database, schema: string): Promise<BacklogSize> {
  const { backlog } = depthStatements(quotedSchema(schema));
  const { rows } = await database.run<{ pending: number; oldest_ms: number; dead_letters: number }>(backlog);
  const row = rows[0] ?? { pending: 0, oldest_ms: 0, dead_letters: 0 };
  return { pending: row.pending, oldestMs: row.oldest_ms, deadLetters: row.dead_letters };
}
