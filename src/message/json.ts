import { PayloadError, type PayloadErrorCode } from "../errors/index.ts";
import { isWellFormed } from "./message-id.ts";

export type Json =
  string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json | undefined };

export interface JsonLimits {
  /** Size as UTF-8. Default 1,048,576 bytes. */
  readonly maxBytes?: number;
  /** Maximum nesting of arrays and objects. Default 64. */
  readonly maxDepth?: number;
  /** Subject of the error message. Default "The payload". */
  readonly what?: string;
}

const defaultMaxBytes = 1_048_576;
const defaultMaxDepth = 64;

/**
 * Serializes a value to JSON text without loss. Properties that are undefined are left out and -0 becomes 0,
 * as in JSON.stringify. Throws a PayloadError that names the field for every other value that JSON would
 * change.
 */
export function encodeJson(value: unknown, limits: JsonLimits = {}): string {
  const { maxBytes = defaultMaxBytes, maxDepth = defaultMaxDepth, what } = limits;
  throwIfFlawed(findValueFlaw(value, { maxDepth, maxNodes: maxBytes }), maxBytes, what);
  const text = JSON.stringify(value);
  // JSON.stringify escapes NUL and lone surrogates, so a native search shows whether the strings must be
  // checked one by one. A string that contains such an escape as plain text passes that check.
  if (text.includes("\\u0000") || text.includes("\\ud")) throwIfFlawed(findTextFlaw(value), maxBytes, what);
  if (exceedsBytes(text, maxBytes)) throwIfFlawed({ code: "PAYLOAD_TOO_LARGE", path: [] }, maxBytes, what);
  return text;
}

/**
 * Parses JSON text. Throws a PayloadError for text that other parsers may read differently, such as duplicate
 * keys.
 */
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

// The engine's error message quotes the text, which may be personal data; only the position is kept.
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
  PAYLOAD_UNSAFE_INTEGER: "is a number of 2^53 or more, which may lose precision; send it as a string",
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
    `is larger than ${maxBytes} bytes; attach it with bus.attach(), or configure \`claimCheck\` of createBus, which stores payloads up to its \`maxBytes\``
  );
}

/**
 * Counts the members of all objects in a JSON text. JSON.parse silently keeps the last of two members with
 * one key, while other parsers keep the first; a count that differs from the keys of the parsed value reveals
 * that. The text must be valid JSON, so a string followed by a colon is always a key.
 */
function countMembers(text: string): number {
  let members = 0;
  let start = text.indexOf('"');
  while (start !== -1) {
    let next = findClosingQuote(text, start) + 1;
    while (isSpace(text.charCodeAt(next))) next++;
    if (text.charCodeAt(next) === 58) members++;
    start = text.indexOf('"', next);
  }
  return members;
}

function findClosingQuote(text: string, opening: number): number {
  let end = text.indexOf('"', opening + 1);
  while (isEscaped(text, end)) end = text.indexOf('"', end + 1);
  return end;
}

function isEscaped(text: string, index: number): boolean {
  let backslashes = 0;
  while (text.charCodeAt(index - 1 - backslashes) === 92) backslashes++;
  return backslashes % 2 === 1;
}

function isSpace(code: number): boolean {
  return code === 32 || code === 10 || code === 13 || code === 9;
}

/**
 * Describes a value that JSON cannot carry, and what to send instead. It never quotes the value, which may be
 * personal data.
 */
function describeOddValue(value: unknown): string {
  const [what, remedy] = classifyOddValue(value);
  return `is ${what}, which JSON cannot carry unchanged; ${remedy}`;
}

type OddValue = readonly [what: string, remedy: string];

const oddTypes: Partial<Record<string, OddValue>> = {
  bigint: ["a BigInt", "send it as a string"],
  function: ["a function", "leave it out"],
  symbol: ["a symbol", "leave it out"],
  undefined: ["undefined", "send null"],
};

const oddClasses: readonly (readonly [is: (value: unknown) => boolean, odd: OddValue])[] = [
  [(value) => value instanceof Date, ["a Date", "send its toISOString()"]],
  [(value) => value instanceof Map, ["a Map", "send an object, or an array of pairs"]],
  [(value) => value instanceof Set, ["a Set", "send an array"]],
  [(value) => ArrayBuffer.isView(value), ["bytes", "send them as base64, or attach them with bus.attach()"]],
  [(value) => Array.isArray(value), ["an array with toJSON", "send a plain array"]],
];

function classifyOddValue(value: unknown): OddValue {
  if (typeof value === "number") return [String(value), "send null, or leave it out"]; // NaN and the infinities
  const known = oddTypes[typeof value] ?? oddClasses.find(([is]) => is(value))?.[1];
  return known ?? [`an instance of ${readClassName(value)}`, "send a plain object"];
}

// A class name is code rather than data, but `constructor.name` can be set to any string.
function readClassName(value: unknown): string {
  const name = (value as { readonly constructor?: { readonly name?: unknown } }).constructor?.name;
  return typeof name === "string" && /^[\w$]{1,64}$/.test(name) ? name : "a class";
}

/** Why a value cannot be a payload, and the path to it. */
interface Flaw {
  readonly code: PayloadErrorCode;
  readonly path: readonly (string | number)[];
  /** The value that JSON cannot carry, if the code is PAYLOAD_NOT_JSON. */
  readonly odd?: unknown;
}

interface FlawLimits {
  readonly maxDepth: number;
  /**
   * Maximum number of values. Each value takes at least one byte, so more values than bytes are too large. It
   * also stops shared references that unfold without end.
   */
  readonly maxNodes: number;
}

type Trail = (string | number)[];

/**
 * Checks types, depth and keys. It runs for every message, so it builds the path only after it has found a
 * flaw.
 */
function findValueFlaw(value: unknown, limits: FlawLimits): Flaw | undefined {
  return new FlawFinder(limits).findFlaw(value);
}

/** Searches a value for flaws and counts its keys. */
class FlawFinder {
  /** Number of keys in the objects visited so far. */
  keys = 0;
  readonly #maxDepth: number;
  readonly #maxNodes: number;
  #nodes = 0;
  #trail: Trail | undefined;
  #odd: unknown;

  constructor({ maxDepth, maxNodes }: FlawLimits) {
    this.#maxDepth = maxDepth;
    this.#maxNodes = maxNodes;
  }

  findFlaw(value: unknown): Flaw | undefined {
    const code = this.#checkValue(value, 0);
    return code === undefined ? undefined : { code, path: this.#trail?.reverse() ?? [], odd: this.#odd };
  }

  // Each level adds its key while it returns, so that a valid value allocates no path.
  #checkValue(value: unknown, depth: number): PayloadErrorCode | undefined {
    if (++this.#nodes > this.#maxNodes) return "PAYLOAD_TOO_LARGE";
    switch (typeof value) {
      case "string":
      case "boolean":
        return undefined;
      case "number":
        if (value >= -9_007_199_254_740_991 && value <= 9_007_199_254_740_991) return undefined;
        return Number.isFinite(value) ? "PAYLOAD_UNSAFE_INTEGER" : this.#rejectValue(value);
      case "object":
        if (value === null) return undefined;
        if (depth >= this.#maxDepth) return "PAYLOAD_TOO_DEEP";
        return Array.isArray(value)
          ? this.#checkArray(value, depth + 1)
          : this.#checkObject(value, depth + 1);
      default:
        return this.#rejectValue(value);
    }
  }

  #checkArray(list: readonly unknown[], depth: number): PayloadErrorCode | undefined {
    if ("toJSON" in list) return this.#rejectValue(list);
    for (let i = 0; i < list.length; i++) {
      const code = this.#checkValue(list[i], depth);
      if (code !== undefined) return this.#addToPath(i, code);
    }
    return undefined;
  }

  #checkObject(object: object, depth: number): PayloadErrorCode | undefined {
    if (!isPlain(object)) return this.#rejectValue(object);
    for (const key of Object.keys(object)) {
      this.keys += 1;
      if (isPrototypeKey(key)) return this.#addToPath(key, "PAYLOAD_PROTOTYPE_KEY");
      const value = object[key];
      const code = value === undefined ? undefined : this.#checkValue(value, depth);
      if (code !== undefined) return this.#addToPath(key, code);
    }
    return undefined;
  }

  #rejectValue(value: unknown): PayloadErrorCode {
    this.#odd = value;
    return "PAYLOAD_NOT_JSON";
  }

  #addToPath(key: string | number, code: PayloadErrorCode): PayloadErrorCode {
    (this.#trail ??= []).push(key);
    return code;
  }
}

// Objects of other realms are plain too, so only the depth of the prototype chain is checked.
function isPlain(object: object): object is Record<string, unknown> {
  const prototype: unknown = Object.getPrototypeOf(object);
  return prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null;
}

function isPrototypeKey(key: string): boolean {
  if (key.length !== 9 && key.length !== 11) return false;
  return key === "__proto__" || key === "prototype" || key === "constructor";
}

/** Checks the strings of a value whose types and depth are valid. */
function findTextFlaw(value: unknown, path: Trail = []): Flaw | undefined {
  if (typeof value === "string") return textFlaw(value, path);
  if (typeof value !== "object" || value === null) return undefined;
  const entries: Iterable<readonly [string | number, unknown]> = Array.isArray(value)
    ? value.entries()
    : Object.entries(value);
  for (const [key, item] of entries) {
    const itemPath = [...path, key];
    const flaw =
      (typeof key === "string" ? textFlaw(key, itemPath) : undefined) ?? findTextFlaw(item, itemPath);
    if (flaw !== undefined) return flaw;
  }
  return undefined;
}

function textFlaw(text: string, path: Trail): Flaw | undefined {
  if (text.includes("\u0000")) return { code: "PAYLOAD_NUL", path };
  if (!isWellFormed(text)) return { code: "PAYLOAD_LONE_SURROGATE", path };
  return undefined;
}

type PathKey = string | number | symbol;

/**
 * Formats a path for error messages, as in `lines[3].price`. Keys that are not plain identifiers are quoted
 * and cut to 40 characters.
 */
export function formatPath(keys: readonly PathKey[]): string {
  let path = "";
  for (const key of keys) {
    if (typeof key === "number") path += `[${key}]`;
    else if (typeof key === "string" && /^[A-Za-z_$][\w$]{0,63}$/.test(key))
      path += path === "" ? key : `.${key}`;
    else path += `[${JSON.stringify(String(key).slice(0, 40))}]`;
  }
  return path;
}

const MAX_SHOWN_KEYS = 12;

/**
 * Formats a path for a sentence: of a path with more than 12 keys it shows the first four and the last four.
 */
function formatShortPath(keys: readonly PathKey[]): string {
  if (keys.length <= MAX_SHOWN_KEYS) return formatPath(keys);
  return `${formatPath(keys.slice(0, 4))} … ${formatPath(keys.slice(-4))}`;
}
