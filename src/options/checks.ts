import { isSagaboxError, SagaboxError, type ErrorCode } from "../errors/index.ts";

/** What one option is held to, and the value that was: its default, when nobody said anything. */
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

// Options are read in one go, without waiting, so whoever reads them can be known here for that long.
let listener: ((check: OptionCheck) => void) | undefined;
let collected: Problem[] | undefined;

export function reportCheck(check: OptionCheck): void {
  listener?.(check);
}

/** Everything that is checked while options are read. The reference of the options is made from it. */
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

/** Ends the reading, unless all problems are wanted: then it goes on with a value that will be used by nobody. */
export function refuse<T>(code: ErrorCode, message: string, instead: T): T {
  if (collected === undefined) throw new SagaboxError(code, message);
  collected.push({ code, message });
  return instead;
}

/** For whoever decides by themselves what becomes of a problem: it is thrown, whatever goes on around. */
export function throwProblems<T>(read: () => T): T {
  const before = collected;
  collected = undefined;
  try {
    return read();
  } finally {
    collected = before;
  }
}

/** For a part that can throw by itself: a problem in it hides none of the others. */
export function inPart<T>(read: () => T, instead: T): T {
  if (collected === undefined) return read();
  try {
    return read();
  } catch (error) {
    collectProblem(error, collected);
    return instead;
  }
}

/** Reads options to their end and reports every problem in one error. Nothing is returned when there is one. */
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

// What breaks on a value that was refused already is no problem of its own.
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
