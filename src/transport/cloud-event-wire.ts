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

/** How messages are written; all of them are read, whatever is chosen. */
export type MessageFormat = "sagabox" | "cloudevents-structured" | "cloudevents-binary";

/** What a protocol binding of CloudEvents says about headers. */
export interface CloudEventBinding {
  /** Stands before the name of each attribute in binary mode. */
  readonly prefix: string;
  /** Whether the type of the data is the content type of the message, or an attribute like all others. */
  readonly contentType: "header" | "attribute";
}

export const cloudEventBindings = {
  kafka: { prefix: "ce_", contentType: "header" },
  // Of the two prefixes the binding allows, the one that every reader of AMQP knows; `cloudEvents_` is read as well.
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

// The caller's headers stand beside the event too, for brokers and tracers that look no further. Attributes that came
// from a foreign event are not among them: they would be taken for attributes of this one.
function plainHeaders(message: Message): Record<string, string> {
  const own = Object.entries(message.headers).filter(([name]) => !attributeName.test(name));
  return { ...Object.fromEntries(own), [ownHeaders.traceparent]: message.traceparent };
}

const attributeName = /^(?:ce[-_]|cloudevents[:_])(.+)$/i;

type Mode = "structured" | "binary" | "untold";

/** How a CloudEvent came, by its headers; undefined for what is none, "untold" when only the body can tell. */
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

// Others write names in other cases, and the oldest binding of NATS has no headers at all.
function detectForeignMode(headers: HeaderTexts, given: string | undefined): Mode | undefined {
  const names = Object.keys(headers);
  const typeName = names.find((name) => name.toLowerCase() === "content-type");
  const type = given ?? (typeName === undefined ? undefined : headers[typeName]);
  if (type !== undefined && isCloudEventType(type)) return "structured";
  if (names.some((name) => attributeName.test(name))) return "binary";
  return type === undefined ? "untold" : undefined;
}

function isCloudEventType(type: string): boolean {
  return /^application\/cloudevents/i.test(type);
}

interface ReceivedEvent {
  readonly body: Uint8Array;
  readonly headers: HeaderTexts;
  readonly contentType?: string | undefined;
}

/** Only the JSON format is read, one event at a time. */
export function fromStructured(
  { body, headers, contentType }: ReceivedEvent,
  place: CloudEventOptions,
): Message {
  const type = contentType ?? findHeader(headers, "content-type") ?? structuredType;
  if (isCloudEventType(type) && !/^application\/cloudevents\+json *(?:;|$)/i.test(type)) {
    throw cloudEventInvalid("the content type", "must be application/cloudevents+json; nothing else is read");
  }
  return fromCloudEvent(decodeText(body), place);
}

export function fromBinary({ body, headers, contentType }: ReceivedEvent, place: CloudEventOptions): Message {
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
  if (bytes > (place.maxBytes ?? 2_097_152)) throw cloudEventInvalid("the attributes", "must be smaller");
  const type = attributes["datacontenttype"] ?? contentType ?? findHeader(headers, "content-type");
  if (type !== undefined) attributes["datacontenttype"] = type;
  return fromCloudEvent({ attributes, data: body }, place);
}

function findHeader(headers: HeaderTexts, wanted: string): string | undefined {
  return Object.entries(headers).find(([name]) => name.toLowerCase() === wanted)?.[1];
}

function decodeText(body: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch (cause) {
    throw cloudEventInvalid("the text", "must be UTF-8", cause);
  }
}

/** An attribute whose bytes are no text: a control character in front has it refused, and it stays visible. */
export const markUnreadable = (text: string): string => `\u0080${text}`;

/** Without what would make a message in our own format look like a CloudEvent when it is sent again. */
export function withoutSpecversion(headers: HeaderTexts): HeaderTexts {
  const kept = Object.entries(headers).filter(
    ([name]) => attributeName.exec(name)?.[1]?.toLowerCase() !== "specversion",
  );
  return Object.fromEntries(kept);
}
