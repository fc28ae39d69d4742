import { SagaboxError } from "../errors/index.ts";

const reasons: Readonly<Record<string, string>> = {
  ENOENT: "there is no such file",
  EACCES: "this user may not read it",
  EISDIR: "it is a folder",
};

// Whoever confuses the two puts the secret itself where its path belongs; that is not repeated.
const PATH = /^(?:\.{0,2}[\\/]|[A-Za-z]:[\\/])[\w.\\/ @-]*$/;

/** A variable that should name a file does not name one that can be read. */
export function unreadableFile(name: string, path: string, cause: unknown): SagaboxError {
  const { code = "unknown reason" } = (cause ?? {}) as NodeJS.ErrnoException;
  const reason = reasons[code] ?? code;
  const why = PATH.test(path) ? `${path} (${reason})` : `${reason}, and its value does not look like a path`;
  return new SagaboxError("ENVIRONMENT_INVALID", `${name} names a file that cannot be read: ${why}.`, {
    cause,
  });
}
