import { createHash } from "node:crypto";
import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import {
  decodeEnvelope,
  encodeEnvelope,
  isValidId,
  ownHeaders,
  wireHeaders,
  type Message,
} from "../message/index.ts";

/** A message as brokers carry it. */
export interface WireMessage {
  readonly body: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

export interface Received {
  readonly body: Uint8Array;
  /** As texts, whatever the broker calls them. */
  readonly headers: Readonly<Record<string, string>>;
  /** Where it was received. */
  readonly topic: string;
  readonly key: string | null;
  /** Anything larger is not ours. Default 2 MB around the data. */
  readonly maxBytes?: number;
}

export const contentType = "application/json";

export function toWire(message: Message): WireMessage {
  return {
    body: Buffer.from(encodeEnvelope(message)),
    headers: { ...wireHeaders(message), "content-type": contentType },
  };
}

/** Never throws: bytes that are no envelope come with the reason, so that they can be buried instead of coming for ever. */
export function fromWire(received: Received): { readonly message: Message; readonly flaw?: Error } {
  const { body, topic, maxBytes } = received;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(body);
    return {
      message: decodeEnvelope(text, { topic, ...(maxBytes === undefined ? {} : { maxBytes }) }),
    };
  } catch (thrown) {
    const flaw = isSagaboxError(thrown)
      ? thrown
      : new SagaboxError("ENVELOPE_INVALID", "The body is not UTF-8 text.", { cause: thrown });
    return { message: foreignMessage(received), flaw };
  }
}

// One body has one id, so that a second copy of it is recognised.
function foreignMessage({ body, headers, topic, key }: Received): Message {
  const digest = createHash("sha256").update(topic).update("\0").update(body).digest("hex");
  const id = `unidentified-${digest.slice(0, 32)}`;
  const correlationId = headers[ownHeaders.correlationId];
  return {
    id,
    kind: "event",
    type: headers[ownHeaders.type] ?? topic,
    schemaVersion: 1,
    topic,
    key,
    data: jsonOf(body),
    headers,
    correlationId: isValidId(correlationId) ? correlationId : id,
    causationId: null,
    traceparent: `00-${digest.slice(0, 32)}-${digest.slice(32, 48)}-01`,
    sagaId: null,
    aggregateType: null,
    aggregateId: null,
    source: headers[ownHeaders.source] ?? "",
    target: null,
    priority: 5,
    writtenAt: new Date(0).toISOString(),
    expiresAt: null,
  };
}

// JSON stays as it is; anything else is kept as a text, so that a person can see what came.
function jsonOf(body: Uint8Array): string {
  const text = Buffer.from(body).toString("utf8");
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text.replaceAll("\0", "\uFFFD"));
  }
}
