import { readOverview } from "../../admin/index.ts";
import { UsageError, type Command } from "../command.ts";
import { DONE, FOUND } from "../exit-codes.ts";
import { jsonText } from "../print.ts";
import { withSchema } from "../settings.ts";
import { statusText } from "../status/status-text.ts";
import { printOrWatch, watchOption } from "../watch.ts";

export const status: Command = {
  name: "status",
  summary: "See on one screen how everything stands, what is wrong and where to look further.",
  usage: ["status [--watch [seconds]] [--check] [--schema <name>] [--json]"],
  details: `What waits to be sent and for how long, what failed, what is scheduled, who works on which lanes, how far each
consumer is, dead letters and sagas. Counts stop at 100000 ("or more"), so it may be asked often. Consumers behind a broker
that keep nothing in this database are not seen from here. Without a running relay it is never healthy.

--check exits with 3 when something is wrong. The role of a viewer suffices.

Examples:
  sagabox status
  sagabox status --watch 5
  sagabox status --check --json | jq -r '.problems[].what'

The database is the one of DATABASE_URL.`,
  options: {
    watch: watchOption,
    check: { type: "boolean", help: "Exit with 3 when something is wrong." },
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON; with --watch one object in a line each time." },
  },
  async run(input, io) {
    if (input.positionals.length > 0) {
      throw new UsageError(`"sagabox status" takes no argument, but got ${input.positionals.join(" ")}.`);
    }
    return withSchema(input, io, "viewer", (database, schema) =>
      printOrWatch(input, io, async () => {
        const seen = await readOverview(database, schema);
        const text = input.values["json"] === true ? jsonText(seen) : statusText(seen);
        return { text, code: input.values["check"] === true && !seen.healthy ? FOUND : DONE };
      }),
    );
  },
};
