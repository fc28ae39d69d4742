import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { describeUnknownVariables, readEnvironment, type EnvironmentOptions } from "../options/index.ts";
import {
  assertMigrated,
  explainPostgresError,
  pgDatabase,
  quoteSchema,
  type Database,
  type NeededRole,
} from "../storage/index.ts";
import { textValue, type CommandInput, type Io } from "./command.ts";

/** Reads and checks the environment. Warns about SAGABOX_ variables that do not exist. */
export function loadEnvironment(io: Io): EnvironmentOptions {
  warnUnknownVariables(io);
  return readEnvironment(io.env);
}

const warnedIos = new WeakSet<Io>();

export function warnUnknownVariables(io: Io): void {
  if (warnedIos.has(io)) return;
  warnedIos.add(io);
  for (const problem of describeUnknownVariables(io.env)) io.err(problem);
}

export function readSchemaName(input: CommandInput, { schema }: EnvironmentOptions): string {
  const name = textValue(input, "schema") ?? schema ?? "sagabox";
  quoteSchema(name);
  return name;
}

/** The address for commands: that without the pooler if there is one, because some commands keep sessions. */
export function findUrl({ directUrl, databaseUrl }: EnvironmentOptions): string | undefined {
  return directUrl ?? databaseUrl;
}

/** Connects to a URL, runs `work` and closes the connection. Throws ENVIRONMENT_INVALID if the URL is missing. */
export async function withDatabase<T>(
  databaseUrl: string | undefined,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  if (databaseUrl === undefined) {
    throw new SagaboxError(
      "ENVIRONMENT_INVALID",
      "DATABASE_URL is not set. Set it to the URL of PostgreSQL, or run `sagabox dev` to start one.",
    );
  }
  const database = pgDatabase(databaseUrl, { maxConnections: 2 });
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}

/**
 * Runs `work` on the schema of the environment, and throws if a migration is missing. `needs` is the database role with
 * the required permissions; the error text names it when PostgreSQL denies access.
 */
export async function withSchema<T>(
  input: CommandInput,
  io: Io,
  needs: NeededRole,
  work: (database: Database, schema: string) => Promise<T>,
): Promise<T> {
  const env = loadEnvironment(io);
  const schema = readSchemaName(input, env);
  return withDatabase(findUrl(env), async (database) => {
    try {
      return await work(withMigrationCheck(database, schema), schema);
    } catch (error) {
      throw explainPostgresError(unwrapDenied(error), quoteSchema(schema), needs);
    }
  });
}

/** Wraps the database so that migrations are checked before the first statement. Usage errors come first that way. */
function withMigrationCheck(database: Database, schema: string): Database {
  let migrated: Promise<void> | undefined;
  const ready = (): Promise<void> => (migrated ??= assertMigrated(database, schema));
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

// If the migration check itself was denied, its error does not name the needed role. The cause is translated again.
function unwrapDenied(error: unknown): unknown {
  return isSagaboxError(error, "STORAGE_PERMISSION_DENIED") ? (error.cause ?? error) : error;
}
