import {
  cloudEventInvalid,
  fromCloudEvent,
  ownHeaders,
  toCloudEvent,
  toCloudEventJson,
  type CloudEventOptions,
  type Message,
} from "../message/index.ts";

type HeaderTexts = Readonly<Record<string, string>>;

/** The format in which messages are written. Messages of every format are read, independent of this choice. */
export type MessageFormat = "sagabox" | "cloudevents-structured" | "cloudevents-binary";

/** The header rules of a CloudEvents protocol binding. */
export interface CloudEventBinding {
  /** Prefix of each attribute's header name in binary mode. */
  readonly prefix: string;
  /** Whether `datacontenttype` is sent as the message's content type or as an attribute like the others. */
  readonly contentType: "header" | "attribute";
}

export const cloudEventBindings = {
  kafka: { prefix: "ce_", contentType: "header" },
  // The binding allows two prefixes. This is the one that every AMQP reader knows; `cloudEvents_` is read as well.
  amqp: { prefix: "cloudEvents:", contentType: "header" },
  nats: { prefix: "ce-", contentType: "attribute" },
} as const satisfies Record<string, CloudEventBinding>;

const structuredType = "application/cloudevents+json; charset=utf-8";

export function toStructured(message: Message): { text: string; headers: Record<string, string> } {
  return {
    text: toCloudEventJson(message),
    headers: { ...plainHeaders(message), "content-type": structuredType },
  };
}

export function toBinary(
  message: Message,
  { prefix, contentType }: CloudEventBinding,
): { text: string; headers: Record<string, string> } {
  const { attributes, data } = toCloudEvent(message);
  const { datacontenttype = "", ...others } = attributes;
  const headers = plainHeaders(message);
  for (const [name, value] of Object.entries(others)) headers[`${prefix}${name}`] = value;
  headers[contentType === "header" ? "content-type" : `${prefix}datacontenttype`] = datacontenttype;
  return { text: data, headers };
}

// The caller's headers are also sent as plain headers, for brokers and tracers that do not parse the event.
// Attributes of a foreign event are left out: a reader would take them for attributes of this one.
function plainHeaders(message: Message): Record<string, string> {
  const own = Object.entries(message.headers).filter(([name]) => !attributeName.test(name));
  return { ...Object.fromEntries(own), [ownHeaders.traceparent]: message.traceparent };
}

const attributeName = /^(?:ce[-_]|cloudevents[:_])(.+)$/i;

type Mode = "structured" | "binary" | "unclear";

/**
 * Finds the mode of a CloudEvent by its headers. Returns undefined if it is not a CloudEvent, and "unclear" if only
 * the body can decide.
 */
export function detectMode(headers: HeaderTexts, contentType: string | undefined): Mode | undefined {
  const type = contentType ?? headers["content-type"];
  if (type !== undefined && isCloudEventType(type)) return "structured";
  if (
    headers["ce-specversion"] !== undefined ||
    headers["ce_specversion"] !== undefined ||
    headers["cloudEvents:specversion"] !== undefined ||
    headers["cloudEvents_specversion"] !== undefined
  ) {
    return "binary";
  }
  return headers[ownHeaders.messageId] === undefined ? detectForeignMode(headers, contentType) : undefined;
}

// Other senders write header names in other cases, and the oldest NATS binding has no headers at all.
function detectForeignMode(headers: HeaderTexts, contentType: string | undefined): Mode | undefined {
  const names = Object.keys(headers);
  const typeName = names.find((name) => name.toLowerCase() === "content-type");
  const type = contentType ?? (typeName === undefined ? undefined : headers[typeName]);
  if (type !== undefined && isCloudEventType(type)) return "structured";
  if (names.some((name) => attributeName.test(name))) return "binary";
  return type === undefined ? "unclear" : undefined;
}

function isCloudEventType(type: string): boolean {
  return /^application\/cloudevents/i.test(type);
}

interface ReceivedEvent {
  readonly body: Uint8Array;
  readonly headers: HeaderTexts;
  readonly contentType?: string | undefined;
}

/**
 * Reads a structured event. Only the JSON format with a single event is supported; throws for batches and other
 * formats.
 */
export function fromStructured(
  { body, headers, contentType }: ReceivedEvent,
  options: CloudEventOptions,
): Message {
  const type = contentType ?? findHeader(headers, "content-type") ?? structuredType;
  if (isCloudEventType(type) && !/^application\/cloudevents\+json *(?:;|$)/i.test(type)) {
    throw cloudEventInvalid("the content type", "must be application/cloudevents+json");
  }
  return fromCloudEvent(decodeText(body), options);
}

export function fromBinary(
  { body, headers, contentType }: ReceivedEvent,
  options: CloudEventOptions,
): Message {
  const attributes: Record<string, string> = {};
  let bytes = 0;
  for (const [header, value] of Object.entries(headers)) {
    const name = attributeName.exec(header)?.[1]?.toLowerCase();
    if (name === undefined) continue;
    if (Object.hasOwn(attributes, name) && attributes[name] !== value)
      throw cloudEventInvalid(JSON.stringify(name.slice(0, 40)), "must not be given twice");
    attributes[name] = value;
    bytes += value.length;
  }
  if (bytes > (options.maxBytes ?? 2_097_152)) throw cloudEventInvalid("the attributes", "must be smaller");
  const type = attributes["datacontenttype"] ?? contentType ?? findHeader(headers, "content-type");
  if (type !== undefined) attributes["datacontenttype"] = type;
  return fromCloudEvent({ attributes, data: body }, options);
}

function findHeader(headers: HeaderTexts, lowerCaseName: string): string | undefined {
  return Object.entries(headers).find(([name]) => name.toLowerCase() === lowerCaseName)?.[1];
}

function decodeText(body: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch (cause) {
    throw cloudEventInvalid("the text", "must be UTF-8", cause);
  }
}

/**
 * Marks an attribute whose bytes are not UTF-8. The leading control character makes the parser reject it, and the
 * rest stays visible.
 */
export const markUnreadable = (text: string): string => `\u0080${text}`;

/**
 * Removes `specversion` headers, so that a message in our own format is not read as a CloudEvent when it is sent
 * again.
 */
export function withoutSpecversion(headers: HeaderTexts): HeaderTexts {
  const kept = Object.entries(headers).filter(
    ([name]) => attributeName.exec(name)?.[1]?.toLowerCase() !== "specversion",
  );
  return Object.fromEntries(kept);
}
