import { quoteSchema, type OwnedTransaction } from "../../storage/index.ts";
import { blockLocalHops } from "./block-local-hops.ts";
import { subscribeStatements } from "./subscribe-statements.ts";

/** How much of a group was taken away. */
export interface RetiredGroup {
  readonly subscriptions: number;
  readonly deliveries: number;
}

/**
 * Takes a group's subscriptions and deliveries away, in the caller's transaction. Most go while hops go on; what a hop that
 * had read the subscriptions brought meanwhile goes while none is under way. Undefined when a member of the group lives:
 * the caller rolls back.
 */
export async function retireGroup(
  tx: OwnedTransaction,
  schema: string,
  group: number,
): Promise<RetiredGroup | undefined> {
  const sql = subscribeStatements(quoteSchema(schema));
  const [most] = (await tx.run<RetiredGroup>(sql.retire, [group])).rows;
  if (most === undefined) return undefined;
  await blockLocalHops(tx, sql);
  const [rest] = (await tx.run<RetiredGroup>(sql.retire, [group])).rows;
  if (rest === undefined) return undefined;
  return {
    subscriptions: most.subscriptions + rest.subscriptions,
    deliveries: most.deliveries + rest.deliveries,
  };
}
