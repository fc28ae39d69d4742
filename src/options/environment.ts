import { readFileSync } from "node:fs";
import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { environmentVariables, type EnvironmentVariable } from "./environment-variables.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

type Variables = typeof environmentVariables;

/** What the environment says; settings it does not mention are absent. Times are milliseconds. */
export type EnvironmentOptions = {
  readonly [Option in keyof Variables]?: ReturnType<Variables[Option]["read"]>;
};

export type ReadSecret = (path: string) => string;

/**
 * Reads and checks all variables, and reports every problem at once. Values are never repeated in errors. A general name
 * that the host application uses for something else is passed over.
 */
export function readEnvironment(
  env: Environment,
  readSecret: ReadSecret = (path) => readFileSync(path, "utf8"),
): EnvironmentOptions {
  const options: Record<string, unknown> = {};
  const problems: string[] = [];
  for (const [option, variable] of Object.entries<EnvironmentVariable>(environmentVariables)) {
    try {
      const found = findVariable(env, variable, readSecret);
      if (found !== undefined) options[option] = variable.read(found.name, found.value);
    } catch (error) {
      if (!isSagaboxError(error)) throw error;
      if (!belongsToTheHost(env, variable)) problems.push(error.message);
    }
  }
  if (problems.length > 0) {
    throw new SagaboxError(
      "ENVIRONMENT_INVALID",
      `The environment cannot be used:\n- ${problems.join("\n- ")}`,
    );
  }
  return Object.freeze(options) as EnvironmentOptions;
}

// LOG_LEVEL or BATCH_SIZE may mean something else to the application around us: what we cannot read there is not ours.
function belongsToTheHost(env: Environment, { names, secret }: EnvironmentVariable): boolean {
  return !secret && !names.some((name) => name.startsWith("SAGABOX_") && env[name]);
}

// Deployment tools often pass a variable that is meant to be unset as an empty text.
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
    if (path) return { name: `${name}_FILE`, value: contents(`${name}_FILE`, path, readSecret) };
  }
  return undefined;
}

function contents(name: string, path: string, readSecret: ReadSecret): string {
  try {
    return readSecret(path).replace(/\r?\n$/, "");
  } catch (cause) {
    throw new SagaboxError("ENVIRONMENT_INVALID", `${name} names a file that cannot be read.`, { cause });
  }
}
