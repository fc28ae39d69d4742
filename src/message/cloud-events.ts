import { createHash } from "node:crypto";
import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { cloudEventAttributes, parseService, toAttributes } from "./cloud-event-attributes.ts";
import {
  EnvelopeFields,
  envelopeVersion,
  findMember,
  type Headers,
  type Message,
  traceparentOrDerived,
} from "./message.ts";
import { decodeJson } from "./json.ts";
import { isPrintable, isValidId, isWellFormed } from "./message-id.ts";

/** A CloudEvent in binary mode: attributes, and data apart from them. */
export interface CloudEvent {
  /** Attributes by name, without a prefix, in their canonical string form. */
  readonly attributes: Readonly<Record<string, string>>;
  /** Encoded as `datacontenttype` says. Null and empty data mean the JSON value null. */
  readonly data: string | Uint8Array | null;
}

/** Converts a message to a CloudEvent 1.0 in binary mode. Its data is JSON text, unchanged. */
export function toCloudEvent(message: Message): CloudEvent & { readonly data: string } {
  const entries = Object.entries(toAttributes(message)).map(
    ([name, value]) => [name, String(value)] as const,
  );
  return { attributes: Object.fromEntries(entries), data: message.data };
}

/** Converts a message to a CloudEvent 1.0 in structured mode: `application/cloudevents+json`. */
export function toCloudEventJson(message: Message): string {
  return `${JSON.stringify(toAttributes(message)).slice(0, -1)},"data":${message.data}}`;
}

/**
 * Converts a CloudEvent to a message: a string is read in structured mode, an object in binary mode. An event
 * that sagabox wrote becomes the original message; other events get defaults. Throws CLOUD_EVENT_INVALID.
 */
export function fromCloudEvent(event: string | CloudEvent, options: CloudEventOptions): Message {
  if (typeof event === "string") return fromJson(event, options);
  const { attributes, data } = event;
  return toMessage(attributes, readEventData(data, attributes["datacontenttype"]), options);
}

/** Returns true if the text looks like structured mode. For transports without a content type. */
export function looksLikeCloudEvent(text: string): boolean {
  return findMember(text, 0, "specversion") !== undefined;
}

// Replaces the data by null, so that only the attributes around it are parsed.
function fromJson(text: string, options: CloudEventOptions): Message {
  const span = findMember(text, 0, "data");
  const frame = span === undefined ? text : `${text.slice(0, span.start)}null${text.slice(span.end)}`;
  const { data, data_base64: base64, ...others } = parseEventObject(frame, options.maxBytes ?? 2_097_152);
  if (span === undefined && data !== undefined)
    throw cloudEventInvalid("data", "must have its name written without escapes");
  const written = span === undefined ? undefined : text.slice(span.start, span.end);
  if (base64 === undefined || base64 === null) {
    return toMessage(
      toStringAttributes(others),
      written === undefined ? "null" : checkJson(written),
      options,
    );
  }
  if (written !== undefined && written !== "null")
    throw cloudEventInvalid("data_base64", "must not be combined with data");
  const attributes = toStringAttributes(others);
  return toMessage(attributes, readEventData(decodeBase64(base64), attributes["datacontenttype"]), options);
}

function parseEventObject(frame: string, maxBytes: number): Record<string, unknown> {
  try {
    const value = decodeJson(frame, { maxBytes });
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      return value as Record<string, unknown>;
    }
  } catch (cause) {
    if (!isSagaboxError(cause)) throw cause;
    throw cloudEventInvalid("the text", `must be a JSON object. ${cause.message}`.replace(/\.$/, ""), cause);
  }
  throw cloudEventInvalid("the text", "must be a JSON object");
}

// An attribute that is null counts as absent. Numbers and booleans have one string form each.
function toStringAttributes(members: Readonly<Record<string, unknown>>): Record<string, string> {
  const attributes: Record<string, string> = {};
  for (const [name, value] of Object.entries(members)) {
    if (value === null) continue;
    if (typeof value === "string" || typeof value === "boolean") attributes[name] = String(value);
    else if (typeof value === "number" && Number.isInteger(value)) attributes[name] = String(value);
    else
      throw cloudEventInvalid(
        JSON.stringify(name.slice(0, 40)),
        "must be a string, a whole number, true or false",
      );
  }
  return attributes;
}

export interface CloudEventOptions {
  /** The topic it was received on. Used if the event does not name one. */
  readonly topic: string;
  /** The transport's partition key. Used if the event has none. */
  readonly key?: string | null;
  /** ISO 8601 time of receipt. Used if the event has no time. Default: 1970-01-01, recognizably unknown. */
  readonly receivedAt?: string;
  /** Largest event without its data, in bytes. Default 2,097,152. */
  readonly maxBytes?: number;
}

type Attributes = Readonly<Record<string, string>>;

/** Creates a message from attributes and data that is JSON text. Throws CLOUD_EVENT_INVALID. */
function toMessage(raw: Attributes, data: string, options: CloudEventOptions): Message {
  const attributes = checkAttributes(raw);
  const fields = new EnvelopeFields(toTypedFields(attributes), cloudEventInvalid);
  fields.expect("specversion", "1.0");
  const { id, source } = readIdentity(attributes, fields);
  return {
    id,
    kind: fields.readEnum("sagaboxkind", ["event", "command", "stream"]),
    type: fields.readId("type"),
    schemaVersion: fields.readVersion("sagaboxschemaversion"),
    topic: fields.readOptionalText("sagaboxtopic") ?? options.topic,
    key: fields.readOptionalId("partitionkey") ?? options.key ?? null,
    data,
    headers: { ...keepUnmapped(attributes), ...fields.readHeaders("sagaboxheaders") },
    correlationId: fields.readOptionalId("correlationid") ?? id,
    causationId: fields.readOptionalId("causationid"),
    traceparent: traceparentOrDerived(attributes["traceparent"] ?? null, id),
    sagaId: fields.readOptionalId("sagaboxsaga"),
    aggregateType: fields.readOptionalText("sagaboxaggregate"),
    // The subject of a foreign event may be longer than an id; the headers keep it in any case.
    aggregateId:
      isSagaboxEvent(attributes) || isValidId(attributes["subject"])
        ? fields.readOptionalText("subject")
        : null,
    source,
    target: fields.readOptionalText("sagaboxtarget"),
    priority: fields.readPriority("sagaboxpriority"),
    writtenAt: fields.readOptionalTime("time") ?? options.receivedAt ?? new Date(0).toISOString(),
    expiresAt: fields.readOptionalTime("expirytime"),
  };
}

// Empty attributes are ignored: producers often write them for absent ones.
function checkAttributes(raw: Attributes): Attributes {
  const entries = Object.entries(raw).filter(([, value]) => value !== "");
  for (const [name, value] of entries) {
    if (!/^[a-z0-9]+$/.test(name)) {
      const shown = JSON.stringify(name.slice(0, 40));
      throw cloudEventInvalid(`the attribute ${shown}`, "must have a name of lower-case letters and digits");
    }
    if (typeof value !== "string" || !isPrintable(value))
      throw cloudEventInvalid(name, "must not contain control characters or broken Unicode");
  }
  return Object.fromEntries(entries);
}

function toTypedFields(attributes: Attributes): Record<string, unknown> {
  const { sagaboxpriority: priority, sagaboxheaders: headers, time, expirytime } = attributes;
  return {
    sagaboxkind: "event",
    sagaboxschemaversion: "1",
    ...attributes,
    ...(priority !== undefined && { sagaboxpriority: /^\d$/.test(priority) ? Number(priority) : priority }),
    ...(headers !== undefined && { sagaboxheaders: parseHeadersAttribute(headers) }),
    // RFC 3339 allows `t` and `z` in lower case.
    ...(time !== undefined && { time: time.toUpperCase() }),
    ...(expirytime !== undefined && { expirytime: expirytime.toUpperCase() }),
  };
}

function parseHeadersAttribute(text: string): unknown {
  try {
    return decodeJson(text);
  } catch (cause) {
    if (!isSagaboxError(cause)) throw cause;
    throw cloudEventInvalid("sagaboxheaders", "must be a JSON object of strings", cause);
  }
}

const isSagaboxEvent = ({ sagaboxversion }: Attributes): boolean => sagaboxversion !== undefined;

/**
 * Ids of sagabox are globally unique. Other ids are unique within their source only, so the message id
 * combines both: separated by a space, which a source cannot contain, or as a digest if that is too long for
 * an id.
 */
function readIdentity(attributes: Attributes, fields: EnvelopeFields): { id: string; source: string } {
  const source = fields.readText("source");
  if (isSagaboxEvent(attributes)) {
    fields.expect("sagaboxversion", envelopeVersion);
    const service = parseService(source);
    if (service === undefined)
      throw cloudEventInvalid("source", "must be the path of a service, such as /orders");
    return { id: fields.readId("id"), source: service };
  }
  if (/\s/u.test(source)) throw cloudEventInvalid("source", "must be a URI reference without spaces");
  const id = `${source} ${fields.readText("id")}`;
  if (id.length <= 255) return { id, source };
  return { id: `cloudevent-${createHash("sha256").update(id).digest("hex")}`, source };
}

const mappedAttributes: ReadonlySet<string> = new Set(Object.keys(cloudEventAttributes));

// Attributes without a field in the message become headers with a reserved prefix, so that handlers can read
// them.
function keepUnmapped(attributes: Attributes): Headers {
  const kept = Object.entries(attributes).filter(([name]) => !mappedAttributes.has(name));
  if (!isSagaboxEvent(attributes)) {
    const { id = "", subject, datacontenttype } = attributes;
    kept.push(["id", id]);
    if (subject !== undefined) kept.push(["subject", subject]);
    if (datacontenttype !== undefined && !isJsonType(datacontenttype))
      kept.push(["datacontenttype", datacontenttype]);
  }
  return Object.fromEntries(kept.map(([name, value]) => [`ce-${name}`, value]));
}

const jsonType = /^(?:application|text)\/json$|^[\w.-]+\/[\w.-]+\+json$/;
const textType = /^text\/[\w.+-]+$|^application\/xml$|^[\w.-]+\/[\w.-]+\+xml$/;
const strict = new TextDecoder("utf-8", { fatal: true });

/**
 * Returns the data of an event as JSON text. JSON stays unchanged and other text becomes a JSON string, as in
 * structured mode. Throws CLOUD_EVENT_INVALID for binary data.
 */
function readEventData(data: string | Uint8Array | null, contentType: string | undefined): string {
  if (data === null || data.length === 0) return "null";
  const form = detectForm(contentType);
  const text = typeof data === "string" ? data : decodeUtf8(data);
  return form === "json" ? checkJson(text) : JSON.stringify(checkText(text));
}

/**
 * Returns the text unchanged, or throws CLOUD_EVENT_INVALID if it is not JSON. `decodeJson` checks its
 * content later.
 */
function checkJson(text: string): string {
  try {
    JSON.parse(text);
    return text;
  } catch {
    // The engine's own message would quote the data.
    throw cloudEventInvalid("data", "must be JSON, as its content type says");
  }
}

function decodeBase64(data: unknown): Uint8Array {
  if (
    typeof data !== "string" ||
    !/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(data)
  ) {
    throw cloudEventInvalid("data_base64", "must be a Base64 string");
  }
  return Buffer.from(data, "base64");
}

function isJsonType(contentType: string): boolean {
  return jsonType.test(parseMediaType(contentType));
}

export function cloudEventInvalid(attribute: string, rule: string, cause?: unknown): SagaboxError {
  const text = `The CloudEvent cannot be read: ${attribute} ${rule}.`;
  return new SagaboxError("CLOUD_EVENT_INVALID", text, cause === undefined ? {} : { cause });
}

function checkText(text: string): string {
  if (!text.includes("\0") && isWellFormed(text)) return text;
  throw cloudEventInvalid("data", "must not contain NUL or broken Unicode");
}

function decodeUtf8(bytes: Uint8Array): string {
  try {
    return strict.decode(bytes);
  } catch (cause) {
    throw cloudEventInvalid("data", "must be UTF-8", cause);
  }
}

// Data without a content type is JSON, as in the CloudEvents JSON format.
function detectForm(contentType = "application/json"): "json" | "text" {
  const [, ...parameters] = contentType.toLowerCase().split(";");
  const charset = parameters.map((one) => one.trim()).find((one) => one.startsWith("charset="));
  if (charset !== undefined && !/^charset="?(?:utf-?8|us-ascii)"?$/.test(charset)) {
    throw cloudEventInvalid("datacontenttype", "must not name a character set other than UTF-8");
  }
  const media = parseMediaType(contentType);
  if (jsonType.test(media)) return "json";
  if (textType.test(media)) return "text";
  throw cloudEventInvalid("datacontenttype", "must be JSON or text; other data is not supported");
}

function parseMediaType(contentType: string): string {
  return (contentType.split(";", 1)[0] ?? "").trim().toLowerCase();
}
