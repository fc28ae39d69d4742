import { SagaboxError } from "../../errors/index.ts";
import {
  claimHeader,
  laneFor,
  parseHeadersLeniently,
  parseTraceparent,
  encryptedHeader,
} from "../../message/index.ts";
import { text } from "../../options/index.ts";
import { quoteSchema, toArrayLiteral, type Database } from "../../storage/index.ts";
import { explainingDatabase, type AdminDatabase } from "../explaining-database.ts";
import { canReadContents } from "../can-read-contents.ts";
import { judgeLife, type Standing } from "./judge-life.ts";
import type { InboxRow, DeadLetterRow, MessageFacts, MessageLife, MovingRow } from "./message-life.ts";
import { explainStatements } from "./statements.ts";
import { buildTimeline, type Moment } from "./timeline.ts";

export interface Explanation extends MessageLife {
  /** Seen by who may only look: without key, error texts, what people did, and who goes first in its key. */
  readonly isMasked: boolean;
  /** Where it is, why, and what happens next. */
  readonly standings: readonly Standing[];
  /** What happened, oldest first. */
  readonly timeline: readonly Moment[];
}

interface MessageRow {
  readonly id: string;
  readonly kind: string;
  readonly type: string;
  readonly schema_version: number;
  readonly topic: string;
  readonly key: string | null;
  readonly saga_id: string | null;
  readonly correlation_id: string;
  readonly causation_id: string | null;
  readonly traceparent: string;
  readonly source: string;
  readonly priority: number;
  readonly lane: number | null;
  readonly seq: string | null;
  readonly headers: string;
  readonly bytes: number;
  readonly written_at: string;
  readonly expires_at: string | null;
  readonly scheduled_for: string | null;
}

interface MovingColumns {
  readonly lane: number;
  readonly attempts: number;
  readonly max_attempts: number;
  readonly last_error: string | null;
  readonly consumer: string | null;
  readonly due_at: string | null;
  readonly held: boolean;
  readonly is_due: boolean;
  readonly optimistic: boolean | null;
  readonly owner: string | null;
  readonly ahead_id: string | null;
  readonly ahead_attempts: number | null;
  readonly ahead_error: string | null;
  readonly ahead_due_at: string | null;
  readonly ahead_held: boolean | null;
}

/** The whole life of one message as this database knows it. Reads only; each look-up goes by an index. */
export async function explainMessage(source: Database, schema: string, id: string): Promise<Explanation> {
  text("explain: the message id", id, { max: 255 });
  const quoted = quoteSchema(schema);
  const database = explainingDatabase(source, quoted);
  const open = await canReadContents(database, quoted);
  const life = await readLife(database, explainStatements(quoted, open), id);
  return { ...life, isMasked: !open, standings: judgeLife(life), timeline: buildTimeline(life) };
}

async function readLife(
  database: AdminDatabase,
  sql: ReturnType<typeof explainStatements>,
  id: string,
): Promise<MessageLife> {
  const [found] = (await database.run<MessageRow>(sql.message, [id])).rows;
  if (found === undefined) throw notFound(id);
  const lane = found.lane ?? laneFor(found.key ?? id);
  const letters = (await database.run<Raw<DeadLetterRow>>(sql.letters, [id])).rows;
  const named = toArrayLiteral(letters.flatMap(({ consumer }) => consumer ?? []));
  const letterIds = toArrayLiteral(letters.map((letter) => letter.id));
  const [outbox, queue, sent, groups, any, inbox, saga, actions] = [
    await database.run<MovingColumns>(sql.outbox, [id, lane, found.seq]),
    await database.run<MovingColumns>(sql.queue, [id, lane]),
    found.seq === null ? { rows: [] } : await database.run<SentRow>(sql.receipts, [lane, found.seq]),
    await database.run<{ name: string; since: string }>(sql.groups, [found.topic]),
    await database.run<{ known: boolean }>(sql.subscriptions),
    await database.run<InboxColumns>(sql.inbox, [id, named]),
    found.saga_id === null ? { rows: [] } : await database.run<SagaRow>(sql.saga, [found.saga_id]),
    await database.run<MessageLife["actions"][number]>(sql.actions, [id, letterIds]),
  ];
  const [owner] = saga.rows;
  return {
    message: toMessageFacts(found, lane),
    outbox: outbox.rows.map(toMovingRow),
    sent: sent.rows.map(({ relay, sent_at: at }) => ({ relay, at })),
    deliveries: queue.rows.map(toMovingRow),
    subscribers: groups.rows,
    hasSubscriptions: any.rows[0]?.known ?? false,
    handled: inbox.rows.map(toInboxRow),
    letters: letters.map(toDeadLetterRow),
    saga: owner === undefined ? null : { ...owner, step: owner.current_step },
    actions: actions.rows,
  };
}

type SentRow = { readonly relay: string; readonly sent_at: string };
type SagaRow = NonNullable<MessageLife["saga"]> & { readonly current_step: string | null };
type Raw<T> = T & Readonly<Record<string, unknown>>;
type InboxColumns = Pick<InboxRow, "consumer" | "effect"> & Readonly<Record<string, unknown>>;

function toMessageFacts(row: MessageRow, lane: number): MessageFacts {
  const headers = parseHeadersLeniently(row.headers);
  return {
    id: row.id,
    kind: row.kind,
    type: row.type,
    schemaVersion: row.schema_version,
    topic: row.topic,
    key: row.key,
    source: row.source,
    priority: row.priority,
    sagaId: row.saga_id,
    correlationId: row.correlation_id,
    causationId: row.causation_id,
    traceId: parseTraceparent(row.traceparent)?.traceId ?? "",
    bytes: row.bytes,
    isClaimChecked: headers[claimHeader] !== undefined,
    isSealed: headers[encryptedHeader] !== undefined,
    writtenAt: row.written_at,
    expiresAt: row.expires_at,
    scheduledFor: row.scheduled_for,
    lane,
  };
}

function toMovingRow(row: MovingColumns): MovingRow {
  const ahead =
    row.ahead_id === null
      ? null
      : {
          messageId: row.ahead_id,
          attempts: row.ahead_attempts ?? 0,
          lastError: row.ahead_error,
          dueAt: row.ahead_due_at,
          isHeld: row.ahead_held === true,
        };
  return {
    consumer: row.consumer,
    lane: row.lane,
    attempts: row.attempts,
    maxAttempts: row.max_attempts,
    lastError: row.last_error,
    dueAt: row.due_at,
    isDue: row.is_due,
    isHeld: row.held,
    isOptimistic: row.optimistic === true,
    owner: row.owner,
    ahead,
  };
}

function toDeadLetterRow(row: Raw<DeadLetterRow>): DeadLetterRow {
  return {
    id: row.id,
    origin: row.origin,
    consumer: row.consumer,
    reason: row.reason,
    attempts: row.attempts,
    errorType: row["error_type"] as string,
    errorMessage: row["error_message"] as string,
    failedAt: row["failed_at"] as string,
    closedAt: row["closed_at"] as string | null,
    closedAs: row["closed_as"] as string | null,
  };
}

function toInboxRow(row: InboxColumns): InboxRow {
  return {
    consumer: row.consumer,
    consumedAt: row["consumed_at"] as string,
    durationMs: row["processing_duration_ms"] as number | null,
    effect: row.effect,
    effectOf: row["effect_of"] as string | null,
    undoneBy: row["undone_by"] as string | null,
  };
}

function notFound(id: string): SagaboxError {
  return new SagaboxError(
    "MESSAGE_NOT_FOUND",
    `There is no message ${JSON.stringify(id.slice(0, 255))} in this database: it was rolled back, was never written ` +
      "here, or its time in the archive is over.",
  );
}
