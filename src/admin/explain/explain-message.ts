import { SagaboxError } from "../../errors/index.ts";
import {
  claimHeader,
  encryptedHeader,
  laneFor,
  parseHeadersLeniently,
  parseTraceparent,
} from "../../message/index.ts";
import { text } from "../../options/index.ts";
import { type Database, quoteSchema, toArrayLiteral } from "../../storage/index.ts";
import { type AdminDatabase, canReadContents, explainingDatabase } from "../admin-database.ts";
import type {
  AheadRow,
  DeadLetterRow,
  InboxRow,
  MessageFacts,
  MessageLife,
  MovingRow,
} from "./message-life.ts";
import { explainStatements } from "./statements.ts";

export interface Explanation extends MessageLife {
  /** True if the role may not read contents: without key, error texts, operator actions and messages ahead. */
  readonly isMasked: boolean;
  /** State per destination, with the reason and the next event. */
  readonly standings: readonly Standing[];
  /** Events, oldest first. */
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

/** Explains the state and history of a message in this database. Read-only; uses indexes only. Throws MESSAGE_NOT_FOUND. */
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
  const deadLetters = (await database.run<Raw<DeadLetterRow>>(sql.letters, [id])).rows;
  const named = toArrayLiteral(deadLetters.flatMap(({ consumer }) => consumer ?? []));
  const letterIds = toArrayLiteral(deadLetters.map((letter) => letter.id));
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
    deadLetters: deadLetters.map(toDeadLetterRow),
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
    isEncrypted: headers[encryptedHeader] !== undefined,
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

/** An event in the life of a message. */
export interface Moment {
  readonly at: string;
  readonly what: string;
}

/** Builds the timeline, oldest first. Of failed attempts, only the last error is stored. */
function buildTimeline(life: MessageLife): readonly Moment[] {
  const { message, sent, handled, deadLetters, actions } = life;
  const cause = message.causationId === null ? "" : `, caused by ${message.causationId}`;
  const moments: Moment[] = [
    { at: message.writtenAt, what: `written by ${message.source}${cause}` },
    ...sent.map(({ at, relay }) => ({ at, what: `confirmed by the transport to ${relay}` })),
    ...handled.map((row) => ({
      at: row.consumedAt,
      what: `${row.effect ? "handled" : "settled without effect"} by ${row.consumer}`,
    })),
    ...deadLetters.flatMap((letter) => {
      const where = letter.consumer === null ? "in the outbox" : `at ${letter.consumer}`;
      const died = {
        at: letter.failedAt,
        what: `died ${where} (${letter.reason}), dead letter ${letter.id}`,
      };
      if (letter.closedAt === null) return [died];
      return [died, { at: letter.closedAt, what: `dead letter ${letter.id} ${letter.closedAs ?? "closed"}` }];
    }),
    ...actions.map(({ at, actor, action, reason, outcome }) => ({
      at,
      what: `${action} by ${actor}${outcome === "done" ? "" : `, ${outcome}`}${reason === null ? "" : `: ${reason}`}`,
    })),
  ];
  return moments.toSorted((a, b) => a.at.localeCompare(b.at));
}

/** State of a message in the outbox or at one consumer. */
interface Standing {
  /** The outbox, or the consumer. */
  readonly where: string;
  readonly state:
    "scheduled" | "waiting" | "held back" | "retrying" | "dead" | "sent" | "handled" | "not handled";
  readonly why: string;
  /** What happens next, or the command for an operator. */
  readonly next: string;
}

/** Describes the state of a message, the outbox first and then each consumer. Pure. */
export function judgeLife(life: MessageLife): readonly Standing[] {
  const { message, outbox, deadLetters } = life;
  if (message.scheduledFor !== null) return [judgeScheduled(message.scheduledFor)];
  const open = deadLetters.filter(({ closedAt }) => closedAt === null);
  const sending = outbox.map((row) => judgeMoving("outbox", row, open.find(isFromOutbox)));
  const died = open
    .filter((letter) => isFromOutbox(letter) && !outbox.some(({ isHeld }) => isHeld))
    .map(judgeDead);
  const sent = sending.length + died.length > 0 ? [] : [judgeSent(life)];
  return [...sending, ...died, ...sent, ...judgeConsumers(life, open)];
}

function judgeConsumers(life: MessageLife, open: readonly DeadLetterRow[]): Standing[] {
  const { deliveries, handled, subscribers, outbox } = life;
  const letters = open.filter((letter) => !isFromOutbox(letter));
  const seen = new Set<string>();
  const note = (where: string | null, standing: Standing): Standing => {
    seen.add(where ?? "");
    return standing;
  };
  const standings = [
    ...deliveries.map((row) => note(row.consumer, judgeMoving(`consumer ${row.consumer}`, row))),
    ...letters.map((letter) => note(letter.consumer, judgeDead(letter))),
    ...handled
      .filter(({ consumer }) => !seen.has(consumer))
      .map((row) => note(row.consumer, judgeHandled(row))),
  ];
  if (outbox.length > 0 || life.message.scheduledFor !== null) return standings;
  if (subscribers.length + standings.length === 0 && life.hasSubscriptions) return [judgeUnsubscribed(life)];
  const silent = subscribers.filter(({ name }) => !seen.has(name));
  return [...standings, ...silent.map(({ name, since }) => judgeNotHandled(name, since, life.message))];
}

function judgeScheduled(at: string): Standing {
  return {
    where: "outbox",
    state: "scheduled",
    why: `it was published for ${at}`,
    next: `It enters the outbox at ${at}, if a worker runs then.`,
  };
}

function judgeMoving(where: string, row: MovingRow, letter?: DeadLetterRow): Standing {
  if (row.isHeld) return judgeHeld(where, letter);
  if (row.ahead !== null) return judgeBehind(where, row.ahead);
  if (row.isOptimistic) {
    const next = "If it does not get through, the relay sends it when that short lease is over.";
    return { where, state: "waiting", why: "the process that wrote it is sending it", next };
  }
  const error = row.lastError === null ? "" : `: ${row.lastError}`;
  if (!row.isDue) {
    const why = row.attempts === 0 ? `it was put off${error}` : `attempt ${row.attempts} failed${error}`;
    const most = row.consumer === null ? ` of ${row.maxAttempts}` : ""; // a consumer has a policy of its own
    const next = `Attempt ${row.attempts + 1}${most} is due at ${row.dueAt ?? "an unknown time"}.`;
    return { where, state: "retrying", why, next };
  }
  const again = row.attempts === 0 ? "" : ` after ${row.attempts} failed attempts${error}`;
  if (row.owner === null) {
    const why = `it is due${again}, but no running worker owns lane ${row.lane}`;
    return { where, state: "waiting", why, next: "Start a worker: sagabox worker --app <module>" };
  }
  const next = `Worker ${row.owner} owns its lane and takes it next. If this stays so, look at the log of that worker.`;
  return { where, state: "waiting", why: `it is due${again}`, next };
}

function judgeHeld(where: string, letter: DeadLetterRow | undefined): Standing {
  const id = letter?.id ?? "<id>";
  return {
    where,
    state: "dead",
    why: `it died${letter === undefined ? "" : ` (${letter.reason}: ${letter.errorMessage})`} and holds its key back, as its contract wants`,
    next: `Replay or discard dead letter ${id}; the key goes on then.`,
  };
}

function judgeBehind(where: string, ahead: AheadRow): Standing {
  const error = ahead.lastError === null ? "" : `: ${ahead.lastError}`;
  const why = ahead.isHeld
    ? `message ${ahead.messageId} of the same key died in front of it and holds the key`
    : `message ${ahead.messageId} of the same key goes first${ahead.attempts === 0 ? "" : ` and failed ${ahead.attempts} times${error}`}`;
  const when =
    ahead.dueAt === null
      ? "when a person decides about that one"
      : `after that one, which is due at ${ahead.dueAt}`;
  return {
    where,
    state: "held back",
    why,
    next: `It goes on ${when}. See: sagabox explain ${ahead.messageId}`,
  };
}

function judgeDead(letter: DeadLetterRow): Standing {
  const { id, consumer, reason, attempts, errorType, errorMessage } = letter;
  return {
    where: consumer === null ? "outbox" : `consumer ${consumer}`,
    state: "dead",
    why: `${reason} after ${attempts} attempts: ${errorType}: ${errorMessage}`,
    next: `Nothing by itself. Repair the cause, then replay dead letter ${id}, or discard it.`,
  };
}

function judgeSent({ sent, deadLetters, hasSubscriptions }: MessageLife): Standing {
  const last = sent.at(-1);
  const discarded = deadLetters.find((letter) => isFromOutbox(letter) && letter.closedAs === "discarded");
  if (last === undefined && discarded !== undefined) {
    const why = `it died and a person discarded it at ${discarded.closedAt ?? "?"}`;
    return { where: "outbox", state: "dead", why, next: "Nothing." };
  }
  const times = sent.length > 1 ? `, the last of ${sent.length} times` : "";
  const why =
    last === undefined
      ? "it is not in the outbox any more, and its receipt is not kept"
      : `the transport confirmed it to ${last.relay} at ${last.at}${times}`;
  const next = hasSubscriptions
    ? "Nothing more on this side."
    : "Nothing more on this side. This database has no subscriptions; the broker knows the consumers.";
  return { where: "outbox", state: "sent", why, next };
}

function judgeHandled(row: MessageLife["handled"][number]): Standing {
  const took = row.durationMs === null ? "" : ` in ${row.durationMs} ms`;
  const undone = row.undoneBy === null ? "" : `, and undone by ${row.undoneBy}`;
  const why = row.effect
    ? `its effect was committed at ${row.consumedAt}${took}${undone}`
    : `it was settled at ${row.consumedAt} without an effect${row.effectOf === null ? "" : `; ${row.effectOf} stands for it`}`;
  const next = "Further copies are recognised as duplicates.";
  return { where: `consumer ${row.consumer}`, state: "handled", why, next };
}

// If any subscription exists, PostgreSQL is the transport and knows all consumers.
function judgeUnsubscribed({ message: { topic } }: MessageLife): Standing {
  return {
    where: "consumers",
    state: "not handled",
    why: `no consumer has subscribed to topic ${topic} in this database`,
    next: "Nothing: not every message has a consumer. If one should get it, compare the topic with the names that consumers use.",
  };
}

// Only the PostgreSQL transport stores a delivery for each group here; otherwise the broker knows more.
function judgeNotHandled(
  consumer: string,
  since: string,
  { type, writtenAt }: MessageLife["message"],
): Standing {
  const late = since > writtenAt;
  return {
    where: `consumer ${consumer}`,
    state: "not handled",
    why: late
      ? `it subscribed at ${since}, after the message was written`
      : "it subscribed, but has neither handled the message nor a delivery of it in this database",
    next: late
      ? "Nothing. Republish the time window if it should have it."
      : `See whether it has a handler for ${type}: an event of a type it does not know is passed over, unless \`unknown\` says otherwise. ` +
        "Else look at the broker, or at how long dedupe rows are kept.",
  };
}

function isFromOutbox({ origin }: DeadLetterRow): boolean {
  return origin === "outbox";
}
