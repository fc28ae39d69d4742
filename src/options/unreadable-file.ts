import { SagaboxError } from "../errors/index.ts";

const reasons: Readonly<Record<string, string>> = {
  ENOENT: "there is no such file",
  EACCES: "this user may not read it",
  EISDIR: "it is a folder",
};

// A value that is not a path may be the secret itself, so errors do not repeat it.
const PATH = /^(?:\.{0,2}[\\/]|[A-Za-z]:[\\/])[\w.\\/ @-]*$/;

/** Creates the error for a variable whose file cannot be read. */
export function unreadableFile(name: string, path: string, cause: unknown): SagaboxError {
  const { code = "unknown reason" } = (cause ?? {}) as NodeJS.ErrnoException;
  const reason = reasons[code] ?? code;
  const why = PATH.test(path) ? `${path} (${reason})` : `${reason}, and its value does not look like a path`;
  return new SagaboxError("ENVIRONMENT_INVALID", `${name} names a file that cannot be read: ${why}.`, {
    cause,
  });
}
