import { isSagaboxError, SagaboxError, type ErrorCode } from "../errors/index.ts";

/** The rules of one option, with the value that was checked: its default if the option is missing. */
export interface OptionCheck {
  readonly name: string;
  readonly kind: "number" | "duration" | "text" | "choice" | "flag";
  readonly value: unknown;
  readonly min?: number;
  readonly max?: number;
  readonly pattern?: RegExp;
  readonly choices?: readonly string[];
}

interface Problem {
  readonly code: ErrorCode;
  readonly message: string;
}

// Options are read synchronously, so a module variable can hold the collector of the current read.
let listener: ((check: OptionCheck) => void) | undefined;
let collected: Problem[] | undefined;

export function reportCheck(check: OptionCheck): void {
  listener?.(check);
}

/** Lists the checks made while options are read. The configuration reference is generated from them. */
export function listChecks(read: () => unknown): readonly OptionCheck[] {
  const checks: OptionCheck[] = [];
  const before = listener;
  listener = (check) => void checks.push(check);
  try {
    read();
  } finally {
    listener = before;
  }
  return checks;
}

/** Throws the problem. Inside `allProblems` it records the problem and returns a placeholder that is never used. */
export function refuse<T>(code: ErrorCode, message: string, instead: T): T {
  if (collected === undefined) throw new SagaboxError(code, message);
  collected.push({ code, message });
  return instead;
}

/** Throws problems even inside `allProblems`, for callers that handle them themselves. */
export function throwProblems<T>(read: () => T): T {
  const before = collected;
  collected = undefined;
  try {
    return read();
  } finally {
    collected = before;
  }
}

/** Reads a part that may throw. Inside `allProblems` its error is recorded and the remaining parts are still read. */
export function inPart<T>(read: () => T, instead: T): T {
  if (collected === undefined) return read();
  try {
    return read();
  } catch (error) {
    collectProblem(error, collected);
    return instead;
  }
}

/** Reads options completely and throws one error that lists every problem. */
export function allProblems<T>(what: string, read: () => T): T {
  if (collected !== undefined) return read();
  const problems: Problem[] = (collected = []);
  let result: T | undefined;
  try {
    result = read();
  } catch (error) {
    collectProblem(error, problems);
  } finally {
    collected = undefined;
  }
  const [first, ...others] = problems;
  if (first === undefined) return result as T;
  if (others.length === 0) throw new SagaboxError(first.code, first.message);
  const list = problems.map(({ message }) => message.replaceAll("\n", "\n  "));
  throw new SagaboxError("OPTIONS_INVALID", `${what} cannot be used:\n- ${list.join("\n- ")}`);
}

// An error that follows from a value already refused is not reported again.
function collectProblem(error: unknown, problems: Problem[]): void {
  if (!isSagaboxError(error)) {
    if (problems.length === 0) throw error;
    return;
  }
  const [subject = ""] = error.message.split(" ", 1);
  const isOption = /^[a-z]/.test(subject);
  if (isOption && problems.some(({ message }) => message.startsWith(`${subject} `))) return;
  problems.push({ code: error.code, message: error.message });
}
