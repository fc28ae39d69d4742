import type { MsgHdrs } from "@nats-io/transport-node";
import { markUnreadable } from "../../transport/index.ts";
import { natsClient } from "./client.ts";

/** Headers of ours that are no part of the message. */
export const transportHeaders = {
  /** Which attempt this copy is. */
  attempt: "sagabox-attempt",
  /** How many milliseconds this copy waits before it is handed out. */
  delay: "sagabox-delay",
} as const;

/**
 * NATS writes headers as lines and trims them. Line breaks, control characters, "%" itself and space at the ends are
 * written like in an address ("%0A"), so that every value comes back as it was.
 */
export function toNatsHeaders(headers: Readonly<Record<string, string>>): MsgHdrs {
  const result = natsClient.client.node.headers();
  for (const [name, value] of Object.entries(headers)) result.append(name, encoderFor(name)(value));
  return result;
}

/** Without the server's own. */
export function fromNatsHeaders(given: MsgHdrs | undefined): Record<string, string> {
  const entries = [...(given ?? [])].filter(([name]) => !/^nats-/i.test(name));
  return Object.fromEntries(entries.map(([name, values]) => [name, decoderFor(name)(values[0] ?? "")]));
}

// Attributes of CloudEvents are written as their binding for NATS has it.
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
      return part; // a stranger's percent sign
    }
  });
}

function encodeAttribute(value: string): string {
  return value.replace(/[^\u0021\u0023\u0024\u0026-\u007e]+/gu, (part) => encodeURIComponent(part));
}

// Older producers quote a value instead. What is no UTF-8 when decoded must not pass for the attribute it was meant to be.
function decodeAttribute(value: string): string {
  const quoted = /^"(.*)"$/.exec(value)?.[1];
  const plain = quoted === undefined ? value : quoted.replace(/\\(.)/g, "$1");
  try {
    return plain.replace(/(?:%[0-9a-f]{2})+/gi, (part) => decodeURIComponent(part));
  } catch {
    return markUnreadable(plain);
  }
}

/** What the headers take of the server's limit, which counts them with the body. */
export function headerBytes(headers: Readonly<Record<string, string>>): number {
  return Object.entries(headers).reduce(
    (sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(encoderFor(name)(value)) + 4,
    14,
  );
}
