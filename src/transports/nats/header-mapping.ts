import type { MsgHdrs } from "@nats-io/transport-node";
import { markUnreadable } from "../../transport/index.ts";
import { natsClient } from "./client.ts";

/** Headers that the transport adds and removes again; they are not part of the message. */
export const transportHeaders = {
  /** The attempt number of this copy. */
  attempt: "sagabox-attempt",
  /** Delay before this copy is delivered, in milliseconds. */
  delay: "sagabox-delay",
} as const;

/**
 * Encodes header values. NATS writes headers as lines and trims them, so line breaks, control characters, "%" and
 * leading or trailing spaces are percent-encoded ("%0A").
 */
export function toNatsHeaders(headers: Readonly<Record<string, string>>): MsgHdrs {
  const result = natsClient.client.node.headers();
  for (const [name, value] of Object.entries(headers)) result.append(name, encoderFor(name)(value));
  return result;
}

/** Decodes header values and leaves out the server's own headers ("Nats-…"). */
export function fromNatsHeaders(natsHeaders: MsgHdrs | undefined): Record<string, string> {
  const entries = [...(natsHeaders ?? [])].filter(([name]) => !/^nats-/i.test(name));
  return Object.fromEntries(entries.map(([name, values]) => [name, decoderFor(name)(values[0] ?? "")]));
}

// CloudEvents attributes follow the encoding of the CloudEvents binding for NATS.
const isAttribute = (name: string): boolean => /^ce-/i.test(name);
const encoderFor = (name: string): typeof encodeValue => (isAttribute(name) ? encodeAttribute : encodeValue);
const decoderFor = (name: string): typeof decodeValue => (isAttribute(name) ? decodeAttribute : decodeValue);

export function encodeValue(value: string): string {
  // oxlint-disable-next-line no-control-regex
  return value.replace(/^\s+|\s+$|[%\u0000-\u001f\u007f]/g, (part) => encodeURIComponent(part));
}

export function decodeValue(value: string): string {
  return value.replace(/(?:%[0-9a-f]{2})+/gi, (part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part; // a literal percent sign from another producer
    }
  });
}

function encodeAttribute(value: string): string {
  return value.replace(/[^\u0021\u0023\u0024\u0026-\u007e]+/gu, (part) => encodeURIComponent(part));
}

// Older producers quote the value instead. A value that is not valid UTF-8 after decoding is kept in its encoded form.
function decodeAttribute(value: string): string {
  const quoted = /^"(.*)"$/.exec(value)?.[1];
  const plain = quoted === undefined ? value : quoted.replace(/\\(.)/g, "$1");
  try {
    return plain.replace(/(?:%[0-9a-f]{2})+/gi, (part) => decodeURIComponent(part));
  } catch {
    return markUnreadable(plain);
  }
}

/** Returns the number of bytes that the headers take of `max_payload`, which includes headers and body. */
export function headerBytes(headers: Readonly<Record<string, string>>): number {
  return Object.entries(headers).reduce(
    (sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(encoderFor(name)(value)) + 4,
    14,
  );
}
