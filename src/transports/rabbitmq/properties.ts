import type { MessagePropertyHeaders, Options } from "amqplib";
import type { Message } from "../../message/index.ts";
import { toWire } from "../../transport/index.ts";
import { fit, laneKey } from "./names.ts";

export const attemptHeader = "sagabox-attempt";
/** Where a copy of a message came from at first; its routing key says where it goes. */
export const topicHeader = "sagabox-topic";

// All properties travel in one frame; what is left out here is in the body as well.
const MOST_HEADER_BYTES = 50_000;

export interface Parcel {
  readonly exchange: string;
  readonly routingKey: string;
  readonly body: Buffer;
  readonly properties: Options.Publish;
}

/** A message as it goes to the broker, without its address. */
export function parcelOf(message: Message): Pick<Parcel, "body" | "properties"> {
  const wire = toWire(message);
  const headers = held(wire.headers) ? wire.headers : toWire({ ...message, headers: {} }).headers;
  return {
    body: wire.body,
    properties: {
      headers,
      messageId: short(message.id),
      correlationId: short(message.correlationId),
      type: short(message.type),
      appId: short(message.source),
      contentType: "application/json",
      priority: message.priority,
      persistent: true,
      mandatory: true,
      BCC: [laneKey(message)],
    },
  };
}

const short = (text: string): string => fit(text, 255);

function held(headers: Readonly<Record<string, string>>): boolean {
  let bytes = 0;
  for (const [name, value] of Object.entries(headers)) bytes += name.length + Buffer.byteLength(value) + 8;
  return bytes <= MOST_HEADER_BYTES;
}

// What the broker writes on its own account, and our own book-keeping.
const notTheirs =
  /^(sagabox-|x-death|x-first-death|x-last-death|x-delivery-count$|x-stream-offset$|x-acquired-count$)/;

/** The headers somebody gave to the message, for a copy of it. */
export function givenHeaders(headers: MessagePropertyHeaders = {}): Record<string, unknown> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !notTheirs.test(name)));
}

export function textHeaders(headers: MessagePropertyHeaders = {}): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const [name, value] of Object.entries(givenHeaders(headers))) {
    if (typeof value === "string") texts[name] = value;
    else if (Buffer.isBuffer(value)) texts[name] = value.toString("utf8");
    else texts[name] = JSON.stringify(value) ?? "";
  }
  return texts;
}

/** A number of ours or of the broker's among the headers. */
export function countIn(headers: MessagePropertyHeaders = {}, name: string): number {
  const count = Number(headers[name]);
  return Number.isSafeInteger(count) && count > 0 ? count : 0;
}
