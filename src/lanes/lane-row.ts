import { toError } from "../errors/index.ts";
import { type Message, type MessageKind, noHeaders, parseHeaders } from "../message/index.ts";
import { systemClock } from "../runtime/index.ts";
import { findOrigin, type Queryable } from "../storage/index.ts";
import type { LaneOwnership } from "./ownership.ts";

const [topicName, typeName, sourceName] = [createNameInterner(), createNameInterner(), createNameInterner()];

/** A row of `outbox` or `queue` as its reader sees it. */
export interface LaneRow {
  readonly lane: number;
  readonly seq: number;
  /** A hash of topic and key; null for rows without a key, which have no order. */
  readonly stream: string | null;
  readonly topic: string;
  readonly type: string;
  readonly messageId: string;
  readonly attempts: number;
  readonly maxAttempts: number;
  /** Milliseconds until the row may be worked on; zero or less means now. */
  readonly waitMs: number;
  /** The process that wrote the row is sending it right now. */
  readonly leased: boolean;
  readonly expired: boolean;
  readonly writtenOn: string;
  /** The row's `ctid` when it was read. An update moves the row to another ctid. */
  readonly ctid: string;
  readonly origin: ReadOrigin;
  /** When the row expires. A replayed message may have outlived its original expiry. */
  readonly expiresAt: string | null;
  /** Null if messages were not requested, or the message is gone or unreadable. */
  readonly message: Message | null;
  /** Why the stored message cannot be parsed. */
  readonly flaw?: Error | undefined;
}

/** When a read began, on the monotonic clock, and on which server, if known. */
export interface ReadOrigin {
  readonly atMs: number;
  readonly server: string | undefined;
}

/** The state of the database at the time of a read. */
export interface ReadMoment {
  /** Every transaction below this id has ended. */
  readonly horizon: string;
  /** The last seq drawn, committed or not. */
  readonly tail: string;
  /** Rows with another priority than the default exist. */
  readonly express: boolean;
}

/** A result row of a read. The first row of a result holds the moment; some statements repeat it. */
export interface RawRow {
  readonly horizon: string | null;
  readonly tail: string | null;
  readonly express: boolean | null;
  /** Joined rows of joined fields; null without joined rows. */
  readonly rows: string | null;
  /** The priority of the single row, raised by its age. */
  readonly rank?: number;
  /** Joined messages. They follow the rows they belong to. */
  readonly messages?: string | null;
}

/** A row as it was read. Its message is parsed on first access, while the next read is already running. */
export class PackedRow implements LaneRow {
  readonly lane: number;
  readonly seq: number;
  readonly stream: string | null;
  readonly topic: string;
  readonly type: string;
  readonly messageId: string;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly writtenOn: string;
  readonly ctid: string;
  readonly origin: ReadOrigin;
  readonly waitMs: number;
  readonly leased: boolean;
  readonly expired: boolean;
  readonly expiresAt: string | null;
  readonly #packed: string | undefined;
  #read: MessageRead | undefined;

  constructor(fields: readonly string[], messages: PackedMessages, origin: ReadOrigin) {
    this.lane = Number(fields[0]);
    this.seq = Number(fields[1]);
    this.stream = fields[2] || null;
    this.topic = topicName(fields[3] ?? "");
    this.type = typeName(fields[4] ?? "");
    this.messageId = fields[5] ?? "";
    this.writtenOn = fields[6] ?? "";
    this.ctid = fields[7] ?? "";
    this.origin = origin;
    // The server leaves these fields out for a row without attempts and with the default limit.
    const [attempts, maxAttempts] = fields[8] ? fields[8].split("/").map(Number) : [];
    this.attempts = attempts ?? 0;
    this.maxAttempts = maxAttempts ?? 10;
    // The server leaves these fields out for a row that is due, not leased and without expiry.
    this.waitMs = fields[9] ? Number(fields[9]) : 0;
    this.leased = fields[10] === "1";
    this.expired = fields[11] === "1";
    this.expiresAt = fields[12] ? isoTime(fields[12]) : null;
    this.#packed = packedFor(this, messages);
  }

  get isWhole(): boolean {
    return this.#packed !== undefined;
  }

  get message(): Message | null {
    return this.#readMessage().message;
  }

  get flaw(): Error | undefined {
    return this.#readMessage().flaw;
  }

  #readMessage(): MessageRead {
    if (this.#packed === undefined) return NOT_FOUND;
    return (this.#read ??= readPacked(this.#packed, this));
  }
}

type MessageRead = Pick<LaneRow, "message" | "flaw">;

const NOT_FOUND: MessageRead = Object.freeze({ message: null });

// A message that was damaged in the database must not prevent the others from being read.
function readPacked(packed: string, row: RowMessageFields): MessageRead {
  try {
    return { message: parseMessage(packed, row) };
  } catch (thrown) {
    return { message: null, flaw: toError(thrown) };
  }
}

/** Returns whether the row was read together with its message. */
export function isWhole(row: LaneRow): boolean {
  return row instanceof PackedRow ? row.isWhole : row.message !== null;
}

/** An earlier row of its stream has another priority and must be handled first. */
export function isBlocked(fields: readonly string[]): boolean {
  return fields[13] === "1";
}

/** Messages by id. An edited dead letter has a second copy on another day, stored under id and day. */
export type PackedMessages = ReadonlyMap<string, string>;

export function packedMessages(
  raw: readonly { readonly messages?: string | null | undefined }[],
): PackedMessages {
  const byId = new Map<string, string>();
  for (const { messages } of raw) {
    for (const text of messages?.split(ROW_SEPARATOR) ?? []) {
      const end = text.indexOf(SEPARATOR);
      const id = text.slice(0, end);
      if (byId.has(id)) byId.set(text.slice(0, text.indexOf(SEPARATOR, end + 1)), text);
      else byId.set(id, text);
    }
  }
  return byId;
}

/** Parses the message of a row, in the copy of the row's day; null if it is gone or unreadable. */
export function messageFor(row: MessageRef & RowMessageFields, messages: PackedMessages): MessageRead {
  const packed = packedFor(row, messages);
  return packed === undefined ? NOT_FOUND : readPacked(packed, row);
}

/** The message fields that are taken from the row. */
type RowMessageFields = Pick<LaneRow, "topic" | "type" | "expiresAt">;
type MessageRef = Pick<LaneRow, "messageId" | "writtenOn">;

function packedFor({ messageId, writtenOn }: MessageRef, messages: PackedMessages): string | undefined {
  const packed = messages.get(messageId);
  if (packed === undefined || packed.startsWith(writtenOn, messageId.length + 1)) return packed;
  return messages.get(messageId + SEPARATOR + writtenOn);
}

// The row overrides the expiry. Fields are listed one by one because an object spread is slower than all other
// parsing.
function parseMessage(raw: string, { topic, type, expiresAt }: RowMessageFields): Message {
  const fields = raw.split(SEPARATOR);
  const details = fields[7] ? parseDetails(fields) : USUAL_DETAILS;
  return {
    id: fields[0] ?? "",
    kind: details.kind,
    type,
    schemaVersion: details.schemaVersion,
    topic,
    key: fields[2] || null,
    data: fields[fields.length - 1] ?? "",
    headers: details.headers,
    correlationId: fields[3] ?? "",
    causationId: details.causationId,
    traceparent: fields[4] ?? "",
    sagaId: details.sagaId,
    aggregateType: details.aggregateType,
    aggregateId: details.aggregateId,
    source: sourceName(fields[5] ?? ""),
    target: details.target,
    priority: details.priority,
    writtenAt: isoTime(fields[6] ?? ""),
    expiresAt,
  };
}

type Details = Pick<
  Message,
  | "kind"
  | "schemaVersion"
  | "headers"
  | "causationId"
  | "sagaId"
  | "aggregateType"
  | "aggregateId"
  | "target"
  | "priority"
>;

/** The details that the server leaves out if all of them have these values. */
const USUAL_DETAILS: Details = Object.freeze({
  kind: "event",
  schemaVersion: 1,
  headers: noHeaders,
  causationId: null,
  sagaId: null,
  aggregateType: null,
  aggregateId: null,
  target: null,
  priority: 5,
});

function parseDetails(fields: readonly string[]): Details {
  const headers = fields[15] ?? "{}";
  return {
    kind: fields[7] as MessageKind,
    priority: Number(fields[8]),
    schemaVersion: Number(fields[9]),
    causationId: fields[10] || null,
    sagaId: fields[11] || null,
    aggregateType: fields[12] || null,
    aggregateId: fields[13] || null,
    target: fields[14] || null,
    headers: headers === "{}" ? noHeaders : parseHeaders(headers),
  };
}

/** Reads the moment from the first row of a result. */
export function parseMoment(rows: readonly RawRow[]): ReadMoment | undefined {
  const { horizon = null, tail = null, express = null } = rows[0] ?? {};
  return horizon === null || tail === null ? undefined : { horizon, tail, express: express === true };
}

export const SEPARATOR = "\u001f";
export const ROW_SEPARATOR = "\u001e";

const WHOLE_TIME = "2026-11-15 08:09:10.500000".length;

/** Converts a UTC timestamp of the server, e.g. `2026-11-15 08:09:10.5`, to ISO 8601 with six fractional digits. */
function isoTime(text: string): string {
  if (text.length === WHOLE_TIME) return `${text.slice(0, 10)}T${text.slice(11)}Z`;
  const [whole = "", fraction = ""] = text.split(".");
  return `${whole.replace(" ", "T")}.${fraction.padEnd(6, "0")}Z`;
}

/** The cache is cleared at this size, because topics may be created dynamically. */
const MAX_NAMES = 1_000;

const names = new Map<string, string>();

/**
 * Returns a function that replaces equal names by one shared string, so that each row does not keep a slice of its
 * result set in memory. Use one interner per field: consecutive rows usually repeat the previous name, and one
 * comparison is cheaper than a lookup.
 */
export function createNameInterner(): (name: string) => string {
  let last = "";
  return (name) => (name === last ? last : (last = internName(name)));
}

function internName(name: string): string {
  const known = names.get(name);
  if (known !== undefined) return known;
  if (names.size >= MAX_NAMES) names.clear();
  const own = copyString(name);
  names.set(own, own);
  return own;
}

/**
 * Copies a string. V8 keeps the whole parent string alive for a slice of it, so strings that are stored for long
 * need a copy.
 */
export function copyString(text: string): string {
  return Buffer.from(text).toString();
}

export const DEFAULT_PRIORITY = 5;

export interface ReadRow {
  readonly row: LaneRow;
  /** An earlier row of its stream has another priority and must be handled first. */
  readonly blocked: boolean;
  /** The priority of the row, raised by its age. */
  readonly rank: number;
}

/** The limits of one read. A read that runs alone also returns held and urgent rows. */
export interface ReadRequest {
  readonly limit: number;
  readonly readers: number;
  readonly isAlone: boolean;
}

/** The parsed result of one read statement. */
export interface Read {
  readonly moment: ReadMoment | undefined;
  readonly rows: readonly ReadRow[];
  /** Returns whether this worker still owns the lane under the claim that was valid when the read began. */
  readonly isOwned: (lane: number) => boolean;
}

/** The server and the claims under which a read was started. */
export interface ReadContext extends Pick<Read, "isOwned"> {
  readonly origin: ReadOrigin;
}

export function parseRead(raw: readonly RawRow[], { isOwned, origin }: ReadContext): Read {
  const messages = packedMessages(raw);
  const rows: ReadRow[] = [];
  for (const { rows: several, rank = DEFAULT_PRIORITY } of raw) {
    if (several === null) continue;
    for (const text of several.split(ROW_SEPARATOR)) {
      const fields = text.split(SEPARATOR);
      rows.push({ row: new PackedRow(fields, messages, origin), blocked: isBlocked(fields), rank });
    }
  }
  return { moment: parseMoment(raw), rows, isOwned };
}

/** Remembers the current claims of these lanes, so that rows of lanes lost during the read can be dropped. */
export function startRead(
  session: Queryable,
  lanes: readonly number[],
  ownership: LaneOwnership,
): ReadContext {
  const claims = new Map(lanes.map((lane) => [lane, ownership.claim(lane)]));
  return {
    origin: { atMs: systemClock.monotonicMs(), server: findOrigin(session)?.server },
    isOwned(lane) {
      const claim = ownership.claim(lane);
      return claim !== undefined && claim === claims.get(lane);
    },
  };
}

/**
 * Guesses which days of the `message` table a read needs: today and the days of the rows that were read last. Each
 * further partition costs time even if nothing is found. A wrong guess (at midnight, or with a wrong clock) costs
 * one more read.
 */
export class HistoryDays {
  #oldest: string | undefined;
  #newest: string | undefined;

  guessRange(wallMs: number): [from: string, to: string] {
    const today = new Date(wallMs).toISOString().slice(0, 10);
    const [oldest, newest] = [this.#oldest ?? today, this.#newest ?? today];
    return [oldest < today ? oldest : today, newest > today ? newest : today];
  }

  update(rows: readonly ReadRow[]): void {
    this.#oldest = this.#newest = undefined;
    for (const { row } of rows) {
      if (this.#oldest === undefined || row.writtenOn < this.#oldest) this.#oldest = row.writtenOn;
      if (this.#newest === undefined || row.writtenOn > this.#newest) this.#newest = row.writtenOn;
    }
  }
}
