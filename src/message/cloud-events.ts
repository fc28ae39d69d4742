import { isSagaboxError } from "../errors/index.ts";
import { toAttributes } from "./cloud-event-attributes.ts";
import { decodeBase64, checkJson, cloudEventInvalid, readEventData } from "./cloud-event-data.ts";
import { decodeJson } from "./json.ts";
import type { Message } from "./message.ts";
import { findMember } from "./raw-member.ts";
import { toMessage, type CloudEventOptions } from "./read-cloud-event.ts";

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
