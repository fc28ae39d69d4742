import { inboxStatements, inboxStats, type ConsumerStats } from "../../inbox/index.ts";
import { milliseconds, rejectUnknownKeys, text, wholeNumber, type Duration } from "../../options/index.ts";
import { quoteSchema, type Database } from "../../storage/index.ts";
import { consumerStatements } from "./statements.ts";

/** One message that one consumer has handled. */
export interface HandledMessage {
  readonly consumer: string;
  readonly messageId: string;
  readonly topic: string;
  readonly type: string;
  readonly handledAt: string;
  readonly durationMs: number | null;
  /** False when nothing was done for it: it was refused, or settled before it came. */
  readonly hasEffect: boolean;
  /** The earlier command whose effect counts for this one too. */
  readonly effectOf: string | null;
  /** The command that took it back. */
  readonly undoneBy: string | null;
}

export interface HandledFilter {
  /** How far back. Default one hour. */
  readonly since?: Duration | number;
  readonly consumer?: string;
  readonly topic?: string;
  readonly type?: string;
  readonly limit?: number;
}

const DAY_MS = 86_400_000;

/** What was handled lately, newest first. */
export async function listHandled(
  database: Database,
  schema: string,
  filter: HandledFilter = {},
): Promise<readonly HandledMessage[]> {
  rejectUnknownKeys("inbox list", filter, ["since", "consumer", "topic", "type", "limit"]);
  const { since = "1h", consumer = null, topic = null, type = null } = filter;
  for (const [name, value] of Object.entries({ consumer, topic, type })) {
    if (value !== null) text(`inbox list: ${name}`, value, { max: 255 });
  }
  const limit = wholeNumber("inbox list: limit", filter.limit ?? 50, { min: 1, max: 1_000 });
  const sinceMs = milliseconds("inbox list: since", since, { min: 1, max: 3_650 * DAY_MS });
  const { list } = consumerStatements(quoteSchema(schema));
  return (await database.run<Row>(list, [limit, sinceMs, consumer, topic, type])).rows.map(toHandledMessage);
}

/** Who has handled one message. */
export async function listHandlersFor(
  database: Database,
  schema: string,
  messageId: string,
): Promise<readonly HandledMessage[]> {
  text("inbox show: the message id", messageId, { max: 255 });
  const { show } = consumerStatements(quoteSchema(schema));
  return (await database.run<Row>(show, [messageId])).rows.map(toHandledMessage);
}

/** How much each consumer has handled. Counts every row that is kept. */
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
