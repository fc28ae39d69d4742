import { SagaboxError } from "../../errors/index.ts";
import { laneFor } from "../../message/index.ts";
import {
  milliseconds,
  oneOf,
  rejectUnknownKeys,
  text,
  wholeNumber,
  type Duration,
} from "../../options/index.ts";
import { quoteSchema, type Database } from "../../storage/index.ts";
import { canReadContents } from "../can-read-contents.ts";
import { outboxStatements } from "./statements.ts";

export const outboxStates = ["due", "failed", "held", "scheduled"] as const;

export interface OutboxFilter {
  /**
   * `due` waits for the first time, `failed` is tried again, `held` is dead and keeps its key standing still,
   * `scheduled` is for later. Default: all but the scheduled ones.
   */
  readonly state?: (typeof outboxStates)[number];
  readonly topic?: string;
  readonly type?: string;
  /** Needs the role of an operator. */
  readonly key?: string;
  /** Only those that were written longer ago. */
  readonly olderThan?: Duration | number;
  /** Only those tried this often or more. */
  readonly minAttempts?: number;
  readonly limit?: number;
  /** Go on behind this seq. */
  readonly after?: string;
}

export interface WaitingMessage {
  readonly messageId: string;
  readonly topic: string;
  readonly type: string;
  /** Null too for who may not read keys. */
  readonly key: string | null;
  readonly lane: number;
  /** Null while it is scheduled. */
  readonly seq: string | null;
  readonly state: "due" | "failed" | "held" | "later" | "scheduled";
  readonly attempts: number;
  readonly maxAttempts: number;
  /** A person had it sent again. */
  readonly isAgain: boolean;
  readonly writtenAt: string;
  readonly dueAt: string | null;
  /** The first message of its key, which goes before it. */
  readonly behind: string | null;
  readonly lastError: string | null;
}

const KNOWN = ["state", "topic", "type", "key", "olderThan", "minAttempts", "limit", "after"];

/** What is still to be sent, oldest first. Looks through the first 2000 of each lane. */
export async function listOutbox(
  database: Database,
  schema: string,
  filter: OutboxFilter = {},
): Promise<readonly WaitingMessage[]> {
  const {
    state,
    topic = null,
    type = null,
    key = null,
    limit,
    olderThanMs,
    minAttempts,
    after,
  } = checkFilter(filter);
  const sql = outboxStatements(quoteSchema(schema));
  if (state === "scheduled") {
    return (await database.run<Row>(sql.scheduled, [limit, topic, type])).rows.map(toWaitingMessage);
  }
  const open = await canReadContents(database, quoteSchema(schema));
  if (key !== null && !open) throw keysNotReadable();
  const lane = key === null ? null : laneFor(key);
  const params = [limit, topic, type, lane, state ?? null, after, minAttempts, key, olderThanMs];
  return (await database.run<Row>(sql.list(open), params)).rows.map(toWaitingMessage);
}

function checkFilter(filter: OutboxFilter) {
  rejectUnknownKeys("outbox list", filter, KNOWN);
  const { state, topic, type, key, after = "0" } = filter;
  for (const [name, value] of Object.entries({ topic, type, key })) {
    if (value !== undefined) text(`outbox list: ${name}`, value, { max: 255 });
  }
  if (
    state === "scheduled" &&
    (key ?? filter.olderThan ?? filter.minAttempts ?? filter.after) !== undefined
  ) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "Of scheduled messages only topic, type and limit can be chosen.",
    );
  }
  return {
    ...filter,
    state: state === undefined ? undefined : oneOf("outbox list: state", state, outboxStates),
    limit: wholeNumber("outbox list: limit", filter.limit ?? 50, { min: 1, max: 1_000 }),
    minAttempts: wholeNumber("outbox list: minAttempts", filter.minAttempts ?? 0, { min: 0, max: 32_767 }),
    olderThanMs:
      filter.olderThan === undefined ? 0 : milliseconds("outbox list: olderThan", filter.olderThan),
    after: text("outbox list: after", after, { pattern: /^\d{1,18}$/ }),
  };
}

function keysNotReadable(): SagaboxError {
  return new SagaboxError(
    "STORAGE_PERMISSION_DENIED",
    "Keys are not for viewers: finding messages by key needs the operator role, see `sagabox roles sql`.",
  );
}

interface Row {
  readonly message_id: string;
  readonly topic: string;
  readonly type: string;
  readonly key: string | null;
  readonly lane: number;
  readonly seq: string | null;
  readonly state: WaitingMessage["state"];
  readonly attempts: number;
  readonly max_attempts: number;
  readonly again: boolean;
  readonly written_at: string;
  readonly due_at: string | null;
  readonly behind: string | null;
  readonly last_error: string | null;
}

function toWaitingMessage(row: Row): WaitingMessage {
  return {
    messageId: row.message_id,
    topic: row.topic,
    type: row.type,
    key: row.key,
    lane: row.lane,
    seq: row.seq,
    state: row.state,
    attempts: row.attempts,
    maxAttempts: row.max_attempts,
    isAgain: row.again,
    writtenAt: row.written_at,
    dueAt: row.due_at,
    behind: row.behind,
    lastError: row.last_error,
  };
}
