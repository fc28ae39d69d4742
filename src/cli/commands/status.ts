import { ageText, countText, type Overview, readOverview } from "../../admin/index.ts";
import { printable } from "../../telemetry/index.ts";
import { type Command, DONE, FOUND, UsageError } from "../command.ts";
import { jsonText, table } from "../print.ts";
import { withSchema } from "../settings.ts";
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

Connects to DATABASE_URL.`,
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
        const text = input.values["json"] === true ? jsonText(seen) : statusText(seen, io.terminal?.columns);
        return { text, code: input.values["check"] === true && !seen.healthy ? FOUND : DONE };
      }),
    );
  },
};

/** The whole on one screen, what is wrong first. */
function statusText(seen: Overview, columns: number | undefined): string {
  return [
    ...verdictLines(seen),
    "",
    ...factLines(seen).map(([name, text]) => `${name.padEnd(12)}  ${printable(text)}`),
    ...consumerTable(seen, columns),
    ...workerTable(seen, columns),
  ].join("\n");
}

function verdictLines({ healthy, problems }: Overview): string[] {
  if (healthy) return ["healthy"];
  return [
    `${problems.length} problem(s)`,
    ...problems.map(({ what, command }) => printable(`  ${what} → ${command}`)),
  ];
}

function factLines({ at, schema, outbox, deadLetters, lanes, sagas }: Overview): [string, string][] {
  const oldest =
    outbox.oldestDueSeconds === null ? "" : `, the oldest due for ${ageText(outbox.oldestDueSeconds)}`;
  return [
    ["at", at],
    ["outbox", `${countText(outbox.waiting)} waiting${oldest}, ${outbox.failed} of them failed before`],
    ["scheduled", countText(outbox.scheduled)],
    ["lanes", `${lanes.total - lanes.unowned} of ${lanes.total} owned by running workers`],
    ["dead letters", `${countText(deadLetters)} open, ${outbox.heldKeys} key(s) held by them`],
    ["sagas", `${sagas.running} running, ${sagas.compensating} compensating, ${sagas.failed} failed`],
    ["schema", `${schema.name}, migration ${schema.version} (${schema.migration})`],
  ];
}

function consumerTable({ consumers }: Overview, columns: number | undefined): string[] {
  if (consumers.length === 0) return [];
  const rows = consumers.map((one) => [
    one.name,
    one.topics,
    countText(one.waiting),
    one.failed,
    one.oldestDueSeconds === null ? null : ageText(one.oldestDueSeconds),
    one.ownedLanes,
  ]);
  return ["", table(["consumer", "topics", "waiting", "failed", "oldest due", "lanes owned"], rows, columns)];
}

function workerTable({ workers }: Overview, columns: number | undefined): string[] {
  if (workers.length === 0) return ["", "No worker is known."];
  const rows = workers.map(({ worker, live, since, goneSeconds, relayLanes }) => [
    worker,
    live ? "running" : `gone for ${ageText(goneSeconds ?? 0)}`,
    relayLanes,
    since,
  ]);
  return ["", table(["worker", "state", "relay lanes", "since"], rows, columns)];
}
