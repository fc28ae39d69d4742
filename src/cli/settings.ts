import { SagaboxError } from "../errors/index.ts";
import { readEnvironment, unknownVariables, type EnvironmentOptions } from "../options/index.ts";
import { pgDatabase, quotedSchema, type Database } from "../storage/index.ts";
import { textValue, type CommandInput, type Io } from "./command.ts";

/** The checked environment; variables that look like ours but are read by nobody are mentioned. */
export function environment(io: Io): EnvironmentOptions {
  for (const { name, suggestion } of unknownVariables(io.env)) {
    io.err(
      `${name} is set but read by nobody.${suggestion === undefined ? "" : ` Did you mean ${suggestion}?`}`,
    );
  }
  return readEnvironment(io.env);
}

export function schemaName(input: CommandInput, { schema }: EnvironmentOptions): string {
  const name = textValue(input, "schema") ?? schema ?? "sagabox";
  quotedSchema(name);
  return name;
}

/** Runs `work` with a connection to the database of the environment, and closes it afterwards. */
export async function withDatabase<T>(
  databaseUrl: string | undefined,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  if (databaseUrl === undefined) {
    throw new SagaboxError(
      "ENVIRONMENT_INVALID",
      "DATABASE_URL is not set. Give the address of PostgreSQL, or run `sagabox dev` for one of its own.",
    );
  }
  const database = pgDatabase(databaseUrl, 2);
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}
