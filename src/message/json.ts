import { PayloadError, type PayloadErrorCode } from "../errors/index.ts";
import { findTextFlaw, findValueFlaw, FlawFinder, type Flaw } from "./json-flaws.ts";
import { countMembers } from "./json-duplicates.ts";
import { describeOddValue } from "./odd-value.ts";
import { formatPath, formatShortPath } from "./path.ts";
import { isWellFormed } from "./printable.ts";

export type Json =
  string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json | undefined };

export interface JsonLimits {
  /** Size as UTF-8. Default 1,048,576 bytes. */
  readonly maxBytes?: number;
  /** Lists and objects inside each other. Default 64. */
  readonly maxDepth?: number;
  /** What it is, at the beginning of a sentence. Default "The payload". */
  readonly what?: string;
}

const defaultMaxBytes = 1_048_576;
const defaultMaxDepth = 64;

/**
 * JSON text that means exactly what the value means, or a PayloadError that names the place. Properties that are
 * undefined are left out and -0 becomes 0, as JSON has it; nothing else changes silently.
 */
export function encodeJson(value: unknown, limits: JsonLimits = {}): string {
  const { maxBytes = defaultMaxBytes, maxDepth = defaultMaxDepth, what } = limits;
  throwIfFlawed(findValueFlaw(value, { maxDepth, maxNodes: maxBytes }), maxBytes, what);
  const text = JSON.stringify(value);
  // JSON.stringify writes NUL and lone surrogates as escapes, so one native search finds whether a closer look at
  // the strings is due; a text that merely spells such an escape passes that look.
  if (text.includes("\\u0000") || text.includes("\\ud")) throwIfFlawed(findTextFlaw(value), maxBytes, what);
  if (exceedsBytes(text, maxBytes)) throwIfFlawed({ code: "PAYLOAD_TOO_LARGE", path: [] }, maxBytes, what);
  return text;
}

/** The value of a JSON text that means the same to every reader, or a PayloadError. */
export function decodeJson(text: string, limits: JsonLimits = {}): Json {
  const { maxBytes = defaultMaxBytes, maxDepth = defaultMaxDepth } = limits;
  if (exceedsBytes(text, maxBytes)) throwIfFlawed({ code: "PAYLOAD_TOO_LARGE", path: [] }, maxBytes);
  const value = parse(text);
  const look = new FlawFinder({ maxDepth, maxNodes: maxBytes });
  throwIfFlawed(look.findFlaw(value), maxBytes);
  if (!isWellFormed(text) || /\\u(?:0000|[dD])/.test(text)) throwIfFlawed(findTextFlaw(value), maxBytes);
  if (countMembers(text) !== look.keys) throwIfFlawed({ code: "PAYLOAD_DUPLICATE_KEY", path: [] }, maxBytes);
  return value;
}

// The engine's own message quotes the text, which may be personal; only the position is kept.
function parse(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch (error) {
    const position = /at position (\d+)/.exec((error as Error).message)?.[1];
    const where = position === undefined ? "" : ` (at position ${position})`;
    throw new PayloadError("PAYLOAD_NOT_JSON", `The text is not JSON${where}.`);
  }
}

function exceedsBytes(text: string, maxBytes: number): boolean {
  if (text.length > maxBytes) return true;
  return text.length * 3 > maxBytes && Buffer.byteLength(text) > maxBytes;
}

const flawMessages: Partial<Record<PayloadErrorCode, string>> = {
  PAYLOAD_NUL: "contains a NUL character, which PostgreSQL cannot store",
  PAYLOAD_LONE_SURROGATE: "contains half of a surrogate pair, which is not valid Unicode",
  PAYLOAD_UNSAFE_INTEGER: "is a number of 2^53 or more, which may change on the way; send it as text",
  PAYLOAD_TOO_DEEP: "is nested too deeply, or contains itself",
  PAYLOAD_PROTOTYPE_KEY: "is a key that could change the prototype of objects",
  PAYLOAD_DUPLICATE_KEY: "has an object that names the same key twice",
};

function throwIfFlawed(flaw: Flaw | undefined, maxBytes: number, what = "The payload"): void {
  if (flaw === undefined) return;
  const where = flaw.path.length === 0 ? "" : ` at ${formatShortPath(flaw.path)}`;
  const message = describeFlaw(flaw, maxBytes);
  throw new PayloadError(flaw.code, `${what}${where} ${message}.`, {
    issues: [{ path: formatPath(flaw.path), message }],
  });
}

function describeFlaw({ code, odd }: Flaw, maxBytes: number): string {
  if (code === "PAYLOAD_NOT_JSON") return describeOddValue(odd);
  return (
    flawMessages[code] ??
    `is larger than ${maxBytes} bytes; attach it with bus.attach(), or let \`claimCheck\` of createBus carry it, up to its \`maxBytes\``
  );
}
