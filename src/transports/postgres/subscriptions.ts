import { quotedSchema, type Database } from "../../storage/index.ts";
import type { TopicRequest } from "../../transport/index.ts";
import { queueStatements } from "./statements.ts";

/** Makes sure that the group and its lanes exist and that it is subscribed to these topics; returns its number. */
export async function subscribeGroup(
  database: Database,
  schema: string,
  group: string,
  topics: readonly TopicRequest[],
): Promise<number> {
  const sql = queueStatements(quotedSchema(schema));
  await database.run(sql.createGroup, [group]);
  const { rows } = await database.run<{ id: number }>(sql.findGroup, [group]);
  const id = rows[0]?.id;
  if (id === undefined) throw new Error(`consumer group ${group} vanished while it was being made`);
  await database.run(sql.createLanes, [id]);
  for (const request of topics) await subscribeTopic(database, schema, id, request);
  return id;
}

// With "beginning" or a time, history is copied in the same transaction that makes the subscription visible, while no hop is
// under way: every message is either in the copy or meets the subscription, never both and never neither.
async function subscribeTopic(
  database: Database,
  schema: string,
  group: number,
  { topic, from }: TopicRequest,
): Promise<void> {
  const sql = queueStatements(quotedSchema(schema));
  const { rows } = await database.run<{ present: boolean }>(sql.hasSubscription, [topic, group]);
  if (rows[0]?.present === true) return;
  const tx = await database.begin();
  try {
    if (from !== "now") await tx.run(sql.lockSubscriptions);
    const { rows: made } = await tx.run<{ others: number }>(sql.subscribe, [topic, group]);
    const first = made[0]?.others === 0;
    const since = typeof from === "object" ? from.time.toISOString() : "-infinity";
    if (made.length > 0 && from !== "now" && (from !== "unclaimed" || first)) {
      await tx.run(sql.backfill, [topic, group, since]);
    }
    await tx.commit();
  } catch (error) {
    await tx.rollback();
    throw error;
  }
}
