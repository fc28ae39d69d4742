import { findUnfinishedPaths, type FlowView, showFlow } from "../../admin/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import type { Flow, FlowPath, RecordedEvent, UnfinishedOptions } from "../../flow/index.ts";
import { findNearest } from "../../options/index.ts";
import { durationText } from "../../telemetry/index.ts";
import { type Actions, runAction } from "../actions.ts";
import { type Command, type CommandInput, DONE, FOUND, type Io, textValue, UsageError } from "../command.ts";
import { inspectApp } from "../load-app.ts";
import { dropUndefined, numberValue } from "../option-values.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { withSchema } from "../settings.ts";

const UNFINISHED_OPTIONS = ["flow", "idle-for", "limit", "check"];

async function show(input: CommandInput, io: Io): Promise<number> {
  const correlationId = readCorrelationId(input);
  const app = textValue(input, "app");
  const flows = app === undefined ? [] : await loadFlows(app, io);
  const view = await withSchema(input, io, "operator", (database, schema) =>
    showFlow(database, schema, correlationId, flows),
  );
  io.out(input.values["json"] === true ? jsonText(view) : viewText(view, app, io.terminal?.columns));
  return DONE;
}

function readCorrelationId(input: CommandInput): string {
  const [given = "", ...rest] = input.positionals;
  const named = textValue(input, "correlation-id") ?? "";
  const stray = UNFINISHED_OPTIONS.filter((name) => input.values[name] !== undefined);
  if (stray.length > 0) {
    const list = stray.map((name) => `--${name}`).join(", ");
    throw new UsageError(`Only "sagabox flow unfinished" accepts ${list}.`);
  }
  if (given === "" && named === "") {
    throw new UsageError('"sagabox flow" needs a correlation id, or the action unfinished.');
  }
  if (rest.length > 0 || (given !== "" && named !== "")) {
    throw new UsageError('"sagabox flow" takes one correlation id.');
  }
  return named === "" ? given : named;
}

async function unfinished(input: CommandInput, io: Io): Promise<number> {
  const app = textValue(input, "app");
  if (app === undefined) throw new UsageError('"sagabox flow unfinished" needs --app <module>.');
  const flows = selectFlows(await loadFlows(app, io), textValue(input, "flow"), app);
  // The admin function checks the values, and its error lists the allowed ones.
  const options = dropUndefined({
    idleFor: textValue(input, "idle-for"),
    limit: numberValue(input, "limit"),
  }) as UnfinishedOptions;
  const paths = await withSchema(input, io, "operator", (database, schema) =>
    findUnfinishedPaths(database, schema, flows, options),
  );
  const code = input.values["check"] === true && paths.length > 0 ? FOUND : DONE;
  if (input.values["json"] === true) io.out(jsonText({ unfinished: paths }));
  else if (paths.length === 0) io.out("No unfinished path was found.");
  else io.out(unfinishedTable(paths, io.terminal?.columns));
  return code;
}

function selectFlows(flows: readonly Flow[], name: string | undefined, app: string): readonly Flow[] {
  const names = flows.map((one) => one.name);
  if (flows.length === 0) throw new UsageError(`"${app}" exports a bus that watches no flow.`);
  if (name === undefined) return flows;
  const selected = flows.filter((one) => one.name === name);
  if (selected.length > 0) return selected;
  const suggestion = findNearest(name, names);
  const hint = suggestion === undefined ? `It watches ${names.join(", ")}.` : `Did you mean ${suggestion}?`;
  throw new UsageError(`"${app}" watches no flow "${name}". ${hint}`);
}

/** Loads the application and returns the flows that its bus watches. The bus is not started. */
function loadFlows(app: string, { cwd }: Io): Promise<readonly Flow[]> {
  return inspectApp(app, cwd, (bus) => {
    const { flows } = bus as { flows?: { declarations?: () => readonly Flow[] } };
    if (typeof flows?.declarations === "function") return flows.declarations();
    throw new SagaboxError("APP_MODULE_INVALID", `"${app}" exports a bus without flows.`);
  });
}

function viewText({ events, paths }: FlowView, app: string | undefined, columns: number | undefined): string {
  const drawn = paths.map(({ flow }) => flow);
  const others = events.filter(({ flow }) => !drawn.includes(flow));
  const why =
    app === undefined
      ? "For the status and what a path waits for, add --app <module>, the file that exports the bus that watches the flow."
      : safeLines(`"${app}" does not watch these flows, so their events are listed without a status.`);
  return [
    ...paths.map((path) => pathText(path, columns)),
    ...(others.length === 0 ? [] : [`${eventTable(others, columns)}\n\n${why}`]),
  ].join("\n\n");
}

function pathText(path: FlowPath, columns: number | undefined): string {
  const { flow, correlationId, status, steps, beganAt, durationMs } = path;
  const rows = steps.map((step) => [
    step.happenedAt,
    step.type,
    step.source,
    step.key,
    step.role,
    durationText(step.sinceBeginMs),
    step.messageId,
  ]);
  return [
    safeLines(`flow ${flow}, correlation id ${correlationId}: ${status}`),
    safeLines(`  began ${beganAt}, last event ${durationText(durationMs)} later`),
    "",
    table(["at", "event", "service", "key", "role", "after", "message id"], rows, columns),
    ...findingLines(path),
  ].join("\n");
}

function findingLines({ waitsFor, notUndone, surprises, steps }: FlowPath): readonly string[] {
  const nameOf = (id: string): string => steps.find(({ messageId }) => messageId === id)?.type ?? "unknown";
  const lines = [
    ...waitsFor.map(
      ({ by, oneOf, after, since }) =>
        `waits for ${by} since ${since}: ${outcomesText(oneOf)} after ${after.type}\n  → sagabox explain ${after.messageId}`,
    ),
    ...notUndone.map((id) => `not undone: ${nameOf(id)} ${id}`),
    ...surprises.map(({ messageId, type, what }) => `surprise: ${type} ${messageId}. ${what}`),
  ];
  return lines.length === 0 ? [] : ["", ...lines.map(safeLines)];
}

function outcomesText(oneOf: readonly (readonly string[])[]): string {
  return oneOf.map((events) => events.join(" and ")).join(", or ");
}

function eventTable(events: readonly RecordedEvent[], columns: number | undefined): string {
  return table(
    ["at", "flow", "event", "service", "key", "message id", "caused by"],
    events.map((event) => [
      event.happenedAt,
      event.flow,
      event.type,
      event.source,
      event.key,
      event.messageId,
      event.causationId,
    ]),
    columns,
  );
}

function unfinishedTable(paths: readonly FlowPath[], columns: number | undefined): string {
  return table(
    ["correlation id", "flow", "status", "last event", "waits for", "since"],
    paths.map(({ correlationId, flow, status, lastAt, waitsFor }) => [
      correlationId,
      flow,
      status,
      lastAt,
      [...new Set(waitsFor.map(({ by }) => by))].join(", ") || null,
      waitsFor[0]?.since ?? null,
    ]),
    columns,
  );
}

const actions: Actions = {
  unfinished: { reads: ["app", ...UNFINISHED_OPTIONS], run: unfinished },
};

export const flow: Command = {
  name: "flow",
  summary: "Follow a declared flow of events by correlation id, and find paths that stopped.",
  usage: [
    "flow <correlation-id> [--app <module>] [--json]",
    "flow unfinished --app <module> [--idle-for <time>] [--flow <name>] [--limit <number>] [--check]",
  ],
  actions: Object.keys(actions),
  details: `Prints the events that a watched flow (bus.flows.watch) recorded under a correlation id. With --app it also prints the status
of the path, which service has not reacted, and what contradicts the declaration.

  unfinished  Paths without a new event for --idle-for that have not ended, or failed with an effect that is not undone,
              longest idle first. --check exits with 3 if there are any.

\`sagabox explain <id-or-key>\` prints the correlation id of a message or of a business key. Nothing is changed. A flow is
judged by the declaration in the application.

Examples:
  sagabox flow 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11
  sagabox flow 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --app ./app.ts
  sagabox flow --correlation-id unfinished
  sagabox flow unfinished --app ./app.ts --idle-for 1h

Connects to DATABASE_URL.`,
  options: {
    "correlation-id": {
      type: "string",
      value: "<id>",
      help: "The correlation id, if it reads like an action or begins with a dash.",
    },
    app: {
      type: "string",
      value: "<module>",
      help: "File that exports the bus that watches the flow.",
    },
    flow: {
      type: "string",
      value: "<name>",
      help: "Only paths of this flow. Default: all that the bus watches.",
    },
    "idle-for": {
      type: "string",
      value: "<time>",
      help: "Only paths without a new event for this long: 30s, 10m, 2h. Default: 15m.",
    },
    limit: { type: "string", value: "<number>", help: "Maximum number of paths. Default: 100." },
    check: { type: "boolean", help: "Exit with 3 if any path is unfinished." },
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  run: (input, io) =>
    input.positionals[0] === "unfinished" ? runAction("flow", actions, input, io) : show(input, io),
};
