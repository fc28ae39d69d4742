import { findNearest, SagaboxError } from "../../errors/index.ts";
import { type ConsumerStats, inboxStatements, inboxStats } from "../../inbox/index.ts";
import { type Duration, milliseconds, rejectUnknownKeys, text, wholeNumber } from "../../options/index.ts";
import { type Database, type Queryable, quoteSchema } from "../../storage/index.ts";
import { canReadContents, keysNotReadable } from "../admin-database.ts";
import { consumerStatements } from "./statements.ts";

/** Lists consumers that subscribe in this database and, unless `subscribed` is true, those that only have inbox rows. */
export async function listConsumerNames(
  database: Queryable,
  schema: string,
  { subscribed = false }: { readonly subscribed?: boolean } = {},
): Promise<readonly string[]> {
  const { names } = consumerStatements(quoteSchema(schema));
  return (await database.run<{ name: string }>(names, [subscribed])).rows.map(({ name }) => name);
}

/** Builds the CONSUMER_NOT_FOUND error. It suggests the nearest known name and lists up to 20. */
export function unknownConsumer(consumer: string, known: readonly string[]): SagaboxError {
  const suggestion = findNearest(consumer, known);
  const names = `${known.slice(0, 20).join(", ")}${known.length > 20 ? ` and ${known.length - 20} more` : ""}`;
  const hint = known.length === 0 ? "It knows none." : `It knows: ${names}.`;
  return new SagaboxError(
    "CONSUMER_NOT_FOUND",
    `This database knows no consumer ${JSON.stringify(consumer)}. ${suggestion === undefined ? "" : `Did you mean ${suggestion}? `}${hint}`,
  );
}

/** A message that one consumer handled. */
export interface HandledMessage {
  readonly consumer: string;
  readonly messageId: string;
  readonly topic: string;
  readonly type: string;
  readonly handledAt: string;
  readonly durationMs: number | null;
  /** False if the message had no effect, because the consumer refused it or it was already settled. */
  readonly hasEffect: boolean;
  /** Message id of the earlier command whose effect also counts for this one. */
  readonly effectOf: string | null;
  /** Message id of the command that undid the effect. */
  readonly undoneBy: string | null;
}

export interface HandledFilter {
  /** Only messages handled within this time. Default "1h". */
  readonly since?: Duration | number;
  readonly consumer?: string;
  readonly topic?: string;
  readonly type?: string;
  /** The business key, of messages that are in this database. Needs the operator role. */
  readonly key?: string;
  /** At most this many messages, 1 to 1,000. Default 50. */
  readonly limit?: number;
}

const DAY_MS = 86_400_000;

/** Lists recently handled messages, newest first. Throws OPTIONS_INVALID for an invalid filter. */
export async function listHandled(
  database: Database,
  schema: string,
  filter: HandledFilter = {},
): Promise<readonly HandledMessage[]> {
  rejectUnknownKeys("inbox list", filter, ["since", "consumer", "topic", "type", "key", "limit"]);
  const { since = "1h", consumer = null, topic = null, type = null, key = null } = filter;
  for (const [name, value] of Object.entries({ consumer, topic, type, key })) {
    if (value !== null) text(`inbox list: ${name}`, value, { max: 255 });
  }
  const limit = wholeNumber("inbox list: limit", filter.limit ?? 50, { min: 1, max: 1_000 });
  const sinceMs = milliseconds("inbox list: since", since, { min: 1, max: 3_650 * DAY_MS });
  const quoted = quoteSchema(schema);
  const list = consumerStatements(quoted).list(key !== null);
  if (key !== null && !(await canReadContents(database, quoted))) throw keysNotReadable();
  const params = [limit, sinceMs, consumer, topic, type, ...(key === null ? [] : [key])];
  return (await database.run<Row>(list, params)).rows.map(toHandledMessage);
}

/** Lists how each consumer handled a message. Throws OPTIONS_INVALID for an invalid id. */
export async function listHandlersFor(
  database: Database,
  schema: string,
  messageId: string,
): Promise<readonly HandledMessage[]> {
  text("inbox show: the message id", messageId, { max: 255 });
  const { show } = consumerStatements(quoteSchema(schema));
  return (await database.run<Row>(show, [messageId])).rows.map(toHandledMessage);
}

/** Counts the handled messages of each consumer. Reads every inbox row. */
export function handledStats(
  database: Database,
  schema: string,
  consumer?: string,
): Promise<readonly ConsumerStats[]> {
  return inboxStats({ database, sql: inboxStatements(quoteSchema(schema)) }, consumer);
}

interface Row {
  readonly consumer: string;
  readonly event_id: string;
  readonly source_topic: string;
  readonly event_type: string;
  readonly consumed_at: string;
  readonly processing_duration_ms: number | null;
  readonly effect: boolean;
  readonly effect_of: string | null;
  readonly undone_by: string | null;
}

function toHandledMessage(row: Row): HandledMessage {
  return {
    consumer: row.consumer,
    messageId: row.event_id,
    topic: row.source_topic,
    type: row.event_type,
    handledAt: row.consumed_at,
    durationMs: row.processing_duration_ms,
    hasEffect: row.effect,
    effectOf: row.effect_of,
    undoneBy: row.undone_by,
  };
}
