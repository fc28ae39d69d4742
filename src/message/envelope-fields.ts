import { isPrintable } from "./printable.ts";
import { SagaboxError } from "../errors/index.ts";
import type { Headers } from "./message.ts";
import { isValidId } from "./message-id.ts";

const utcTime = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?Z$/;
const anyTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;
// JavaScript reads February 30 as a day in March; PostgreSQL refuses that day and the year 0.
const unusual = /^0000|^\d{4}-\d\d-(?:29|3)|T24/;

/** Creates the error that names the field and the rule it breaks. */
type Invalid = (path: string, rule: string) => SagaboxError;

/**
 * Reads the fields of a parsed envelope by path. Each method throws an error that names the invalid field.
 */
export class EnvelopeFields {
  readonly #root: unknown;
  readonly #invalid: Invalid;

  constructor(root: unknown, invalid: Invalid = envelopeInvalid) {
    this.#root = root;
    this.#invalid = invalid;
  }

  expect(path: string, value: string): void {
    if (this.#readPath(path) !== value) throw this.#invalid(path, `must be "${value}"`);
  }

  readText(path: string): string {
    return this.readOptionalText(path) ?? this.#throwMissing(path);
  }

  readOptionalText(path: string): string | null {
    const value = this.#readPath(path) ?? null;
    if (value === null) return null;
    if (typeof value !== "string" || value === "") throw this.#invalid(path, "must be a non-empty string");
    if (!isPrintable(value))
      throw this.#invalid(path, "must not contain control characters or broken Unicode");
    return value;
  }

  readId(path: string): string {
    return this.readOptionalId(path) ?? this.#throwMissing(path);
  }

  readOptionalId(path: string): string | null {
    const value = this.#readPath(path) ?? null;
    if (value === null || isValidId(value)) return value;
    throw this.#invalid(path, "must be a string of 1 to 255 characters without control characters");
  }

  readEnum<const T extends string>(path: string, allowed: readonly T[]): T {
    const value = this.#readPath(path);
    return (
      allowed.find((candidate) => candidate === value) ??
      this.#throwMissing(path, `must be one of ${allowed.join(", ")}`)
    );
  }

  readVersion(path: string): number {
    const match = /^([1-9]\d{0,8})(\.0)?$/.exec(String(this.#readPath(path)));
    if (match === null) throw this.#invalid(path, "must be a whole number from 1");
    return Number(match[1]);
  }

  readPriority(path: string): number {
    const value = this.#readPath(path) ?? 5;
    if (Number.isInteger(value) && (value as number) >= 0 && (value as number) <= 9) return value as number;
    throw this.#invalid(path, "must be a whole number from 0 to 9");
  }

  readTime(path: string): string {
    return this.readOptionalTime(path) ?? this.#throwMissing(path);
  }

  /** Returns the time in UTC with up to microseconds, also if the producer wrote another zone. */
  readOptionalTime(path: string): string | null {
    const value = this.#readPath(path) ?? null;
    if (value === null) return null;
    if (typeof value !== "string" || !anyTime.test(value) || Number.isNaN(Date.parse(value))) {
      throw this.#invalid(path, "must be an ISO 8601 time with a time zone");
    }
    const match = utcTime.exec(value);
    if (match !== null && !unusual.test(value)) {
      return match[2] === undefined ? value : `${match[1]}.${match[2]}Z`;
    }
    const utc = new Date(value).toISOString();
    if (!/^\d{4}/.test(utc) || utc.startsWith("0000") || !utc.startsWith(match?.[1] ?? "")) {
      throw this.#invalid(path, "must be an existing date and time");
    }
    if (match === null) return utc;
    return match[2] === undefined ? value : `${match[1]}.${match[2]}Z`;
  }

  readHeaders(path: string): Headers {
    const value = this.#readPath(path) ?? {};
    const isMap = typeof value === "object" && !Array.isArray(value);
    if (!isMap || !Object.values(value).every((item) => typeof item === "string")) {
      throw this.#invalid(path, "must be an object of strings");
    }
    return value as Headers;
  }

  #throwMissing(path: string, rule = "is missing"): never {
    throw this.#invalid(path, rule);
  }

  #readPath(path: string): unknown {
    let value = this.#root;
    for (const key of splitPath(path)) {
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
      value = (value as Record<string, unknown>)[key];
    }
    return value;
  }
}

// Only the fixed paths of this package get here, so the cache stays small.
const splitPaths = new Map<string, readonly string[]>();

function splitPath(path: string): readonly string[] {
  let keys = splitPaths.get(path);
  if (keys === undefined) splitPaths.set(path, (keys = path.split(".")));
  return keys;
}

function envelopeInvalid(path: string, rule: string): SagaboxError {
  return new SagaboxError("ENVELOPE_INVALID", `The envelope cannot be read: ${path} ${rule}.`);
}
