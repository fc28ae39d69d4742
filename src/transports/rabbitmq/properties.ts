import type { MessagePropertyHeaders, Options } from "amqplib";
import type { Message } from "../../message/index.ts";
import {
  cloudEventBindings,
  contentType,
  toWire,
  type MessageFormat,
  type WireMessage,
} from "../../transport/index.ts";
import { fitName, laneKey } from "./topology.ts";

export const attemptHeader = "sagabox-attempt";
/** Header of a copy with its original topic, because the routing key of a copy names its target queue. */
export const topicHeader = "sagabox-topic";

// All properties must fit into one frame. Headers that are left out for this are in the body as well.
const MAX_HEADER_BYTES = 50_000;

export interface OutgoingMessage {
  readonly exchange: string;
  readonly routingKey: string;
  readonly body: Buffer;
  readonly properties: Options.Publish;
}

/** Encodes a message, without its exchange and routing key. */
export function encodeMessage(
  message: Message,
  format: MessageFormat,
  mandatory = true,
): Pick<OutgoingMessage, "body" | "properties"> {
  const { body, headers } = toFittingWire(message, format);
  return {
    body,
    properties: {
      headers,
      messageId: fitShortString(message.id),
      correlationId: fitShortString(message.correlationId),
      type: fitShortString(message.type),
      appId: fitShortString(message.source),
      contentType: headers["content-type"] ?? contentType,
      priority: message.priority,
      persistent: true,
      mandatory,
      BCC: [laneKey(message)],
    },
  };
}

// In binary mode all attributes of an event are headers. If they do not fit into a frame, structured mode is used.
function toFittingWire(message: Message, format: MessageFormat): WireMessage {
  const form = { format, binding: cloudEventBindings.amqp };
  const wire = toWire(message, form);
  if (fitsInFrame(wire.headers)) return wire;
  if (format === "cloudevents-binary") return toFittingWire(message, "cloudevents-structured");
  return { body: wire.body, headers: toWire({ ...message, headers: {} }, form).headers };
}

const fitShortString = (text: string): string => fitName(text, 255);

function fitsInFrame(headers: Readonly<Record<string, string>>): boolean {
  let bytes = 0;
  // A UTF-16 unit needs at most three bytes in UTF-8. If this upper bound fits, exact counting is not necessary.
  for (const name in headers) bytes += name.length + 3 * (headers[name]?.length ?? 0) + 8;
  if (bytes <= MAX_HEADER_BYTES) return true;
  bytes = 0;
  for (const [name, value] of Object.entries(headers)) bytes += name.length + Buffer.byteLength(value) + 8;
  return bytes <= MAX_HEADER_BYTES;
}

// Headers that the broker or the transport itself writes.
const reservedHeaderPattern =
  /^(sagabox-|x-death|x-first-death|x-last-death|x-delivery-count$|x-stream-offset$|x-acquired-count$)/;

// The first-letter check avoids the regular expression for most headers.
const isUserHeader = (name: string): boolean =>
  !((name.startsWith("s") || name.startsWith("x")) && reservedHeaderPattern.test(name));

/** Returns the headers of a message without headers of the broker and the transport. */
export function userHeaders(headers: MessagePropertyHeaders = {}): Record<string, unknown> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => isUserHeader(name)));
}

/** Converts the headers of a message to strings, without headers of the broker and the transport. */
export function toTextHeaders(headers: MessagePropertyHeaders = {}): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const name of Object.keys(headers)) {
    if (!isUserHeader(name)) continue;
    const value: unknown = headers[name];
    if (typeof value === "string") texts[name] = value;
    else if (Buffer.isBuffer(value)) texts[name] = value.toString("utf8");
    else texts[name] = parseTimestamp(value) ?? JSON.stringify(value) ?? "";
  }
  return texts;
}

// AMQP has a timestamp type, which producers that bridge from AMQP 1.0 use.
function parseTimestamp(value: unknown): string | undefined {
  const { "!": type, value: seconds } = (value ?? {}) as { readonly "!"?: unknown; readonly value?: unknown };
  const isTime = type === "timestamp" && typeof seconds === "number" && Math.abs(seconds) < 8.64e12;
  return isTime ? new Date(seconds * 1_000).toISOString() : undefined;
}

/** Reads a counter header; 0 if it is missing or invalid. */
export function readCount(headers: MessagePropertyHeaders = {}, name: string): number {
  const count = Number(headers[name]);
  return Number.isSafeInteger(count) && count > 0 ? count : 0;
}
