import { createHash } from "node:crypto";
import { isSagaboxError } from "../errors/index.ts";
import { cloudEventAttributes, parseService } from "./cloud-event-attributes.ts";
import { cloudEventInvalid, isJsonType } from "./cloud-event-data.ts";
import { traceparentOrDerived } from "./decode-envelope.ts";
import { EnvelopeFields } from "./envelope-fields.ts";
import { envelopeVersion } from "./envelope.ts";
import { decodeJson } from "./json.ts";
import type { Headers, Message } from "./message.ts";
import { isValidId } from "./message-id.ts";
import { isPrintable } from "./printable.ts";

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
export function toMessage(raw: Attributes, data: string, options: CloudEventOptions): Message {
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
