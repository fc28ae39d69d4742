import { isSagaboxError, SagaboxError, type ErrorCode } from "../errors/index.ts";

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
