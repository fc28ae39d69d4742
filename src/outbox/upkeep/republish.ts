import { AuditWriter, type AuditEntry, type By } from "../../audit/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { rejectUnknownKeys, wholeNumber } from "../../options/index.ts";
import { random, sleep, systemClock, withJitter } from "../../runtime/index.ts";
import {
  quotedSchema,
  SQLSTATE,
  sqlState,
  type Database,
  type Param,
  type Queryable,
} from "../../storage/index.ts";
import { republishStatements } from "./statements.ts";

/** Where a re-publish stands: everything up to here was sent again. Give it as `after` to go on from there. */
export interface RepublishCursor {
  readonly writtenAt: string;
  readonly seq: string;
}

export interface RepublishOptions {
  /** Messages written at this time or later … */
  readonly from: Date;
  /** … and before this one. */
  readonly to: Date;
  readonly topic?: string;
  readonly type?: string;
  /** How many messages one transaction sends again. Default 500. */
  readonly pageSize?: number;
  /** No more than this many per second. Default: no limit. */
  readonly ratePerSecond?: number;
  /** Goes on where an earlier call ended. */
  readonly after?: RepublishCursor;
  readonly onProgress?: (progress: RepublishResult) => void;
  /** Ends it after the page that is under way. */
  readonly signal?: AbortSignal;
  /** How long the archive reaches back; an earlier window is refused. Default: whatever is there. */
  readonly retentionMs?: number;
  /** Who does it. Default: the name of the service. */
  readonly actor?: string;
  readonly reason?: string;
}

export interface RepublishResult {
  readonly count: number;
  readonly after: RepublishCursor;
  /** False when it was aborted before its end. */
  readonly finished: boolean;
}

interface Page {
  readonly count: number;
  readonly written_at: string | null;
  readonly seq: string | null;
}

const KNOWN = [
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
const DAY_MS = 86_400_000;
/** Everybody who publishes waits for as long as a republish waits for them. */
const LOCK_WAIT_MS = 100;
const LOCK_ATTEMPTS = 20;
const MAX_LOCK_PAUSE_MS = 2_000;

type RepublishStatements = ReturnType<typeof republishStatements>;

/**
 * Sends messages again that were sent before, under their own ids: for a broker that lost what it had acknowledged.
 * Consumers that handled one treat it as a duplicate. Order per key is kept: the messages of the window go out in their old
 * order, and in front of every newer message of their key that still waits, even if that is published meanwhile. A newer
 * message that was sent before, or is in flight, cannot be called back. The window is about when a message was written, so
 * begin it early enough for those that were sent late.
 *
 * Publishing pauses for a moment with each page. Throws `STORAGE_UNAVAILABLE` when a transaction that has published stays
 * open for so long that no such moment comes.
 */
export async function republish(
  database: Database,
  schema: string,
  options: RepublishOptions,
): Promise<RepublishResult> {
  const audit = new AuditWriter(schema);
  const entry = entryOf(options);
  return audit.audited(database, entry, async (note) => {
    const result = await sendPages(database, schema, options, (tx, sent) =>
      note(tx, { after: { count: sent.count, upTo: sent.upTo } }),
    );
    if (result.count === 0) await note(database, { after: { count: 0, upTo: result.after.writtenAt } });
    return result;
  });
}

/** How many messages `republish` would send again, as things stand. Reads what the window holds. */
export async function countRepublish(
  database: Database,
  schema: string,
  options: RepublishOptions,
): Promise<number> {
  const { from, to, topic, type, after } = checked(options);
  const { count } = republishStatements(quotedSchema(schema));
  const { writtenAt, seq } = after ?? { writtenAt: from.toISOString(), seq: "0" };
  const params = [writtenAt, to.toISOString(), seq, topic ?? null, type ?? null];
  return (await database.run<{ count: number }>(count, params)).rows[0]?.count ?? 0;
}

type NotePage = (tx: Queryable, sent: { readonly count: number; readonly upTo: string }) => Promise<void>;

async function sendPages(
  database: Database,
  schema: string,
  options: RepublishOptions,
  note: NotePage,
): Promise<RepublishResult> {
  const { to, topic, type, pageSize, ratePerSecond, signal, onProgress } = checked(options);
  const sql = republishStatements(quotedSchema(schema));
  let after = options.after ?? { writtenAt: options.from.toISOString(), seq: "0" };
  let sliceMs = 1_000;
  let count = 0;
  for (;;) {
    const beganMs = systemClock.monotonicMs();
    const finished = Date.parse(after.writtenAt) >= to.getTime();
    if (finished || signal?.aborted === true) return { count, after, finished };
    const end = sliceEnd(after, sliceMs, to);
    const params = [after.writtenAt, end, after.seq, topic ?? null, pageSize, type ?? null];
    const found = await sendPage(database, sql, params, note);
    const sent = found?.count ?? 0;
    count += sent;
    // A full page may have more behind it in this slice; anything less is the end of the slice.
    after = (sent === pageSize && lastOf(found)) || { writtenAt: end, seq: "0" };
    sliceMs = nextSliceMs(sliceMs, sent, pageSize);
    if (sent === 0) continue;
    onProgress?.({ count, after, finished: false });
    const dueMs = (sent / ratePerSecond) * 1_000;
    await sleep(Math.max(0, dueMs - (systemClock.monotonicMs() - beganMs)), signal);
  }
}

/** Sends a page again while no other transaction writes to the outbox. Retries, because writers wait during each try. */
async function sendPage(
  database: Database,
  sql: RepublishStatements,
  params: readonly Param[],
  note: NotePage,
): Promise<Page | undefined> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await sendPageAlone(database, sql, params, note);
    } catch (error) {
      if (sqlState(error) !== SQLSTATE.lockNotAvailable) throw error;
      if (attempt === LOCK_ATTEMPTS) throw writersStay(error);
      await sleep(withJitter(Math.min(MAX_LOCK_PAUSE_MS, LOCK_WAIT_MS * 2 ** attempt), 0.5, random));
    }
  }
}

/** A page and its line in the audit log, or neither. */
async function sendPageAlone(
  database: Database,
  { lockWait, keepWritersOut, republish: page }: RepublishStatements,
  params: readonly Param[],
  note: NotePage,
): Promise<Page | undefined> {
  const tx = await database.begin();
  try {
    await tx.run(lockWait, [`${LOCK_WAIT_MS}ms`]);
    await tx.run(keepWritersOut);
    const found = (await tx.run<Page>(page, params)).rows[0];
    if ((found?.count ?? 0) > 0) await note(tx, { count: found?.count ?? 0, upTo: found?.written_at ?? "" });
    await tx.commit();
    return found;
  } catch (error) {
    await tx.rollback();
    throw error;
  }
}

function writersStay(cause: unknown): SagaboxError {
  return new SagaboxError(
    "STORAGE_UNAVAILABLE",
    "A republish needs a moment in which nobody writes to the outbox, and a transaction that has published stays open. " +
      "Look for old transactions in pg_stat_activity, then continue with `after`.",
    { cause },
  );
}

function entryOf({ actor = "code", reason, from, to, topic, type }: RepublishOptions): AuditEntry & By {
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

/** Pure: slices that hold about a page each, so that no statement sorts much more than it sends. */
export function nextSliceMs(sliceMs: number, found: number, pageSize: number): number {
  if (found >= pageSize) return Math.max(1, Math.floor(sliceMs / 2));
  return found < pageSize / 4 ? Math.min(DAY_MS, sliceMs * 4) : sliceMs;
}

function lastOf(page: Page | undefined): RepublishCursor | undefined {
  const { written_at: writtenAt = null, seq = null } = page ?? {};
  return writtenAt === null || seq === null ? undefined : { writtenAt, seq };
}

function sliceEnd(after: RepublishCursor, sliceMs: number, to: Date): string {
  return new Date(Math.min(Date.parse(after.writtenAt) + sliceMs, to.getTime())).toISOString();
}

function checked(options: RepublishOptions) {
  rejectUnknownKeys("republish", options, KNOWN);
  const { from, to, after, retentionMs = Number.POSITIVE_INFINITY } = options;
  if (!isTime(from) || !isTime(to) || from >= to) {
    throw new SagaboxError("OPTIONS_INVALID", "republish.from and .to must be dates, the first one earlier.");
  }
  if (after !== undefined && (!isTime(new Date(after.writtenAt)) || !/^\d{1,19}$/.test(after.seq))) {
    throw new SagaboxError("OPTIONS_INVALID", "republish.after must be what an earlier call returned.");
  }
  const oldest = systemClock.wallMs() - retentionMs;
  if (from.getTime() < oldest) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `republish.from (${from.toISOString()}) lies before what is kept: the archive begins at ` +
        `${new Date(oldest).toISOString()}. Choose a later time; what is older was dropped after its retention.`,
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
