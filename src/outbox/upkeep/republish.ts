import { AuditWriter, type AuditEntry, type By } from "../../audit/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { rejectUnknownKeys, wholeNumber } from "../../options/index.ts";
import { retryWithBackoff, sleep, systemClock } from "../../runtime/index.ts";
import {
  nameBlockers,
  quoteSchema,
  SQLSTATE,
  sqlState,
  TABLE_LOCK_IDLE_MS,
  toArrayLiteral,
  type Database,
  type Param,
  type Queryable,
} from "../../storage/index.ts";
import { republishStatements } from "./statements.ts";

/**
 * Position of a republish: the last key that was sent again, as `lane/key/stream`, or the last message
 * without a key, as `lane/message/seq`. Pass it as `after`, with the same window, to continue from there.
 */
export type RepublishCursor = string;

export interface RepublishOptions {
  /** Messages written at this time or later … */
  readonly from: Date;
  /** … and before this one. */
  readonly to: Date;
  readonly topic?: string;
  readonly type?: string;
  /** How many messages one transaction sends again; more if a single key has more in the window. Default 500. */
  readonly pageSize?: number;
  /** Pauses between transactions, so that no more than this many per second go out on average. Default: no limit. */
  readonly ratePerSecond?: number;
  /** Continues where an earlier call with the same window ended. */
  readonly after?: RepublishCursor;
  readonly onProgress?: (progress: RepublishResult) => void;
  /** Ends it after the current transaction. */
  readonly signal?: AbortSignal;
  /** How far back the archive goes, in milliseconds; an earlier window is refused. Default: no check. */
  readonly retentionMs?: number;
  /** Actor in the audit log. Default: the name of the service. */
  readonly actor?: string;
  readonly reason?: string;
}

export interface RepublishResult {
  readonly count: number;
  readonly after: RepublishCursor;
  /** False when it was aborted before its end. */
  readonly finished: boolean;
}

/** A message of the window. The messages of a key share a position. */
interface Listed {
  readonly id: string;
  readonly day: string;
  readonly position: RepublishCursor;
}

/** Whole keys that one transaction sends again. */
interface Page {
  readonly messages: readonly Listed[];
  readonly last: RepublishCursor;
  /** True if `messages` is only the beginning of a single key. */
  readonly isCut: boolean;
}

interface LockLimits {
  /** How long one try waits for maintenance of the table and for other republishes. Publishers do not wait meanwhile. */
  readonly maintenanceMs: number;
  /** How long one try waits for open transactions that have written to the outbox. Publishers wait meanwhile. */
  readonly writersMs: number;
  /** After this long no further try is made. */
  readonly giveUpMs: number;
}

const KNOWN_OPTIONS = [
  "from",
  "to",
  "topic",
  "type",
  "pageSize",
  "ratePerSecond",
  "after",
  "onProgress",
  "signal",
  "retentionMs",
  "actor",
  "reason",
];
/** Keys come in the order of lane, kind and number; this position is before all of them. */
const START: RepublishCursor = "0/message/0";
const CURSOR = /^(\d{1,3})\/(key|message)\/(-?\d{1,19})$/;
/** The window is scanned once for each list. A list has this many pages, and at most this many messages. */
const PAGES_PER_LIST = 40;
const MAX_LISTED = 20_000;
/** A server cancels an autovacuum after `deadlock_timeout`, by default 1 s, so a try waits longer than that. */
const LOCK_LIMITS: LockLimits = { maintenanceMs: 10_000, writersMs: 100, giveUpMs: 40_000 };
const LOOK_FOR_BLOCKERS_EVERY_MS = 30;
const MAX_LOCK_PAUSE_MS = 2_000;

type RepublishStatements = ReturnType<typeof republishStatements>;

/**
 * Sends messages again that were sent before, under their own ids: for a broker that lost what it had acknowledged.
 * Consumers that handled one treat it as a duplicate. Keys follow one another in no particular order. The messages of a key in
 * the window are put back in one transaction, in their old order and in front of every newer message of the key that waits,
 * also of one whose transaction is open. A newer message that was sent before, or is in flight, cannot be called back. The
 * window is about when a message was written, so begin it early enough for those that were sent late.
 *
 * If the process dies, each key was put back whole or not at all. Run it again, or continue with the `upTo` of the last line in
 * the audit log as `after`.
 *
 * Publishing pauses during each transaction. Throws `STORAGE_UNAVAILABLE`, and names the blocking sessions, if other sessions
 * keep the outbox locked.
 */
export async function republish(
  database: Database,
  schema: string,
  options: RepublishOptions,
  limits: LockLimits = LOCK_LIMITS,
): Promise<RepublishResult> {
  const audit = new AuditWriter(schema);
  const entry = toAuditEntry(options);
  return audit.runAudited(database, entry, async (note) => {
    const result = await sendPages(database, schema, options, limits, (tx, count, upTo) =>
      note(tx, { after: { count, upTo } }),
    );
    if (result.count === 0) await note(database, { after: { count: 0, upTo: result.after } });
    return result;
  });
}

/** Counts the messages that `republish` would send again now. Reads all messages of the window. */
export async function countRepublish(
  database: Database,
  schema: string,
  options: RepublishOptions,
): Promise<number> {
  const { after, ...window } = checkOptions(options);
  const sql = republishStatements(quoteSchema(schema));
  const params = windowParams(window);
  const { rows } =
    after === undefined
      ? await database.run<{ count: number }>(sql.countAll, params)
      : await database.run<{ count: number }>(sql.countRest, [...params, ...cursorParams(after)]);
  return rows[0]?.count ?? 0;
}

type NotePage = (tx: Queryable, count: number, upTo: RepublishCursor) => Promise<void>;
type Place = (tx: Queryable, page: Page) => Promise<number>;

async function sendPages(
  database: Database,
  schema: string,
  options: RepublishOptions,
  limits: LockLimits,
  note: NotePage,
): Promise<RepublishResult> {
  const { pageSize, ratePerSecond, signal, onProgress, ...window } = checkOptions(options);
  const sql = republishStatements(quoteSchema(schema));
  const listSize = Math.min(MAX_LISTED, pageSize * PAGES_PER_LIST);
  const place = placing(sql, windowParams(window), note);
  const isAborted = (): boolean => signal?.aborted === true;
  let after = window.after ?? START;
  let count = 0;
  for (;;) {
    if (isAborted()) return { count, after, finished: false };
    const params = [...windowParams(window), ...cursorParams(after), listSize];
    const { rows } = await database.run<Listed>(sql.list, params);
    for (const page of cutPages(rows, { pageSize, listSize })) {
      if (isAborted()) return { count, after, finished: false };
      const beganMs = systemClock.monotonicMs();
      const sent = await withoutWriters(database, sql, { limits, after }, (tx) => place(tx, page));
      count += sent;
      after = page.last;
      if (sent === 0) continue;
      onProgress?.({ count, after, finished: false });
      const dueMs = (sent / ratePerSecond) * 1_000;
      await sleep(Math.max(0, dueMs - (systemClock.monotonicMs() - beganMs)), signal);
    }
    if (rows.length < listSize) return { count, after, finished: true };
  }
}

/** Sends a page again together with its line in the audit log. Returns how many messages that were. */
function placing(sql: RepublishStatements, window: readonly Param[], note: NotePage): Place {
  return async (tx, { messages, last, isCut }) => {
    const [lane, , stream] = cursorParams(last);
    // The ids of a key that is longer than a list stay in the database.
    const { rows } = isCut
      ? await tx.run<{ count: number }>(sql.placeKey, [...window, lane, stream])
      : await tx.run<{ count: number }>(sql.placePage, [
          toArrayLiteral(messages.map(({ id }) => id)),
          toArrayLiteral(messages.map(({ day }) => day)),
        ]);
    const count = rows[0]?.count ?? 0;
    if (count > 0) await note(tx, count, last);
    return count;
  };
}

/**
 * Pure: cuts a list into pages of whole keys. A page has more than `pageSize` messages only if it is a single key. The last key
 * of a full list may continue behind it, so it is left to the next list, unless it fills this list alone.
 */
export function cutPages(
  listed: readonly Listed[],
  { pageSize, listSize }: { readonly pageSize: number; readonly listSize: number },
): Page[] {
  const keys: Listed[][] = [];
  for (const message of listed) {
    const key = keys.at(-1);
    if (key?.[0]?.position === message.position) key.push(message);
    else keys.push([message]);
  }
  const isFull = listed.length >= listSize;
  const isCut = isFull && keys.length === 1;
  if (isFull && !isCut) keys.pop();
  const pages: Listed[][] = [];
  for (const key of keys) {
    const page = pages.at(-1);
    if (page !== undefined && page.length + key.length <= pageSize) page.push(...key);
    else pages.push(key);
  }
  return pages.map((messages) => ({ messages, last: messages.at(-1)?.position ?? START, isCut }));
}

/** Runs a transaction while no other session writes to the outbox. Retries, because publishers wait during each try. */
function withoutWriters<R>(
  database: Database,
  sql: RepublishStatements,
  { limits, after }: { readonly limits: LockLimits; readonly after: RepublishCursor },
  work: (tx: Queryable) => Promise<R>,
): Promise<R> {
  const giveUpAtMs = systemClock.monotonicMs() + limits.giveUpMs;
  let blockedBy = "";
  const onTimeout = (blockers: string): void => void (blockedBy = blockers);
  const tryOnce = async (): Promise<R> => {
    const tx = await database.begin({ idleTimeoutMs: TABLE_LOCK_IDLE_MS });
    try {
      const watch = { lookEveryMs: LOOK_FOR_BLOCKERS_EVERY_MS, onTimeout };
      const locks = [limits.maintenanceMs, limits.writersMs];
      await nameBlockers(database, tx, watch, () => tx.run(sql.keepWritersOut, locks));
      const result = await work(tx);
      await tx.commit();
      return result;
    } finally {
      await tx.rollback();
    }
  };
  return retryWithBackoff(tryOnce, {
    backoff: { firstMs: 3 * limits.writersMs, maxMs: MAX_LOCK_PAUSE_MS },
    isRetryable: (error) => sqlState(error) === SQLSTATE.lockNotAvailable,
    onFailure: ({ error }) => {
      if (systemClock.monotonicMs() >= giveUpAtMs) throw staysLocked(error, blockedBy, after);
    },
  });
}

function staysLocked(cause: unknown, blockedBy: string, after: RepublishCursor): SagaboxError {
  return new SagaboxError(
    "STORAGE_UNAVAILABLE",
    `A republish could not lock the outbox, blocked by: ${blockedBy}. Wait for that transaction or end it. Then continue ` +
      `after ${after} (option \`after\`, or --after).`,
    { cause },
  );
}

type Window = Pick<RepublishOptions, "from" | "to" | "topic" | "type">;

function windowParams({ from, to, topic, type }: Window): [string, string, string | null, string | null] {
  return [from.toISOString(), to.toISOString(), topic ?? null, type ?? null];
}

function cursorParams(cursor: RepublishCursor): [lane: number, hasKey: boolean, number: string] {
  const [, lane, kind, number = "0"] = CURSOR.exec(cursor) ?? [];
  return [Number(lane), kind === "key", number];
}

function toAuditEntry({ actor = "code", reason, from, to, topic, type }: RepublishOptions): AuditEntry & By {
  const window = { from: timeText(from), to: timeText(to), ...(type === undefined ? {} : { type }) };
  return {
    actor,
    reason,
    action: "outbox.republish",
    target: { kind: "topic", id: topic ?? null },
    before: window,
  };
}

function timeText(value: unknown): string {
  return isTime(value) ? value.toISOString() : String(value);
}

function checkOptions(options: RepublishOptions) {
  rejectUnknownKeys("republish", options, KNOWN_OPTIONS);
  const { from, to, after, retentionMs = Number.POSITIVE_INFINITY } = options;
  if (!isTime(from) || !isTime(to) || from >= to) {
    throw new SagaboxError("OPTIONS_INVALID", "republish.from and .to must be dates, the first one earlier.");
  }
  if (after !== undefined && !CURSOR.test(after)) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "republish.after must be a cursor returned by an earlier call.",
    );
  }
  const oldest = systemClock.wallMs() - retentionMs;
  if (from.getTime() < oldest) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `republish.from (${from.toISOString()}) is before the start of the archive, ` +
        `${new Date(oldest).toISOString()}. Choose a later time; older messages were dropped after their retention.`,
    );
  }
  const pageSize = wholeNumber("republish.pageSize", options.pageSize ?? 500, { min: 1, max: 10_000 });
  const ratePerSecond =
    options.ratePerSecond === undefined
      ? Number.POSITIVE_INFINITY
      : wholeNumber("republish.ratePerSecond", options.ratePerSecond, { min: 1, max: 1_000_000 });
  return { ...options, pageSize, ratePerSecond };
}

function isTime(value: unknown): value is Date {
  return value instanceof Date && !Number.isNaN(value.getTime());
}
