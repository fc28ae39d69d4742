import { ensurePartitions } from "../../outbox/index.ts";
import { migrateUp, type Database, type Migration } from "../../storage/index.ts";

/**
 * Applies what is missing, and makes the partitions of the next days before anybody publishes: one that is attached later
 * may get in the way of a message for its day. Resolves with the migrations it applied.
 */
export async function migrateSchema(database: Database, schema: string): Promise<readonly Migration[]> {
  const applied = await migrateUp(database, schema);
  await ensurePartitions(database, schema);
  return applied;
}
