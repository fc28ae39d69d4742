import { isSagaboxError } from "../errors/index.ts";
import { toAttributes } from "./cloud-event-attributes.ts";
import { decodeBase64, checkJson, cloudEventInvalid, readEventData } from "./cloud-event-data.ts";
import { decodeJson } from "./json.ts";
import type { Message } from "./message.ts";
import { findMember } from "./raw-member.ts";
import { toMessage, type CloudEventOptions } from "./read-cloud-event.ts";

/** A CloudEvent as the binary mode has it: attributes beside the data. */
export interface CloudEvent {
  /** By their names without any prefix, in their canonical text. */
  readonly attributes: Readonly<Record<string, string>>;
  /** As `datacontenttype` says; null and nothing at all are the value null. */
  readonly data: string | Uint8Array | null;
}

/** The message as a CloudEvent 1.0 in binary mode. Its data is JSON text, unchanged. */
export function toCloudEvent(message: Message): CloudEvent & { readonly data: string } {
  const entries = Object.entries(toAttributes(message)).map(
    ([name, value]) => [name, String(value)] as const,
  );
  return { attributes: Object.fromEntries(entries), data: message.data };
}

/** The message as a CloudEvent 1.0 in structured mode: `application/cloudevents+json`. */
export function toCloudEventJson(message: Message): string {
  return `${JSON.stringify(toAttributes(message)).slice(0, -1)},"data":${message.data}}`;
}

/**
 * The message that a CloudEvent is: the text of the structured mode, or attributes and data. One of ours comes back as
 * it was; anybody else's is read with defaults. Throws CLOUD_EVENT_INVALID.
 */
export function fromCloudEvent(event: string | CloudEvent, place: CloudEventOptions): Message {
  if (typeof event === "string") return fromJson(event, place);
  const { attributes, data } = event;
  return toMessage(attributes, readEventData(data, attributes["datacontenttype"]), place);
}

/** Whether a text looks like the structured mode, for carriers that do not tell the content type. */
export function looksLikeCloudEvent(text: string): boolean {
  return findMember(text, 0, "specversion") !== undefined;
}

// The data is cut out and null put in its place, so that only the attributes around it are parsed.
function fromJson(text: string, place: CloudEventOptions): Message {
  const span = findMember(text, 0, "data");
  const frame = span === undefined ? text : `${text.slice(0, span.start)}null${text.slice(span.end)}`;
  const { data, data_base64: base64, ...others } = parseEventObject(frame, place.maxBytes ?? 2_097_152);
  if (span === undefined && data !== undefined)
    throw cloudEventInvalid("data", "must have its name written without escapes");
  const written = span === undefined ? undefined : text.slice(span.start, span.end);
  if (base64 === undefined || base64 === null) {
    return toMessage(toStringAttributes(others), written === undefined ? "null" : checkJson(written), place);
  }
  if (written !== undefined && written !== "null")
    throw cloudEventInvalid("data_base64", "must not stand beside data");
  const attributes = toStringAttributes(others);
  return toMessage(attributes, readEventData(decodeBase64(base64), attributes["datacontenttype"]), place);
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

// An attribute that is null is one that is not there; numbers and truth values have one text each.
function toStringAttributes(members: Readonly<Record<string, unknown>>): Record<string, string> {
  const attributes: Record<string, string> = {};
  for (const [name, value] of Object.entries(members)) {
    if (value === null) continue;
    if (typeof value === "string" || typeof value === "boolean") attributes[name] = String(value);
    else if (typeof value === "number" && Number.isInteger(value)) attributes[name] = String(value);
    else
      throw cloudEventInvalid(
        JSON.stringify(name.slice(0, 40)),
        "must be a text, a whole number, true or false",
      );
  }
  return attributes;
}
