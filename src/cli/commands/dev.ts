import { mkdirSync, writeFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { migrateSchema } from "../../admin/index.ts";
import { startEmbeddedPostgres, type EmbeddedPostgres } from "../../embedded/index.ts";
import { isSagaboxError, SagaboxError } from "../../errors/index.ts";
import { every } from "../../runtime/index.ts";
import type { Database } from "../../storage/index.ts";
import { portValue, textValue, UsageError, type Command, type CommandInput, type Io } from "../command.ts";
import { loadApp } from "../load-app.ts";
import { table } from "../print.ts";
import { runApp, type RunAppOptions } from "../run-app.ts";
import { loadEnvironment, readSchemaName, withDatabase } from "../settings.ts";
import { otherClients } from "../statements.ts";
import { listenForStop, type StopSignals } from "../stop-signals.ts";

export const dev: Command = {
  name: "dev",
  actions: ["sql"],
  summary: "Run a local PostgreSQL for development, with the schema migrated, until Ctrl-C.",
  usage: [
    "dev [--app <module>] [--port <number>] [--data <folder>] [--database-port <number>] [--schema <name>]",
    'dev sql "<statements>" [--data <folder>] [--database-port <number>]',
  ],
  details: `Data is kept in ./.sagabox between runs. The port stays the same unless another program has taken it, so an
exported DATABASE_URL stays valid. With --app the application's worker runs as well.
If DATABASE_URL is set, that database is used and no server is started.

\`sagabox dev sql\` runs SQL statements in one transaction and prints the rows of a single statement, for machines
without psql. It uses the server of a running \`sagabox dev\`, or starts one until the statements are done.

Examples:
  sagabox dev --app ./app.js
  sagabox dev sql "select * from orders"`,
  options: {
    app: { type: "string", value: "<module>", help: "File that exports the bus. Its worker runs too." },
    port: {
      type: "string",
      value: "<number>",
      help: "Port of health and metrics. Default: SAGABOX_PORT or 8000.",
    },
    data: { type: "string", value: "<folder>", help: "Data folder. Default: .sagabox" },
    "database-port": {
      type: "string",
      value: "<number>",
      help: "Port of PostgreSQL. Default: the port of the last run, or a free one.",
    },
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
  },
  async run(input, io) {
    if (input.positionals.length > 0) return runSql(input, io);
    const port = portValue(input);
    const databasePort = portValue(input, "database-port", 1);
    const env = loadEnvironment(io);
    const schema = readSchemaName(input, env);
    const stop = listenForStop(io.signals, (code) => io.exit(code));
    let server: EmbeddedPostgres | undefined;
    try {
      if (env.databaseUrl === undefined) server = await startServer(input, databasePort, io);
      const url = server?.url ?? env.databaseUrl;
      const applied = await withDatabase(url, (database) => migrateSchema(database, schema)).catch(
        (error: unknown) => {
          throw server === undefined ? explainMissingServer(error, io) : error;
        },
      );
      io.out(`Schema "${schema}" is ready (${applied.length} migration(s) applied).`);
      if (server !== undefined) announce(server, io);
      io.setEnv("SAGABOX_SCHEMA", schema);
      if (env.logFormat === undefined) io.setEnv("SAGABOX_LOG_FORMAT", "pretty");
      io.out("Press Ctrl-C to stop.");
      await runUntilStopped(
        input,
        {
          port: port ?? env.port ?? 8000,
          ...(env.host === undefined ? {} : { host: env.host }),
          shutdownMs: env.shutdownTimeout ?? 30_000,
        },
        { stop, io, server },
      );
      return 0;
    } finally {
      if (server !== undefined) await stopServer(server, io);
      stop.dispose();
    }
  },
};

async function runSql(input: CommandInput, io: Io): Promise<number> {
  const [action, text, ...rest] = input.positionals;
  if (action !== "sql") {
    throw new UsageError(`"sagabox dev" takes no argument but sql, and got ${input.positionals.join(" ")}.`);
  }
  if (text === undefined || rest.length > 0) {
    throw new UsageError('"sagabox dev sql" takes the SQL as one argument. Put it into quotes.');
  }
  const databasePort = portValue(input, "database-port", 1);
  const env = loadEnvironment(io);
  const notes: Io = { ...io, out: (text) => io.err(text) };
  const server = env.databaseUrl === undefined ? await startServer(input, databasePort, notes) : undefined;
  try {
    const result = await withDatabase(server?.url ?? env.databaseUrl, (database) =>
      queryOnce(database, text),
    );
    io.out(resultText(result, io.terminal?.columns));
    return 0;
  } finally {
    if (server !== undefined) await stopServer(server, notes);
  }
}

async function queryOnce(database: Database, text: string): Promise<readonly Row[]> {
  const tx = await database.begin();
  try {
    // The driver returns a list of results, without rows of its own, for several statements.
    const { rows = [] } = (await tx.query<Row>(text)) as { readonly rows?: readonly Row[] };
    await tx.commit();
    return rows;
  } catch (error) {
    await tx.rollback();
    throw error;
  }
}

type Row = Readonly<Record<string, unknown>>;

function resultText(rows: readonly Row[], columns: number | undefined): string {
  const [first] = rows;
  if (first === undefined) return "Done, no rows.";
  const headings = Object.keys(first);
  const cells = rows.map((row) => headings.map((name) => cellText(row[name])));
  return table(headings, cells, columns);
}

function cellText(value: unknown): string | null {
  if (value === null || value === undefined) return null;
  if (value instanceof Date) return value.toISOString();
  return typeof value === "object"
    ? JSON.stringify(value)
    : String(value as string | number | bigint | boolean);
}

async function startServer(input: CommandInput, port: number | undefined, io: Io): Promise<EmbeddedPostgres> {
  const folder = resolve(io.cwd, textValue(input, "data") ?? ".sagabox");
  mkdirSync(folder, { recursive: true });
  // Keeps the database out of the application's git repository.
  writeFileSync(join(folder, ".gitignore"), "*\n");
  const server = await startEmbeddedPostgres({
    dataDir: join(folder, "postgres"),
    ...(port !== undefined && { port }),
    onNotice: (text) => io.err(text),
  });
  const inside = relative(io.cwd, server.dataDir);
  const folderText = inside.startsWith("..") ? server.dataDir : inside;
  io.out(
    `PostgreSQL ${server.reused ? "was already running" : "runs"} on 127.0.0.1:${server.port}, data in ${folderText}.`,
  );
  return server;
}

// A DATABASE_URL exported for an earlier `dev` may point to a server that no longer runs.
function explainMissingServer(error: unknown, { env }: Io): unknown {
  if (!isSagaboxError(error, "STORAGE_UNAVAILABLE")) return error;
  const name = (env["DATABASE_URL"] ?? "") === "" ? "DATABASE_URL_FILE" : "DATABASE_URL";
  const hint = `${name} is set, so no server was started. To start one, run \`unset ${name}\` first.`;
  return new SagaboxError(error.code, `${error.message} ${hint}`, { cause: error });
}

function announce(server: EmbeddedPostgres, io: Io): void {
  io.setEnv("DATABASE_URL", server.url);
  io.out(`\n  export DATABASE_URL='${server.url}'\n`);
}

// Holds a connection until a stop signal: another `dev` sees that the server is in use, and this one notices if it stops.
async function watchServer(server: EmbeddedPostgres, stop: StopSignals): Promise<void> {
  await withDatabase(server.url, async (database) => {
    const session = await database.session("dev");
    const ended = new Promise<"ended">((resolve) => session.onBreak(() => resolve("ended")));
    const how = await Promise.race([stop.requested, ended]);
    session.release(true);
    if (how !== "ended") return;
    throw new SagaboxError(
      "STORAGE_UNAVAILABLE",
      "The PostgreSQL server of `sagabox dev` has stopped. Its data is kept; start `sagabox dev` again.",
    );
  });
}

async function runUntilStopped(
  input: CommandInput,
  options: RunAppOptions,
  {
    stop,
    io,
    server,
  }: { readonly stop: StopSignals; readonly io: Io; readonly server?: EmbeddedPostgres | undefined },
): Promise<void> {
  const app = textValue(input, "app");
  if (app !== undefined) return runApp(() => loadApp(app, io.cwd), options, { stop, io });
  if (server !== undefined) return watchServer(server, stop);
  const cancel = every(60_000, () => undefined); // signal listeners do not keep a process alive
  await stop.requested;
  cancel();
}

// A server that was already running may be used by a `dev` in another terminal. The last `dev` to stop stops the server.
async function stopServer(server: EmbeddedPostgres, io: Io): Promise<void> {
  if (server.reused && (await isInUse(server))) {
    io.out("PostgreSQL keeps running, because other clients are connected.");
    return;
  }
  await server.stop();
  io.out("PostgreSQL stopped. Its data is kept.");
}

async function isInUse(server: EmbeddedPostgres): Promise<boolean> {
  try {
    const { rows } = await withDatabase(server.url, (database) =>
      database.run<{ count: number }>(otherClients),
    );
    return (rows[0]?.count ?? 0) > 0;
  } catch {
    return false;
  }
}
