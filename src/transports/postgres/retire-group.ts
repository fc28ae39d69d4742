import { quoteSchema, type OwnedTransaction } from "../../storage/index.ts";
import { blockLocalHops } from "./block-local-hops.ts";
import { subscribeStatements } from "./subscribe-statements.ts";

/** The number of rows deleted for a retired group. */
export interface RetiredGroup {
  readonly subscriptions: number;
  readonly deliveries: number;
}

/**
 * Deletes a group's subscriptions and deliveries in the caller's transaction. Most are deleted while hops continue;
 * the deliveries of hops that were running are deleted while hops are blocked. Returns undefined if a member of the
 * group is alive; the caller then rolls back.
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
