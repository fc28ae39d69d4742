import { roleNames, roles as table, rolesSql, type Extra } from "../../admin/index.ts";
import { runAction, type Actions } from "../actions.ts";
import { type Command, type CommandInput, DONE, type Io, textValue } from "../command.ts";
import { jsonText } from "../print.ts";
import { loadEnvironment, readSchemaName } from "../settings.ts";

const DEFAULT_PREFIX = "sagabox_";

const actions: Actions = {
  sql: { reads: ["prefix", "with-optimistic-send", "with-overflow"], run: printSql },
};

export const roles: Command = {
  name: "roles",
  summary: "Print the SQL that creates database roles with minimal rights.",
  usage: [
    "roles sql [--schema <name>] [--prefix <text>] [--with-optimistic-send] [--with-overflow] [--json]",
  ],
  actions: Object.keys(actions),
  details: `  sql  Print SQL that creates the roles below and grants their rights. The command itself changes nothing. Run the SQL
       after every migration; it can be repeated. The roles cannot log in: make your login roles members of them.

${roleNames.map((name) => `  ${name.padEnd(8)}  ${table[name].who.replaceAll("`", "")}`).join("\n")}

Example:
  sagabox migrate up
  sagabox roles sql | psql "$DATABASE_URL"
  psql "$DATABASE_URL" -c 'create role shop login; grant sagabox_writer to shop'`,
  options: {
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    prefix: {
      type: "string",
      value: "<text>",
      help: `Prefix of every role name. Default: ${DEFAULT_PREFIX}.`,
    },
    "with-optimistic-send": {
      type: "boolean",
      help: "Allow writers to send their own messages (outbox.optimistic), which deletes outbox rows.",
    },
    "with-overflow": {
      type: "boolean",
      help: "Allow writers to count waiting messages per topic (outbox.overflow).",
    },
    json: { type: "boolean", help: "Print JSON." },
  },
  run: (input, io) => runAction("roles", actions, input, io),
};

async function printSql(input: CommandInput, io: Io): Promise<number> {
  const schema = readSchemaName(input, loadEnvironment(io));
  const prefix = textValue(input, "prefix") ?? DEFAULT_PREFIX;
  const sql = rolesSql({ schema, prefix, extras: readExtras(input) });
  const names = roleNames.map((name) => `${prefix}${name}`);
  io.out(input.values["json"] === true ? jsonText({ schema, roles: names, sql }) : sql.trimEnd());
  return DONE;
}

function readExtras({ values }: CommandInput): readonly Extra[] {
  return [
    ...(values["with-optimistic-send"] === true ? (["optimistic"] as const) : []),
    ...(values["with-overflow"] === true ? (["overflow"] as const) : []),
  ];
}
