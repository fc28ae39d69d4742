import { ageText, countText, type Overview, readOverview, waitingText } from "../../admin/index.ts";
import { printable } from "../../telemetry/index.ts";
import { type Command, DONE, FOUND, UsageError } from "../command.ts";
import { jsonText, table } from "../print.ts";
import { withSchema } from "../settings.ts";
import { printOrWatch, watchOption } from "../watch.ts";

export const status: Command = {
  name: "status",
  summary: "Show the state of everything on one screen: problems first, with the command that shows more.",
  usage: ["status [--watch [seconds]] [--check] [--schema <name>] [--json]"],
  details: `Waiting, failed and scheduled messages, the age of the oldest, the workers and their lanes, how far each consumer is behind,
dead letters and sagas. Counts stop at 100000 ("or more") or become estimates ("about"), so it is cheap enough to run
often. Consumers with another database are not shown. Without a running relay the state is never healthy.

With a broker, a worker of the consumer measures what waits there every 15 seconds. What was not measured for a minute, or
what the broker does not report, is "unknown".

--check exits with 3 if there is a problem. The viewer role is sufficient.

Examples:
  sagabox status
  sagabox status --watch 5
  sagabox status --check --json | jq -r '.problems[].what'

Connects to DATABASE_URL.`,
  options: {
    watch: watchOption,
    check: { type: "boolean", help: "Exit with 3 if there is a problem." },
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON; with --watch one object per line." },
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

/** Renders the overview, problems first. */
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
    outbox.oldestDueSeconds === null ? "" : `, the oldest overdue by ${ageText(outbox.oldestDueSeconds)}`;
  return [
    ["at", at],
    ["outbox", `${countText(outbox.waiting)} waiting${oldest}, ${outbox.failed} of them failed`],
    ["scheduled", countText(outbox.scheduled)],
    ["lanes", `${lanes.total - lanes.unowned} of ${lanes.total} owned by running workers`],
    ["dead letters", `${countText(deadLetters)} open, ${outbox.heldKeys} key(s) held back`],
    ["sagas", `${sagas.running} running, ${sagas.compensating} compensating, ${sagas.failed} failed`],
    ["schema", `${schema.name}, migration ${schema.version} (${schema.migration})`],
  ];
}

/** One row for each consumer, and one below it for each topic if it has several. */
function consumerTable({ consumers }: Overview, columns: number | undefined): string[] {
  if (consumers.length === 0) return [];
  const rows = consumers.flatMap((one) => [
    [one.name, one.topics, waitingText(one.waiting), one.failed, oldestText(one), one.ownedLanes],
    ...(one.lags.length > 1 ? one.lags : []).map((lag) => [
      `  ${lag.topic ?? "other topics"}`,
      null,
      waitingText(lag.waiting),
      null,
      oldestText(lag),
      null,
    ]),
  ]);
  return ["", table(["consumer", "topics", "waiting", "failed", "oldest", "lanes owned"], rows, columns)];
}

function oldestText({ oldestAgeSeconds }: Pick<Overview["consumers"][number], "oldestAgeSeconds">) {
  if (oldestAgeSeconds === "unknown") return oldestAgeSeconds;
  return oldestAgeSeconds === 0 ? null : ageText(oldestAgeSeconds);
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
