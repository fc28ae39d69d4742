import { readFileSync } from "node:fs";
import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { environmentVariables, readVariable, type EnvironmentVariable } from "./environment-variables.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

type Variables = typeof environmentVariables;

/** The settings found in the environment; others are absent. Durations are milliseconds. */
export type EnvironmentOptions = {
  readonly [Name in keyof Variables]?: NonNullable<ReturnType<Variables[Name]["option"]["check"]>>;
};

export type ReadSecret = (path: string) => string;

/**
 * Reads and checks all variables. Throws one error that lists every problem; it never contains a value, except the path
 * of a file. An invalid value under a general name such as LOG_LEVEL is ignored, because it may belong to the application.
 */
export function readEnvironment(
  env: Environment,
  readSecret: ReadSecret = readSecretFromFile,
): EnvironmentOptions {
  const { options, problems } = gatherEnvironment(env, readSecret);
  if (problems.length > 0) throw environmentInvalid(problems);
  return options;
}

const commandLine = Symbol.for("sagabox.command-line");

/**
 * Runs `load`, which loads an application for the `sagabox` command. Meanwhile a bus reads general names too. The mark is
 * a global, because a bundled application contains its own copy of this module.
 */
export async function loadForCommandLine<T>(load: () => Promise<T>): Promise<T> {
  Reflect.set(globalThis, commandLine, true);
  try {
    return await load();
  } finally {
    Reflect.deleteProperty(globalThis, commandLine);
  }
}

/** Returns true while the `sagabox` command loads an application. */
export function isCommandLine(): boolean {
  return Reflect.has(globalThis, commandLine);
}

/**
 * Returns the variables that a bus may read. An application may use a general name such as BATCH_SIZE for something
 * else, so those names are left out unless the `sagabox` command is loading it.
 */
export function environmentOfBus(env: Environment): Environment {
  if (isCommandLine()) return env;
  return Object.fromEntries(Object.entries(env).filter(([name]) => !isGeneralName(name)));
}

/** Returns true for names such as BATCH_SIZE that only the `sagabox` command reads. */
export function isGeneralName(name: string): boolean {
  return generalNames.has(name);
}

// DATABASE_URL is not one of them: it always means the database of the application.
const generalNames: ReadonlySet<string> = new Set(
  Object.values<EnvironmentVariable>(environmentVariables)
    .filter((variable) => variable !== environmentVariables.databaseUrl)
    .flatMap(({ names }) => names.filter((name) => !name.startsWith("SAGABOX_")))
    .flatMap((name) => [name, `${name}_FILE`]),
);

export const readSecretFromFile: ReadSecret = (path) => readFileSync(path, "utf8");

export function gatherEnvironment(
  env: Environment,
  readSecret: ReadSecret,
): { readonly options: EnvironmentOptions; readonly problems: readonly string[] } {
  const options: Record<string, unknown> = {};
  const problems: string[] = [];
  for (const [option, variable] of Object.entries<EnvironmentVariable>(environmentVariables)) {
    try {
      const found = findVariable(env, variable, readSecret);
      if (found !== undefined) options[option] = readVariable(variable, found.name, found.value);
    } catch (error) {
      if (!isSagaboxError(error)) throw error;
      if (!belongsToHost(env, variable)) problems.push(error.message);
    }
  }
  return { options: Object.freeze(options) as EnvironmentOptions, problems };
}

export function environmentInvalid(problems: readonly string[]): SagaboxError {
  return new SagaboxError(
    "ENVIRONMENT_INVALID",
    `The environment cannot be used:\n- ${problems.join("\n- ")}`,
  );
}

// LOG_LEVEL or ENCRYPTION_KEY may mean something else to the host application, so an invalid value there is ignored.
// The database URL is an exception, because a bus needs one.
function belongsToHost(env: Environment, variable: EnvironmentVariable): boolean {
  if (variable === environmentVariables.databaseUrl) return false;
  if (variable.names.some((name) => variable.isOurs?.(env[name] ?? "") === true)) return false;
  return !variable.names.some(
    (name) => name.startsWith("SAGABOX_") && (env[name] || (variable.secret && env[`${name}_FILE`])),
  );
}

// Deployment tools often pass an unset variable as an empty string.
export function findVariable(env: Environment, variable: EnvironmentVariable, readSecret: ReadSecret) {
  for (const name of variable.names) {
    const value = env[name];
    const path = variable.secret ? env[`${name}_FILE`] : undefined;
    if (value && path) {
      throw new SagaboxError(
        "ENVIRONMENT_INVALID",
        `${name} and ${name}_FILE are both set. Keep one of them.`,
      );
    }
    if (value) return { name, value };
    if (path) return { name: `${name}_FILE`, value: readSecretContents(`${name}_FILE`, path, readSecret) };
  }
  return undefined;
}

function readSecretContents(name: string, path: string, readSecret: ReadSecret): string {
  let text: string;
  try {
    text = readSecret(path).replace(/\r?\n$/, "");
  } catch (cause) {
    throw unreadableFile(name, path, cause);
  }
  if (text !== "") return text;
  throw new SagaboxError("ENVIRONMENT_INVALID", `${name} names a file that is empty.`);
}

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
