import { migrateSchema } from "../../admin/index.ts";
import { migrationSql, readMigrationStatus } from "../../storage/index.ts";
import { runAction, type Actions } from "../actions.ts";
import { type Command, type CommandInput, DONE, FOUND, type Io } from "../command.ts";
import { jsonText, table } from "../print.ts";
import { findUrl, loadEnvironment, readSchemaName, withDatabase } from "../settings.ts";

const actions: Actions = {
  up: { reads: [], run: up },
  status: { reads: [], run: status },
  sql: { reads: [], run: sql },
};

export const migrate: Command = {
  name: "migrate",
  summary: "Apply database migrations, or show which are pending.",
  usage: [
    "migrate up [--schema <name>] [--json]",
    "migrate status [--schema <name>] [--json]",
    "migrate sql [--schema <name>]",
  ],
  actions: Object.keys(actions),
  details: `  up      Apply the pending migrations. Several processes may run it at the same time.
  status  List applied and pending migrations. Exit code 3 if any is pending.
  sql     Print the SQL of all migrations, for use with another migration tool.

Examples:
  sagabox migrate status
  sagabox migrate up
  sagabox migrate sql > sagabox.sql

Connects to DATABASE_URL.`,
  options: {
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  run: (input, io) => runAction("migrate", actions, input, io),
};

async function up(input: CommandInput, io: Io): Promise<number> {
  const env = loadEnvironment(io);
  const schema = readSchemaName(input, env);
  const applied = await withDatabase(findUrl(env), (database) => migrateSchema(database, schema));
  if (input.values["json"] === true) {
    io.out(
      jsonText({
        schema,
        applied: applied.map(({ version, name, breaking }) => ({ version, name, breaking })),
      }),
    );
    return DONE;
  }
  if (applied.length === 0) io.out(`Schema "${schema}" is up to date.`);
  for (const { version, name } of applied) io.out(`Applied ${version} ${name} to schema "${schema}".`);
  return DONE;
}

async function status(input: CommandInput, io: Io): Promise<number> {
  const env = loadEnvironment(io);
  const schema = readSchemaName(input, env);
  const found = await withDatabase(findUrl(env), (database) => readMigrationStatus(database, schema));
  const applied = found.applied.map((row) => ({
    version: row.version,
    name: row.name,
    breaking: row.breaking,
    appliedAt: row.applied_at,
  }));
  const pending = found.pending.map(({ version, name, breaking }) => ({ version, name, breaking }));
  const code = pending.length === 0 ? DONE : FOUND;
  if (input.values["json"] === true) {
    io.out(jsonText({ schema, applied, pending }));
    return code;
  }
  const rows = [
    ...applied.map((row) => [row.version, row.name, row.breaking, row.appliedAt]),
    ...pending.map((row) => [row.version, row.name, row.breaking, "pending"]),
  ];
  io.out(table(["version", "name", "breaking", "applied at"], rows, io.terminal?.columns));
  io.out(
    pending.length === 0
      ? `\nSchema "${schema}" is up to date.`
      : `\n${pending.length} pending in schema "${schema}". Apply them: sagabox migrate up`,
  );
  return code;
}

async function sql(input: CommandInput, io: Io): Promise<number> {
  const schema = readSchemaName(input, loadEnvironment(io));
  const text = migrationSql(schema);
  io.out(input.values["json"] === true ? jsonText({ schema, sql: text }) : text.trimEnd());
  return DONE;
}
