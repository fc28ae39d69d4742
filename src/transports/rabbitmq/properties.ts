import type { MessagePropertyHeaders, Options } from "amqplib";
import type { Message } from "../../message/index.ts";
import {
  cloudEventBindings,
  contentType,
  toWire,
  type MessageFormat,
  type WireMessage,
} from "../../transport/index.ts";
import { fitName, laneKey } from "./names.ts";

export const attemptHeader = "sagabox-attempt";
/** Where a copy of a message came from at first; its routing key says where it goes. */
export const topicHeader = "sagabox-topic";

// All properties travel in one frame; what is left out here is in the body as well.
const MAX_HEADER_BYTES = 50_000;

export interface OutgoingMessage {
  readonly exchange: string;
  readonly routingKey: string;
  readonly body: Buffer;
  readonly properties: Options.Publish;
}

/** A message as it goes to the broker, without its address. */
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

// In binary mode all of an event but its data is in the headers: what does not fit there goes into the body.
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
  // UTF-8 needs up to three bytes for a unit of the text: if that fits, nothing has to be counted.
  for (const name in headers) bytes += name.length + 3 * (headers[name]?.length ?? 0) + 8;
  if (bytes <= MAX_HEADER_BYTES) return true;
  bytes = 0;
  for (const [name, value] of Object.entries(headers)) bytes += name.length + Buffer.byteLength(value) + 8;
  return bytes <= MAX_HEADER_BYTES;
}

// What the broker writes on its own account, and our own book-keeping.
const reservedHeaderPattern =
  /^(sagabox-|x-death|x-first-death|x-last-death|x-delivery-count$|x-stream-offset$|x-acquired-count$)/;

// Their first letters; hardly any other header begins so.
const isUserHeader = (name: string): boolean =>
  !((name.startsWith("s") || name.startsWith("x")) && reservedHeaderPattern.test(name));

/** The headers somebody gave to the message, for a copy of it. */
export function userHeaders(headers: MessagePropertyHeaders = {}): Record<string, unknown> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => isUserHeader(name)));
}

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

// AMQP has a type for times; producers that bridge from AMQP 1.0 use it.
function parseTimestamp(value: unknown): string | undefined {
  const { "!": type, value: seconds } = (value ?? {}) as { readonly "!"?: unknown; readonly value?: unknown };
  const isTime = type === "timestamp" && typeof seconds === "number" && Math.abs(seconds) < 8.64e12;
  return isTime ? new Date(seconds * 1_000).toISOString() : undefined;
}

/** A number of ours or of the broker's among the headers. */
export function readCount(headers: MessagePropertyHeaders = {}, name: string): number {
  const count = Number(headers[name]);
  return Number.isSafeInteger(count) && count > 0 ? count : 0;
}
