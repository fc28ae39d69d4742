import { isPrintable } from "./printable.ts";
import { SagaboxError } from "../errors/index.ts";
import type { Headers } from "./message.ts";
import { isValidId } from "./message-id.ts";

const utcTime = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?Z$/;
const anyTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;

/** Reads the fields of a parsed envelope by their path, and says which one is at fault. */
export class EnvelopeFields {
  readonly #root: unknown;

  constructor(root: unknown) {
    this.#root = root;
  }

  expect(path: string, value: string): void {
    if (this.#at(path) !== value) throw invalid(path, `must be "${value}"`);
  }

  text(path: string): string {
    return this.optionalText(path) ?? absent(path);
  }

  optionalText(path: string): string | null {
    const value = this.#at(path) ?? null;
    if (value === null) return null;
    if (typeof value !== "string" || value === "") throw invalid(path, "must be a text");
    if (!isPrintable(value)) throw invalid(path, "must not contain control characters or broken Unicode");
    return value;
  }

  id(path: string): string {
    return this.optionalId(path) ?? absent(path);
  }

  optionalId(path: string): string | null {
    const value = this.#at(path) ?? null;
    if (value === null || isValidId(value)) return value;
    throw invalid(path, "must be a text of 1 to 255 characters without control characters");
  }

  oneOf<const T extends string>(path: string, allowed: readonly T[]): T {
    const value = this.#at(path);
    return (
      allowed.find((candidate) => candidate === value) ?? absent(path, `must be one of ${allowed.join(", ")}`)
    );
  }

  version(path: string): number {
    const match = /^([1-9]\d{0,8})(\.0)?$/.exec(String(this.#at(path)));
    if (match === null) throw invalid(path, "must be a whole number from 1");
    return Number(match[1]);
  }

  priority(path: string): number {
    const value = this.#at(path) ?? 5;
    if (Number.isInteger(value) && (value as number) >= 0 && (value as number) <= 9) return value as number;
    throw invalid(path, "must be a whole number from 0 to 9");
  }

  time(path: string): string {
    return this.optionalTime(path) ?? absent(path);
  }

  /** UTC with up to microseconds, whatever zone the producer wrote. */
  optionalTime(path: string): string | null {
    const value = this.#at(path) ?? null;
    if (value === null) return null;
    if (typeof value !== "string" || !anyTime.test(value) || Number.isNaN(Date.parse(value))) {
      throw invalid(path, "must be a time of ISO 8601 with its zone");
    }
    const match = utcTime.exec(value);
    if (match === null) return new Date(value).toISOString();
    return match[2] === undefined ? value : `${match[1]}.${match[2]}Z`;
  }

  headers(path: string): Headers {
    const value = this.#at(path) ?? {};
    const isMap = typeof value === "object" && !Array.isArray(value);
    if (!isMap || !Object.values(value).every((item) => typeof item === "string")) {
      throw invalid(path, "must be an object of texts");
    }
    return value as Headers;
  }

  #at(path: string): unknown {
    let value = this.#root;
    for (const key of keysOf(path)) {
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
      value = (value as Record<string, unknown>)[key];
    }
    return value;
  }
}

// The paths are the few that this package names, so each is split only once.
const splitPaths = new Map<string, readonly string[]>();

function keysOf(path: string): readonly string[] {
  let keys = splitPaths.get(path);
  if (keys === undefined) splitPaths.set(path, (keys = path.split(".")));
  return keys;
}

function absent(path: string, rule = "is missing"): never {
  throw invalid(path, rule);
}

function invalid(path: string, rule: string): SagaboxError {
  return new SagaboxError("ENVELOPE_INVALID", `The envelope cannot be read: ${path} ${rule}.`);
}
