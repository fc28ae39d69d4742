import { createHash } from "node:crypto";
import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { systemClock } from "../runtime/index.ts";
import {
  commonHeaders,
  decodeEnvelope,
  encodeEnvelope,
  isValidId,
  looksLikeCloudEvent,
  ownHeaders,
  particularHeaders,
  wireHeaders,
  type Message,
} from "../message/index.ts";
import { fromBinary, fromStructured, detectMode, toBinary, toStructured } from "./cloud-event-wire.ts";
import { withoutSpecversion, type CloudEventBinding, type MessageFormat } from "./cloud-event-wire.ts";

/** A message as brokers carry it. */
export interface WireMessage {
  readonly body: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

export interface ReceivedMessage {
  readonly body: Uint8Array;
  /** As texts, whatever the broker calls them. */
  readonly headers: Readonly<Record<string, string>>;
  /** Where the broker has a place of its own for it; else it is looked for among the headers. */
  readonly contentType?: string | undefined;
  /** Where it was received. */
  readonly topic: string;
  readonly key: string | null;
  /** Anything larger is not ours. Default 2 MB around the data. */
  readonly maxBytes?: number;
}

export const contentType = "application/json";

/** How to write: the format, and the binding of the broker for when it is CloudEvents. */
export interface WireForm {
  readonly format: MessageFormat;
  readonly binding: CloudEventBinding;
}

export function toWire(message: Message, form?: WireForm): WireMessage {
  const { text, headers } = toWireText(message, form);
  return { body: Buffer.from(text), headers };
}

/** The same, with the body as the text it is: for a transport that writes it into bytes of its own. */
export function toWireText(
  message: Message,
  form?: WireForm,
): { readonly text: string; readonly headers: Readonly<Record<string, string>> } {
  switch (form?.format) {
    case "cloudevents-structured":
      return toStructured(message);
    case "cloudevents-binary":
      return toBinary(message, form.binding);
    default: {
      const headers = wireHeaders(message);
      headers["content-type"] = contentType;
      return { text: encodeEnvelope(message), headers };
    }
  }
}

/** A message for a transport that writes bytes of its own: headers as name, value, name, value. */
export interface WireParts {
  readonly text: string;
  readonly headers: readonly string[];
  /** Come behind the others. The same list for most messages of a type, so that its bytes can be kept. */
  readonly common: readonly string[];
}

export function toWireParts(message: Message, form: WireForm): WireParts {
  if (form.format === "sagabox")
    return {
      text: encodeEnvelope(message),
      headers: particularHeaders(message),
      common: findCommonHeaders(message),
    };
  const { text, headers } = toWireText(message, form);
  return { text, headers: Object.entries(headers).flat(), common: NONE };
}

const NONE: readonly string[] = Object.freeze([]);

interface CommonHeaders {
  readonly of: Pick<Message, "kind" | "schemaVersion" | "source">;
  readonly list: readonly string[];
}

const commonHeadersByType = new Map<string, CommonHeaders>();
/** More are not remembered: types may be made by the thousand. */
const MAX_REMEMBERED_TYPES = 1_000;

function findCommonHeaders(message: Message): readonly string[] {
  const { type, kind, schemaVersion, source } = message;
  const known = commonHeadersByType.get(type);
  if (known?.of.kind === kind && known.of.schemaVersion === schemaVersion && known.of.source === source)
    return known.list;
  const list = Object.entries({ ...commonHeaders(message), "content-type": contentType }).flat();
  if (commonHeadersByType.size >= MAX_REMEMBERED_TYPES) commonHeadersByType.clear();
  commonHeadersByType.set(type, { of: { kind, schemaVersion, source }, list });
  return list;
}

/**
 * Reads whatever format a message came in. Never throws: bytes that are no message come with the reason, so that they
 * can be buried instead of coming for ever.
 */
export function fromWire(received: ReceivedMessage): { readonly message: Message; readonly flaw?: Error } {
  try {
    const mode = detectMode(received.headers, received.contentType);
    return { message: mode === undefined ? readEnvelope(received) : readEvent(received, mode) };
  } catch (thrown) {
    const flaw = isSagaboxError(thrown)
      ? thrown
      : new SagaboxError("ENVELOPE_INVALID", "The body is not UTF-8 text.", { cause: thrown });
    return { message: foreignMessage(received), flaw };
  }
}

function readEnvelope({ body, topic, maxBytes }: ReceivedMessage): Message {
  const text = new TextDecoder("utf-8", { fatal: true }).decode(body);
  return decodeEnvelope(text, { topic, ...(maxBytes === undefined ? {} : { maxBytes }) });
}

function readEvent(received: ReceivedMessage, mode: "structured" | "binary" | "untold"): Message {
  const { body, topic, key, maxBytes } = received;
  const receivedAt = new Date(systemClock.wallMs()).toISOString();
  const place = { topic, key, receivedAt, ...(maxBytes === undefined ? {} : { maxBytes }) };
  if (mode === "binary") return fromBinary(received, place);
  const isEvent = mode === "structured" || looksLikeCloudEvent(Buffer.from(body).toString("utf8"));
  return isEvent ? fromStructured(received, place) : readEnvelope(received);
}

// One body has one id, so that a second copy of it is recognised.
function foreignMessage({ body, headers, topic, key }: ReceivedMessage): Message {
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
    data: toJsonText(body),
    headers: withoutSpecversion(headers),
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
function toJsonText(body: Uint8Array): string {
  const text = Buffer.from(body).toString("utf8");
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text.replaceAll("\0", "\uFFFD"));
  }
}
