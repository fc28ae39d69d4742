import type { PayloadErrorCode } from "../errors/index.ts";
import { isWellFormed } from "./printable.ts";

/** Why a value cannot be a payload, and where. */
export interface Flaw {
  readonly code: PayloadErrorCode;
  readonly path: readonly (string | number)[];
  /** The value that JSON cannot carry, with PAYLOAD_NOT_JSON. */
  readonly odd?: unknown;
}

interface FlawLimits {
  readonly maxDepth: number;
  /** A value takes at least a byte, so more values than bytes are too large; this also ends shared references that unfold without end. */
  readonly maxNodes: number;
}

type Trail = (string | number)[];

/** Looks at the shape: kinds of values, depth, keys. This is on the way of every message, so it builds no path until it must. */
export function findValueFlaw(value: unknown, limits: FlawLimits): Flaw | undefined {
  return new FlawFinder(limits).findFlaw(value);
}

/** The same, for whoever wants to know more of a value than that. */
export class FlawFinder {
  /** How many keys the objects have that were looked at. */
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

  // Each level adds its key on the way out, so that a clean value costs no path at all.
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

// An object of another realm is plain too; what counts is that its prototype is a root.
function isPlain(object: object): object is Record<string, unknown> {
  const prototype: unknown = Object.getPrototypeOf(object);
  return prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null;
}

function isPrototypeKey(key: string): boolean {
  if (key.length !== 9 && key.length !== 11) return false;
  return key === "__proto__" || key === "prototype" || key === "constructor";
}

/** Looks into the texts of a value whose shape is known to be sound. */
export function findTextFlaw(value: unknown, path: Trail = []): Flaw | undefined {
  if (typeof value === "string") return textFlaw(value, path);
  if (typeof value !== "object" || value === null) return undefined;
  const entries: Iterable<readonly [string | number, unknown]> = Array.isArray(value)
    ? value.entries()
    : Object.entries(value);
  for (const [key, item] of entries) {
    const place = [...path, key];
    const flaw = (typeof key === "string" ? textFlaw(key, place) : undefined) ?? findTextFlaw(item, place);
    if (flaw !== undefined) return flaw;
  }
  return undefined;
}

function textFlaw(text: string, path: Trail): Flaw | undefined {
  if (text.includes("\u0000")) return { code: "PAYLOAD_NUL", path };
  if (!isWellFormed(text)) return { code: "PAYLOAD_LONE_SURROGATE", path };
  return undefined;
}
