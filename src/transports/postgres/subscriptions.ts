import {
  quoteSchema,
  toArrayLiteral,
  type Database,
  type OwnedTransaction,
  type Queryable,
} from "../../storage/index.ts";
import type { Beginning, TopicRequest } from "../../transport/index.ts";
import { readHorizon, blockLocalHops } from "./block-local-hops.ts";
import { subscribeStatements, type SubscribeStatements } from "./subscribe-statements.ts";

interface SubscribeContext {
  readonly database: Database;
  readonly schema: string;
  readonly sql: SubscribeStatements;
  readonly group: number;
  /** Asked for once: an earlier day is as good for the topics that follow. */
  readonly horizon: { day?: string };
}

/** A group by its number, and the topics that it is new to. */
export interface GroupSubscription {
  readonly id: number;
  readonly begun: readonly Beginning[];
}

/** Makes sure that the group and its lanes exist and that it is subscribed to these topics. */
export async function subscribeGroup(
  database: Database,
  schema: string,
  group: string,
  topics: readonly TopicRequest[],
): Promise<GroupSubscription> {
  const sql = subscribeStatements(quoteSchema(schema));
  await database.run(sql.createGroup, [group]);
  const { rows } = await database.run<{ id: number }>(sql.findGroup, [group]);
  const id = rows[0]?.id;
  if (id === undefined) throw new Error(`consumer group ${group} vanished while it was being made`);
  await database.run(sql.createLanes, [id]);
  const joining = { database, schema, sql, group: id, horizon: {} };
  const begun: Beginning[] = [];
  for (const request of topics) begun.push(...(await subscribeTopic(joining, request)));
  return { id, begun };
}

async function subscribeTopic(
  joining: SubscribeContext,
  { topic, from }: TopicRequest,
): Promise<Beginning[]> {
  const { database, sql, group } = joining;
  const standing = await readSubscriptionState(database, joining, topic);
  if (standing.now === "subscribed") return [];
  if (from !== "now" && wantsPast(from, standing)) {
    const past = await subscribeWithPast(joining, topic, from);
    if (past !== "others came first") return [{ topic, from: past }];
  }
  const { rows } = await database.run(sql.subscribe, [topic, group]);
  return rows.length > 0 ? [{ topic, from: "now" }] : [];
}

interface SubscriptionState {
  readonly now: "subscribed" | "claimed by others" | "unclaimed";
  /** Until then the topic had a consumer, which was retired. */
  readonly retiredAt: string | null;
}
type WithPast = Exclude<TopicRequest["from"], "now">;

async function readSubscriptionState(
  asked: Queryable,
  { sql, group }: SubscribeContext,
  topic: string,
): Promise<SubscriptionState> {
  const [row] = (await asked.run<SubscriptionStateRow>(sql.standing, [topic, group])).rows;
  const others = row?.claimed === true ? "claimed by others" : "unclaimed";
  return { now: row?.present === true ? "subscribed" : others, retiredAt: row?.retired_at ?? null };
}

interface SubscriptionStateRow {
  readonly present: boolean;
  readonly claimed: boolean;
  readonly retired_at: string | null;
}

function wantsPast(from: WithPast, { now }: SubscriptionState): boolean {
  return now === "unclaimed" || (now === "claimed by others" && from !== "unclaimed");
}

// What was sent to a consumer that was retired since is not unclaimed: it would be carried out a second time.
function findHistoryStart(from: WithPast, { retiredAt }: SubscriptionState): string {
  if (typeof from === "object") return from.time.toISOString();
  return from === "unclaimed" ? (retiredAt ?? "-infinity") : "-infinity";
}

/**
 * History is copied in the same transaction that makes the subscription visible, so every message is either in the copy
 * or meets the subscription, never both and never neither. The long look through the history keeps nobody out; only what
 * has left the outbox since is copied while no hop is under way, and that is looked for in the last days alone.
 */
async function subscribeWithPast(
  joining: SubscribeContext,
  topic: string,
  from: WithPast,
): Promise<Beginning["from"] | "others came first"> {
  const { database, schema, sql, group, horizon } = joining;
  const tx = await database.begin();
  try {
    await tx.run(sql.inTurn, [schema]);
    const standing = await readSubscriptionState(tx, joining, topic);
    if (!wantsPast(from, standing)) return await rollBackLateJoin(tx);
    const since = findHistoryStart(from, standing);
    const day = (horizon.day ??= await readHorizon(tx, sql));
    const past = await tx.run<{ stayed: readonly string[] }>(sql.copyPast, [topic, group, since, day]);
    await blockLocalHops(tx, sql);
    const { rows: made } = await tx.run<{ others: number }>(sql.subscribe, [topic, group]);
    const [mine] = made;
    if (mine === undefined || (from === "unclaimed" && mine.others > 0)) return await rollBackLateJoin(tx);
    const stayed = toArrayLiteral(past.rows[0]?.stayed ?? []);
    await tx.run(sql.copyRest, [topic, group, since, day, stayed]);
    await tx.commit();
    return since === "-infinity" ? "beginning" : { time: new Date(since) };
  } catch (error) {
    await tx.rollback();
    throw error;
  }
}

// Another member of this group, or a group that claimed the topic first: no copy is wanted.
async function rollBackLateJoin(tx: OwnedTransaction): Promise<"others came first"> {
  await tx.rollback();
  return "others came first";
}
