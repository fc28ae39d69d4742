import { readFileSync } from "node:fs";
import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { environmentVariables, readVariable, type EnvironmentVariable } from "./environment-variables.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

type Variables = typeof environmentVariables;

/** The options that the environment sets. Unset options are absent. Durations are in milliseconds. */
export type EnvironmentOptions = {
  readonly [Name in keyof Variables]?: NonNullable<ReturnType<Variables[Name]["option"]["check"]>>;
};

export type ReadSecret = (path: string) => string;

/**
 * Reads and checks all variables. Throws one ENVIRONMENT_INVALID that lists every problem. It may contain the path of a file,
 * but no other value. An invalid LOG_LEVEL or other general name is ignored, because it may belong to the application.
 */
export function readEnvironment(
  env: Environment,
  readSecret: ReadSecret = readSecretFromFile,
): EnvironmentOptions {
  const { options, problems } = gatherEnvironment(env, readSecret);
  if (problems.length > 0) throw environmentInvalid(problems);
  return options;
}

const commandLineMark = Symbol.for("sagabox.command-line");

/**
 * Runs `load`, which loads an application for the `sagabox` command. Until it returns, a bus also reads general names such as
 * BATCH_SIZE. A global property marks this time, because a bundled application contains its own copy of this module.
 */
export async function loadForCommandLine<T>(load: () => Promise<T>): Promise<T> {
  Reflect.set(globalThis, commandLineMark, true);
  try {
    return await load();
  } finally {
    Reflect.deleteProperty(globalThis, commandLineMark);
  }
}

/** Returns true while the `sagabox` command loads an application. */
export function isCommandLine(): boolean {
  return Reflect.has(globalThis, commandLineMark);
}

/**
 * Returns the variables that a bus may read. An application may use a general name such as BATCH_SIZE for something
 * else, so those names are left out unless the `sagabox` command is loading it.
 */
export function environmentOfBus(env: Environment): Environment {
  if (isCommandLine()) return env;
  return Object.fromEntries(Object.entries(env).filter(([name]) => !isGeneralName(name)));
}

/** Returns true for names without SAGABOX_, such as BATCH_SIZE, that a bus reads only under the `sagabox` command. */
export function isGeneralName(name: string): boolean {
  return generalNames.has(name);
}

// DATABASE_URL is not a general name: it always means the database of the application.
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
      if (!mayBelongToApplication(env, variable)) problems.push(error.message);
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

// The application may use LOG_LEVEL or ENCRYPTION_KEY for something else, so an invalid value under such a name is ignored.
// The database URL is an exception, because a bus needs one.
function mayBelongToApplication(env: Environment, variable: EnvironmentVariable): boolean {
  if (variable === environmentVariables.databaseUrl) return false;
  if (variable.names.some((name) => variable.isOurs?.(env[name] ?? "") === true)) return false;
  return !variable.names.some(
    (name) => name.startsWith("SAGABOX_") && (env[name] || (variable.secret && env[`${name}_FILE`])),
  );
}

/**
 * Returns the value of the first name that is set, directly or as the path of a file in NAME_FILE. An empty string counts as
 * unset, because deployment tools often pass unset variables this way. Throws ENVIRONMENT_INVALID.
 */
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

// Errors contain the value only if it looks like a path. Otherwise it may be the secret itself.
const PATH = /^(?:\.{0,2}[\\/]|[A-Za-z]:[\\/])[\w.\\/ @-]*$/;

/** Creates the error for a variable whose file cannot be read. */
export function unreadableFile(name: string, path: string, cause: unknown): SagaboxError {
  const { code = "unknown reason" } = (cause ?? {}) as NodeJS.ErrnoException;
  const reason = reasons[code] ?? code;
  const detail = PATH.test(path)
    ? `${path} (${reason})`
    : `${reason}, and its value does not look like a path`;
  return new SagaboxError("ENVIRONMENT_INVALID", `${name} names a file that cannot be read: ${detail}.`, {
    cause,
  });
}
