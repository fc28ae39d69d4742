import { SagaboxError } from "../errors/index.ts";
import {
  checkHeaders,
  currentMessageContext,
  deriveContext,
  isValidId,
  isValidTopic,
  readMessageKey,
  laneFor,
  noHeaders,
  streamFor,
  resolveTopic,
  toWireData,
  type AnyContract,
  type DerivedContext,
  type Headers,
  type IdSource,
  type Message,
  type PackedPayload,
  type PackedMessage,
  type PublishOptions,
  type Routing,
} from "../message/index.ts";
import { flag, milliseconds, rejectUnknownKeys, wholeNumber } from "../options/index.ts";
import { type Param, type Queryable, toArrayLiteral } from "../storage/index.ts";
import { failureType, type Spans } from "../telemetry/index.ts";

const KNOWN_OPTIONS = [
  "id",
  "key",
  "topic",
  "delay",
  "at",
  "priority",
  "ttl",
  "headers",
  "correlationId",
  "causationId",
  "traceparent",
  "sagaId",
  "aggregateId",
  "target",
  "flush",
] as const;

// Ten years. Schedules are stored in the database, so the timer limit of Node does not apply.
const MAX_DELAY_MS = 3_650 * 86_400_000;
// The earliest timestamp of PostgreSQL. Its latest one is later than that of JavaScript.
const EARLIEST_MS = Date.UTC(-4713, 10, 24);

/** A message ready to be written, with the values that only the database needs. */
export interface Outgoing {
  readonly message: Omit<Message, "writtenAt" | "expiresAt">;
  readonly lane: number;
  /** Messages of one stream keep their order. Null if the message has no key. */
  readonly stream: string | null;
  readonly maxAttempts: number;
  readonly holdsOnDeath: boolean;
  readonly strict: boolean;
  readonly ttlMs: number | null;
  /** Null if the message is due immediately. */
  readonly schedule: PackedMessage["schedule"];
  /** Whether the caller chose the id. Such an id may have been used before. */
  readonly ownId: boolean;
  readonly flush: boolean;
}

export interface ComposeContext {
  readonly service: string;
  readonly newId: IdSource;
  readonly randomBytes: (size: number) => Uint8Array;
  readonly routing?: Routing | undefined;
  readonly maxAttempts: number;
  readonly pack: Pack;
  readonly spans: Spans;
}

/**
 * Turns validated data into the form that is stored and sent. `tx` is the transaction that writes the message. It is
 * undefined if the transaction has not begun yet.
 */
export type Pack = (
  contract: AnyContract,
  message: PackedMessage,
  data: unknown,
  tx: Queryable | undefined,
) => PackedPayload | Promise<PackedPayload>;

/** Composes a message for the transaction `tx`, or for a later transaction if `tx` is missing. */
export type Compose = (
  contract: AnyContract,
  data: unknown,
  options?: PublishOptions,
  tx?: Queryable,
) => Outgoing | Promise<Outgoing>;

/**
 * Validates data and options and composes a message. Nothing is written yet. It returns a promise only if the
 * schema, encryption, the claim check or tracing is asynchronous.
 */
export function compose(
  context: ComposeContext,
  contract: AnyContract,
  input: unknown,
  options: PublishOptions = {},
  tx?: Queryable,
): Outgoing | Promise<Outgoing> {
  rejectUnknownKeys("publish", options, KNOWN_OPTIONS);
  assertContract(contract);
  const wire = toWireData(contract, input);
  if (!(wire instanceof Promise)) return composeChecked(context, contract, wire, options, tx);
  return wire.then((data: unknown) => composeChecked(context, contract, data, options, tx));
}

function composeChecked(
  context: ComposeContext,
  contract: AnyContract,
  data: unknown,
  options: PublishOptions,
  tx: Queryable | undefined,
): Outgoing | Promise<Outgoing> {
  const id = checkId(options.id) ?? context.newId();
  const key = checkKey(options.key) ?? readMessageKey(contract, data);
  const topic = checkTopic(options.topic) ?? resolveTopic(contract, context.routing);
  const headers = checkHeaders(options.headers);
  const { kind, name: type, version: schemaVersion } = contract;
  const fields = { id, kind, type, schemaVersion, topic, key, schedule: readSchedule(options) };
  const created = createMessage(context, contract, fields, data, options, tx);
  if (!(created instanceof Promise))
    return buildOutgoing(context, contract, fields, headers, options, created);
  return created.then((parts) => buildOutgoing(context, contract, fields, headers, options, parts));
}

function buildOutgoing(
  context: ComposeContext,
  contract: AnyContract,
  { id, kind, type, schemaVersion, topic, key, schedule }: PackedMessage,
  headers: Headers,
  options: PublishOptions,
  { packed, origin }: CreatedMessage,
): Outgoing {
  const current = currentMessageContext();
  return {
    // Listed field by field, because spreading objects costs more than all the checks, and this runs for every
    // message.
    message: {
      id,
      kind,
      type,
      schemaVersion,
      topic,
      key,
      data: packed.data,
      headers: packed.headers === noHeaders ? headers : { ...headers, ...packed.headers },
      correlationId: origin.correlationId,
      causationId: origin.causationId,
      traceparent: origin.traceparent,
      sagaId: checkId(options.sagaId) ?? current?.sagaId ?? null,
      aggregateType: contract.aggregate,
      aggregateId: checkId(options.aggregateId) ?? (contract.aggregate === null ? null : key),
      source: context.service,
      target: checkId(options.target) ?? contract.target,
      priority: checkPriority(options.priority) ?? contract.priority,
    },
    lane: laneFor(key ?? id),
    stream: key === null ? null : streamFor(topic, key),
    maxAttempts: contract.maxAttempts ?? context.maxAttempts,
    holdsOnDeath: contract.onDead === "hold",
    strict: contract.order === "strict" && key !== null,
    ttlMs:
      options.ttl === undefined
        ? contract.ttlMs
        : milliseconds("publish.ttl", options.ttl, { min: 1, max: MAX_DELAY_MS }),
    schedule,
    ownId: options.id !== undefined,
    flush: flag("publish.flush", options.flush ?? false),
  };
}

interface CreatedMessage {
  readonly packed: PackedPayload;
  readonly origin: DerivedContext;
}

/** Packs the payload and derives the context. It returns a promise only if tracing is on or packing is asynchronous. */
function createMessage(
  context: ComposeContext,
  contract: AnyContract,
  fields: PackedMessage,
  data: unknown,
  options: PublishOptions,
  tx: Queryable | undefined,
): CreatedMessage | Promise<CreatedMessage> {
  const { spans, pack, randomBytes } = context;
  if (spans.enabled) return createInSpan(context, contract, fields, data, options, tx);
  const origin = deriveContext(currentMessageContext(), options, { messageId: fields.id, randomBytes });
  const packed = pack(contract, fields, data, tx);
  return packed instanceof Promise
    ? packed.then((payload) => ({ packed: payload, origin }))
    : { packed, origin };
}

/** Creates the message in a span; the message carries the traceparent of that span. */
async function createInSpan(
  { spans, pack, randomBytes }: ComposeContext,
  contract: AnyContract,
  fields: PackedMessage,
  data: unknown,
  options: PublishOptions,
  tx: Queryable | undefined,
): Promise<CreatedMessage> {
  const current = currentMessageContext();
  const span = spans.create(fields, current?.traceparent, options.traceparent);
  try {
    const { traceparent } = span;
    const origin = deriveContext(current, options, { messageId: fields.id, randomBytes, traceparent });
    span.set({
      "messaging.message.conversation_id": origin.correlationId,
      "sagabox.saga.id": options.sagaId ?? current?.sagaId,
    });
    const packed = span.run(() => pack(contract, fields, data, tx));
    return { packed: packed instanceof Promise ? await packed : packed, origin };
  } catch (error) {
    span.fail({ type: failureType(error) });
    throw error;
  } finally {
    span.end();
  }
}

function readSchedule(options: PublishOptions): PackedMessage["schedule"] {
  if (options.delay !== undefined && options.at !== undefined) {
    throw new SagaboxError("OPTIONS_INVALID", "publish: give either `delay` or `at`, not both.");
  }
  if (options.delay !== undefined) {
    const delayMs = milliseconds("publish.delay", options.delay, { min: 0, max: MAX_DELAY_MS });
    return delayMs === 0 ? null : { delayMs, atMs: null };
  }
  if (options.at === undefined) return null;
  const atMs = options.at instanceof Date ? options.at.getTime() : Number.NaN;
  if (atMs >= EARLIEST_MS) return { delayMs: null, atMs };
  throw new SagaboxError("OPTIONS_INVALID", "publish.at must be a valid Date, not before the year 4713 BC.");
}

function assertContract(contract: unknown): void {
  const { kind, name, schema } = (contract ?? {}) as Partial<AnyContract>;
  if (typeof kind === "string" && typeof name === "string" && schema?.["~standard"] !== undefined) return;
  throw new SagaboxError(
    "CONTRACT_INVALID",
    "publish takes the transaction, then a contract made by event(), command() or stream(), then the data. " +
      "The second argument is not a contract; if it was imported, look for a circular import.",
  );
}

function checkId(id: string | undefined): string | undefined {
  if (id === undefined || isValidId(id)) return id;
  throw new SagaboxError(
    "MESSAGE_ID_INVALID",
    "An id must be a string of 1 to 255 characters that is not blank and has no control characters.",
  );
}

function checkKey(key: string | undefined): string | undefined {
  if (key === undefined || isValidId(key)) return key;
  throw new SagaboxError(
    "KEY_INVALID",
    "publish.key must be a string of 1 to 255 characters that is not blank and has no control characters.",
  );
}

function checkTopic(topic: string | undefined): string | undefined {
  if (topic === undefined || isValidTopic(topic)) return topic;
  throw new SagaboxError(
    "TOPIC_INVALID",
    "publish.topic must have 1 to 249 letters, digits, dots, dashes or underscores.",
  );
}

function checkPriority(priority: number | undefined): number | undefined {
  return priority === undefined ? undefined : wholeNumber("publish.priority", priority, { min: 0, max: 9 });
}

type ColumnValue = string | number | boolean | null;

/** A value that a write statement takes for each message. */
export interface MessageColumn {
  readonly name: string;
  readonly type: string;
  readonly value: (outgoing: Outgoing) => ColumnValue;
  /** The default of the column, which most messages have. Statements for usual messages leave the column out. */
  readonly usual?: ColumnValue;
}

/** The parameters of the write statements, in their order. Columns, types and values all derive from this table. */
export const messageColumns: readonly MessageColumn[] = [
  { name: "id", type: "text", value: ({ message }) => message.id },
  { name: "lane", type: "integer", value: ({ lane }) => lane },
  { name: "stream", type: "bigint", value: ({ stream }) => stream },
  { name: "kind", type: "text", value: ({ message }) => message.kind },
  { name: "type", type: "text", value: ({ message }) => message.type },
  { name: "schema_version", type: "integer", value: ({ message }) => message.schemaVersion },
  { name: "topic", type: "text", value: ({ message }) => message.topic },
  { name: "key", type: "text", value: ({ message }) => message.key },
  { name: "aggregate_type", type: "text", value: ({ message }) => message.aggregateType, usual: null },
  { name: "aggregate_id", type: "text", value: ({ message }) => message.aggregateId, usual: null },
  { name: "saga_id", type: "text", value: ({ message }) => message.sagaId, usual: null },
  { name: "correlation_id", type: "text", value: ({ message }) => message.correlationId },
  { name: "causation_id", type: "text", value: ({ message }) => message.causationId, usual: null },
  { name: "traceparent", type: "text", value: ({ message }) => message.traceparent },
  { name: "source", type: "text", value: ({ message }) => message.source },
  { name: "target", type: "text", value: ({ message }) => message.target, usual: null },
  { name: "priority", type: "smallint", value: ({ message }) => message.priority },
  { name: "max_attempts", type: "smallint", value: ({ maxAttempts }) => maxAttempts },
  { name: "holds_on_death", type: "boolean", value: ({ holdsOnDeath }) => holdsOnDeath, usual: false },
  { name: "headers", type: "text", value: ({ message }) => headersJson(message.headers), usual: "{}" },
  { name: "data", type: "text", value: ({ message }) => message.data },
  { name: "ttl_ms", type: "double precision", value: ({ ttlMs }) => ttlMs, usual: null },
];

/** The columns that are written for a usual message. Its other columns have their default values. */
export const usualColumns = messageColumns.filter(({ usual }) => usual === undefined);
const columnsWithDefault = messageColumns.filter(({ usual }) => usual !== undefined);

/** The columns that the tables `message` and `scheduled` store; `ttl_ms` becomes `expires_at`. */
export const STORED_COLUMNS = messageColumns
  .map(({ name }) => name)
  .filter((name) => name !== "ttl_ms")
  .join(", ");

/** Returns true if the statements for usual messages can write the message. */
export function isUsual(outgoing: Outgoing): boolean {
  return columnsWithDefault.every(({ value, usual }) => value(outgoing) === usual);
}

/** Returns the parameters of a statement for many messages: an array literal per column. */
export function listParams(outgoing: readonly Outgoing[]): Param[] {
  return messageColumns.map(({ value }) => toArrayLiteral(outgoing.map(value)));
}

/** Returns the parameters of a statement for one message: a string or null per column. */
export function singleParams(columns: readonly MessageColumn[], outgoing: Outgoing): Param[] {
  return columns.map((column) => {
    const value = column.value(outgoing);
    return value === null ? null : String(value);
  });
}

function headersJson(headers: Outgoing["message"]["headers"]): string {
  return headers === noHeaders ? "{}" : JSON.stringify(headers);
}
