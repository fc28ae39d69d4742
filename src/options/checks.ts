import {
  type Duration,
  type ErrorCode,
  findNearest,
  isSagaboxError,
  parseDuration,
  SagaboxError,
} from "../errors/index.ts";

export type { Duration };

export interface Bounds {
  readonly min?: number;
  readonly max?: number;
}

/** Throws for unknown keys, so that a misspelt option is not silently ignored. */
export function rejectUnknownKeys(where: string, options: object, known: readonly string[]): void {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw invalid(`${where} must be an object.`);
  }
  const problems = new Problems();
  for (const key of Object.keys(options)) {
    if (!known.includes(key)) problems.collect(() => throwUnknownKey(where, key, known));
  }
  problems.throwIfAny(`The options of ${where}`);
}

function throwUnknownKey(where: string, key: string, known: readonly string[]): never {
  const suggestion = findNearest(key, known);
  const hint = suggestion === undefined ? `Known are: ${known.join(", ")}.` : `Did you mean "${suggestion}"?`;
  throw new SagaboxError("OPTIONS_UNKNOWN_KEY", `${where} has no option "${key}". ${hint}`);
}

export function wholeNumber(
  name: string,
  value: unknown,
  { min = 0, max = 2_147_483_647 }: Bounds = {},
): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) return value;
  throw invalid(`${name} must be a whole number from ${min} to ${max}, but is ${describe(value)}.`);
}

export function oneOf<const T extends string>(name: string, value: unknown, allowed: readonly T[]): T {
  const found = allowed.find((candidate) => candidate === value);
  if (found !== undefined) return found;
  const suggestion = typeof value === "string" ? findNearest(value, allowed) : undefined;
  const hint = suggestion === undefined ? "" : ` Did you mean "${suggestion}"?`;
  const list = allowed.map((candidate) => `"${candidate}"`).join(", ");
  throw invalid(`${name} must be one of ${list}.${hint}`);
}

export function flag(name: string, value: unknown): boolean {
  if (typeof value === "boolean") return value;
  throw invalid(`${name} must be true or false, but is ${describe(value)}.`);
}

export function callable<F>(name: string, value: F): F {
  if (typeof value === "function") return value;
  throw invalid(`${name} must be a function, but is ${describe(value)}.`);
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
  if (typeof value !== "string") {
    throw invalid(`${name} must be a string, but is ${describe(value)}.`);
  }
  if (value.length < min || value.length > max) {
    const bounds = `${name} must have ${min} to ${max} characters, but has ${value.length}.`;
    throw invalid(bounds);
  }
  if (pattern === undefined || pattern.test(value)) return value;
  throw invalid(
    like === undefined ? `${name} must match ${String(pattern)}.` : `${name} must look like ${like}.`,
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

// Longer delays overflow the timers of Node, which then fire immediately.
const MAX_TIMER_MS = 2_147_483_647;

const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
] as const;

/** Formats a duration in its largest whole unit: 7d, not 604800000 ms. */
function formatDuration(ms: number): string {
  const [unit, size] = UNITS.find(([, one]) => ms >= one && ms % one === 0) ?? [" ms", 1];
  return `${ms / size}${unit}`;
}

/** Checks a duration such as "30s" or a number of milliseconds and returns milliseconds. Default maximum: 24 days. */
export function milliseconds(
  name: string,
  value: unknown,
  bounds: { min?: number; max?: number } = {},
): number {
  const { min = 0, max = MAX_TIMER_MS } = bounds;
  const ms = parseDuration(value);
  if (ms === undefined) {
    throw invalid(`${name} must be a duration such as "30s" or "5m", or a number of milliseconds.`);
  }
  if (ms >= min && ms <= max) return ms;
  throw invalid(
    `${name} must be from ${formatDuration(min)} to ${formatDuration(max)}, but is ${formatDuration(ms)}.`,
  );
}

function invalid(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}

interface Problem {
  readonly code: ErrorCode;
  readonly message: string;
}

/** Several problems in one error. A caller that collects problems of its own takes them over one by one. */
class ProblemsError extends SagaboxError<"OPTIONS_INVALID"> {
  readonly #problems: readonly Problem[];

  constructor(what: string, problems: readonly Problem[]) {
    const list = problems.map(({ message }) => message.replaceAll("\n", "\n  "));
    super("OPTIONS_INVALID", `${what} cannot be used:\n- ${list.join("\n- ")}`);
    this.#problems = problems;
  }

  static list(error: SagaboxError): readonly Problem[] {
    return error instanceof ProblemsError ? error.#problems : [{ code: error.code, message: error.message }];
  }
}

/** Collects the problems of several reads, so that one error reports all of them. */
export class Problems {
  readonly #list: Problem[] = [];

  /** Returns the result of `read`. If it throws, records its problems and returns undefined. */
  collect<T>(read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      this.#add(error);
      return undefined;
    }
  }

  /** Throws the problem if there is one, and an error that lists all of them if there are several. */
  throwIfAny(what: string): void {
    const [first, ...others] = this.#list;
    if (first === undefined) return;
    if (others.length === 0) throw new SagaboxError(first.code, first.message);
    throw new ProblemsError(what, this.#list);
  }

  #add(error: unknown): void {
    if (!isSagaboxError(error)) {
      // A read that breaks after a refused value is a consequence of it. Without one it is a bug.
      if (this.#list.length === 0) throw error;
      return;
    }
    for (const problem of ProblemsError.list(error)) if (!this.#isReported(problem)) this.#list.push(problem);
  }

  // A second problem of a value that was already refused follows from the first.
  #isReported({ code, message }: Problem): boolean {
    if (this.#list.some((known) => known.message === message)) return true;
    const [subject = ""] = message.split(" ", 1);
    if (code !== "OPTIONS_INVALID" || !/^[a-z]/.test(subject)) return false;
    return this.#list.some((known) => known.code === code && known.message.startsWith(`${subject} `));
  }
}

/** Returns the result of `read`. Several problems are thrown as one error that begins with `what`. */
export function allProblems<T>(what: string, read: () => T): T {
  const problems = new Problems();
  const result = problems.collect(read);
  problems.throwIfAny(what);
  return result as T;
}
