import { findNearest } from "../errors/index.ts";
import { reportCheck, refuse } from "./checks.ts";

export interface Bounds {
  readonly min?: number;
  readonly max?: number;
}

/** Refuses unknown keys, so that a misspelt option is not silently ignored. */
export function rejectUnknownKeys(where: string, options: object, known: readonly string[]): void {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    refuse("OPTIONS_INVALID", `${where} must be an object.`, undefined);
    return;
  }
  for (const key of Object.keys(options)) {
    if (known.includes(key)) continue;
    const suggestion = findNearest(key, known);
    const hint =
      suggestion === undefined ? `Known are: ${known.join(", ")}.` : `Did you mean "${suggestion}"?`;
    refuse("OPTIONS_UNKNOWN_KEY", `${where} has no option "${key}". ${hint}`, undefined);
  }
}

export function wholeNumber(
  name: string,
  value: unknown,
  { min = 0, max = 2_147_483_647 }: Bounds = {},
): number {
  reportCheck({ name, kind: "number", value, min, max });
  if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) return value;
  return refuse(
    "OPTIONS_INVALID",
    `${name} must be a whole number from ${min} to ${max}, but is ${describe(value)}.`,
    min,
  );
}

export function oneOf<const T extends string>(name: string, value: unknown, allowed: readonly T[]): T {
  reportCheck({ name, kind: "choice", value, choices: allowed });
  const found = allowed.find((candidate) => candidate === value);
  if (found !== undefined) return found;
  const suggestion = typeof value === "string" ? findNearest(value, allowed) : undefined;
  const hint = suggestion === undefined ? "" : ` Did you mean "${suggestion}"?`;
  const list = allowed.map((candidate) => `"${candidate}"`).join(", ");
  return refuse("OPTIONS_INVALID", `${name} must be one of ${list}.${hint}`, allowed[0] as T);
}

export function flag(name: string, value: unknown): boolean {
  reportCheck({ name, kind: "flag", value });
  if (typeof value === "boolean") return value;
  return refuse("OPTIONS_INVALID", `${name} must be true or false, but is ${describe(value)}.`, false);
}

export function callable<F>(name: string, value: F): F {
  if (typeof value === "function") return value;
  return refuse("OPTIONS_INVALID", `${name} must be a function, but is ${describe(value)}.`, value);
}

interface TextRules {
  readonly min?: number;
  readonly max?: number;
  readonly pattern?: RegExp;
  /** An example that matches the pattern, for the error message. */
  readonly like?: string;
}

export function text(
  name: string,
  value: unknown,
  { min = 1, max = 255, pattern, like }: TextRules = {},
): string {
  reportCheck({ name, kind: "text", value, min, max, ...(pattern !== undefined && { pattern }) });
  if (typeof value !== "string") {
    return refuse("OPTIONS_INVALID", `${name} must be a string, but is ${describe(value)}.`, "");
  }
  if (value.length < min || value.length > max) {
    const bounds = `${name} must have ${min} to ${max} characters, but has ${value.length}.`;
    return refuse("OPTIONS_INVALID", bounds, "");
  }
  if (pattern === undefined || pattern.test(value)) return value;
  return refuse(
    "OPTIONS_INVALID",
    like === undefined ? `${name} must match ${String(pattern)}.` : `${name} must look like ${like}.`,
    "",
  );
}

// Strings are described by their type only, because a misplaced option may be a password.
function describe(value: unknown): string {
  if (typeof value === "number" || typeof value === "boolean" || value === undefined || value === null) {
    return String(value);
  }
  if (typeof value === "string") return "a string";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}
