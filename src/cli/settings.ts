import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { readEnvironment, unknownVariables, type EnvironmentOptions } from "../options/index.ts";
import {
  assertMigrated,
  explainPostgresError,
  pgDatabase,
  quoteSchema,
  type Database,
  type NeededRole,
} from "../storage/index.ts";
import { textValue, type CommandInput, type Io } from "./command.ts";

/** The checked environment; variables that look like ours but are read by nobody are mentioned. */
export function loadEnvironment(io: Io): EnvironmentOptions {
  warnUnknownVariables(io);
  return readEnvironment(io.env);
}

const warnedIos = new WeakSet<Io>();

export function warnUnknownVariables(io: Io): void {
  if (warnedIos.has(io)) return;
  warnedIos.add(io);
  for (const { name, suggestion } of unknownVariables(io.env)) {
    io.err(
      `${name} is set but read by nobody.${suggestion === undefined ? "" : ` Did you mean ${suggestion}?`}`,
    );
  }
}

export function readSchemaName(input: CommandInput, { schema }: EnvironmentOptions): string {
  const name = textValue(input, "schema") ?? schema ?? "sagabox";
  quoteSchema(name);
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

/**
 * Runs `work` on the schema of the environment, which must have every migration. `needs` is the role of the database that has
 * the rights for it.
 */
export async function withSchema<T>(
  input: CommandInput,
  io: Io,
  needs: NeededRole,
  work: (database: Database, schema: string) => Promise<T>,
): Promise<T> {
  const env = loadEnvironment(io);
  const schema = readSchemaName(input, env);
  return withDatabase(env.databaseUrl, async (database) => {
    try {
      return await work(withMigrationCheck(database, schema), schema);
    } catch (error) {
      throw explainPostgresError(unwrapDenied(error), quoteSchema(schema), needs);
    }
  });
}

/** The same database, which looks before its first statement; what is wrong with the command line is told before that. */
function withMigrationCheck(database: Database, schema: string): Database {
  let looked: Promise<void> | undefined;
  const ready = (): Promise<void> => (looked ??= assertMigrated(database, schema));
  return {
    size: database.size,
    run: async (statement, params, limits) => {
      await ready();
      return database.run<never>(statement, params, limits);
    },
    begin: async (options) => {
      await ready();
      return database.begin(options);
    },
    session: async (purpose, settings, limits) => {
      await ready();
      return database.session(purpose, settings, limits);
    },
    close: () => database.close(),
  };
}

// Who may not even look whether the schema is new enough was told so without the name of a role.
function unwrapDenied(error: unknown): unknown {
  return isSagaboxError(error, "STORAGE_PERMISSION_DENIED") ? (error.cause ?? error) : error;
}
