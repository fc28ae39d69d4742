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
  /** Where it was received; used when the event does not name the topic. */
  readonly topic: string;
  /** What the carrier sorted it by; used when the event has no partition key. */
  readonly key?: string | null;
  /** When it was received; used when the event has no time. Default: 1970, so that it is plainly unknown. */
  readonly receivedAt?: string;
  /** The largest frame around the data, in bytes. Default 2 MB. */
  readonly maxBytes?: number;
}

type Attributes = Readonly<Record<string, string>>;

/** A message made of checked attributes and of data that is JSON text already. */
export function toMessage(given: Attributes, data: string, place: CloudEventOptions): Message {
  const attributes = checkAttributes(given);
  const fields = new EnvelopeFields(toTypedFields(attributes), cloudEventInvalid);
  fields.expect("specversion", "1.0");
  const { id, source } = readIdentity(attributes, fields);
  return {
    id,
    kind: fields.readEnum("sagaboxkind", ["event", "command", "stream"]),
    type: fields.readId("type"),
    schemaVersion: fields.readVersion("sagaboxschemaversion"),
    topic: fields.readOptionalText("sagaboxtopic") ?? place.topic,
    key: fields.readOptionalId("partitionkey") ?? place.key ?? null,
    data,
    headers: { ...keepUnmapped(attributes), ...fields.readHeaders("sagaboxheaders") },
    correlationId: fields.readOptionalId("correlationid") ?? id,
    causationId: fields.readOptionalId("causationid"),
    traceparent: traceparentOrDerived(attributes["traceparent"] ?? null, id),
    sagaId: fields.readOptionalId("sagaboxsaga"),
    aggregateType: fields.readOptionalText("sagaboxaggregate"),
    // A foreign subject may be longer than an id; it is among the headers all the same.
    aggregateId:
      isSagaboxEvent(attributes) || isValidId(attributes["subject"])
        ? fields.readOptionalText("subject")
        : null,
    source,
    target: fields.readOptionalText("sagaboxtarget"),
    priority: fields.readPriority("sagaboxpriority"),
    writtenAt: fields.readOptionalTime("time") ?? place.receivedAt ?? new Date(0).toISOString(),
    expiresAt: fields.readOptionalTime("expirytime"),
  };
}

// An empty optional attribute is a common slip of producers and says nothing.
function checkAttributes(given: Attributes): Attributes {
  const entries = Object.entries(given).filter(([, value]) => value !== "");
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
    // RFC 3339 has its two letters in either case.
    ...(time !== undefined && { time: time.toUpperCase() }),
    ...(expirytime !== undefined && { expirytime: expirytime.toUpperCase() }),
  };
}

function parseHeadersAttribute(text: string): unknown {
  try {
    return decodeJson(text);
  } catch (cause) {
    if (!isSagaboxError(cause)) throw cause;
    throw cloudEventInvalid("sagaboxheaders", "must be a JSON object of texts", cause);
  }
}

const isSagaboxEvent = ({ sagaboxversion }: Attributes): boolean => sagaboxversion !== undefined;

/**
 * An id of ours is unique in the world. Anybody else's is unique within its source, so the two together tell a second
 * copy from a first: with a space between, which no source can hold, or as a digest where that is too long for an id.
 */
function readIdentity(attributes: Attributes, fields: EnvelopeFields): { id: string; source: string } {
  const source = fields.readText("source");
  if (isSagaboxEvent(attributes)) {
    fields.expect("sagaboxversion", envelopeVersion);
    const service = parseService(source);
    if (service === undefined) throw cloudEventInvalid("source", "must be the path of a service, as /orders");
    return { id: fields.readId("id"), source: service };
  }
  if (/\s/u.test(source)) throw cloudEventInvalid("source", "must be a URI reference, so without spaces");
  const id = `${source} ${fields.readText("id")}`;
  if (id.length <= 255) return { id, source };
  return { id: `cloudevent-${createHash("sha256").update(id).digest("hex")}`, source };
}

const mappedAttributes: ReadonlySet<string> = new Set(Object.keys(cloudEventAttributes));

// What has no field of its own is kept for handlers under a name that callers cannot use.
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
