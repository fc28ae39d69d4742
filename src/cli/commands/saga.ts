import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { type CheckFinding, checkSagas, showSaga, signalSaga } from "../../admin/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { type AnyEvent, createIdSource, decodeJson, type Json } from "../../message/index.ts";
import { findNearest } from "../../options/index.ts";
import { randomBytes, systemClock } from "../../runtime/index.ts";
import {
  type DefinitionComparison,
  instanceDiagram,
  instanceTimeline,
  listSteps,
  type SagaDefinition,
  sagaDiagram,
} from "../../saga/index.ts";
import { runAction, type Actions } from "../actions.ts";
import { readActorAndReason } from "../actor.ts";
import { type Command, type CommandInput, DONE, FOUND, type Io, textValue, UsageError } from "../command.ts";
import { yesOption } from "../confirm.ts";
import { inspectApp } from "../load-app.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { createAction, history, list, show, stuck, withSagas } from "../saga/instances.ts";
import { dropUndefined, numberValue } from "../option-values.ts";

const INSTANCE_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

async function diagram(input: CommandInput, io: Io, name: string): Promise<number> {
  const app = textValue(input, "app");
  const version = numberValue(input, "version");
  const definitions = app === undefined ? [] : await loadDefinitions(app, io);
  const definition = findDefinition(definitions, name, version);
  if (definition === undefined) refuseUnknown(name, { app, version, definitions });
  const drawn =
    definition === undefined ? await drawInstance(input, io, name, definitions) : sagaDiagram(definition);
  io.out(input.values["json"] === true ? jsonText({ mermaid: drawn }) : drawn);
  return 0;
}

/** Finds the definition with this name: the given version, or else the newest. */
function findDefinition(
  definitions: readonly SagaDefinition[],
  name: string,
  version: number | undefined,
): SagaDefinition | undefined {
  return definitions
    .filter((one) => one.name === name && (version === undefined || one.version === version))
    .sort((a, b) => b.version - a.version)[0];
}

interface DefinitionQuery {
  readonly app: string | undefined;
  readonly version: number | undefined;
  readonly definitions: readonly SagaDefinition[];
}

/** Throws a `UsageError` if the name can be neither a registered saga nor the id of an instance. */
function refuseUnknown(name: string, { app, version, definitions }: DefinitionQuery): void {
  if (INSTANCE_ID.test(name)) {
    if (version === undefined) return;
    throw new UsageError("--version needs the name of a saga; an instance is drawn in its own version.");
  }
  if (app === undefined) {
    throw new UsageError(
      `"${name}" is not the id of an instance. To draw a saga by name, add --app <module>, the file that registers it.`,
    );
  }
  const versions = versionsByName(definitions);
  const known = versions.get(name);
  if (known !== undefined) {
    throw new UsageError(
      `"${app}" does not register version ${version} of "${name}", only ${known.join(", ")}.`,
    );
  }
  const list = [...versions].map(([one, numbers]) => `${one} (version ${numbers.join(", ")})`);
  throw new UsageError(
    `"${name}" is not the id of an instance, and "${app}" registers no saga with this name. ` +
      (list.length === 0 ? "It registers no sagas." : `It registers: ${list.join(", ")}.`),
  );
}

function versionsByName(definitions: readonly SagaDefinition[]): ReadonlyMap<string, readonly number[]> {
  const versions = new Map<string, number[]>();
  for (const { name, version } of definitions) {
    versions.set(
      name,
      [...(versions.get(name) ?? []), version].sort((a, b) => a - b),
    );
  }
  return versions;
}

function drawInstance(
  input: CommandInput,
  io: Io,
  id: string,
  definitions: readonly SagaDefinition[],
): Promise<string> {
  return withSagas(
    input,
    io,
    async (admin) => {
      const { type, definitionVersion, key, status, state } = await showSaga(admin, id);
      const instance = { id, type, key, status, state };
      const definition = admin.definitionOf(type, definitionVersion);
      return definition === undefined ? instanceTimeline(instance) : instanceDiagram(definition, instance);
    },
    definitions,
  );
}

const newId = createIdSource({ wallMs: () => systemClock.wallMs(), randomBytes });

/** Delivers the event that an instance waits for, after checking the data against the schema of the event. */
async function signal(input: CommandInput, io: Io, sagaId: string): Promise<number> {
  const name = requireOption(input, "event", "<name>");
  const data = readData(requireOption(input, "data-file", "<file>"), io.cwd);
  const by = { ...readActorAndReason(input, io), id: textValue(input, "signal-id") ?? newId() };
  const definitions = await loadDefinitions(requireOption(input, "app", "<module>"), io);
  const event = findAwaitedEvent(definitions, name);
  const result = await withSagas(
    input,
    io,
    (admin) => signalSaga(admin, sagaId, event, data, by),
    definitions,
  );
  if (input.values["json"] === true) io.out(jsonText({ action: "signal", ...result }));
  else io.out(safeLines(resultText(name, result.accepted, sagaId)));
  return DONE;
}

function resultText(name: string, accepted: boolean, sagaId: string): string {
  return accepted
    ? `Delivered "${name}". A worker continues the saga; see: sagabox saga show ${sagaId}`
    : `Nothing to do: a signal with this id was already delivered. Saga ${sagaId}.`;
}

function findAwaitedEvent(definitions: readonly SagaDefinition[], name: string): AnyEvent {
  const events = new Map<string, AnyEvent>();
  for (const { nodes } of definitions) {
    for (const { step } of listSteps(nodes)) {
      if (step.work.kind === "wait") events.set(step.work.event.name, step.work.event);
    }
  }
  const found = events.get(name);
  if (found !== undefined) return found;
  const known = [...events.keys()];
  const suggestion = findNearest(name, known);
  if (suggestion !== undefined)
    throw new UsageError(`No saga waits for "${name}". Did you mean ${suggestion}?`);
  const list = known.length === 0 ? "no saga waits for an event" : `known events: ${known.join(", ")}`;
  throw new UsageError(`No saga of this application waits for "${name}": ${list}.`);
}

// The data are read from a file, because other users can read command lines in the process list.
function readData(file: string, folder: string): Json {
  let text: string;
  try {
    text = readFileSync(file === "-" ? 0 : resolve(folder, file), "utf8");
  } catch {
    throw new UsageError(`--data-file ${file} cannot be read.`);
  }
  try {
    return decodeJson(text);
  } catch {
    throw new UsageError(`--data-file ${file} does not contain JSON.`);
  }
}

function requireOption(input: CommandInput, name: string, value: string): string {
  return textValue(input, name) ?? throwMissing(`${name} ${value}`);
}

function throwMissing(option: string): never {
  throw new UsageError(`"sagabox saga signal" needs --${option}.`);
}

const INSTANCE = "the id of a saga instance";

const actions: Actions = {
  list: {
    reads: ["type", "status", "step", "key", "correlation-id", "older-than", "limit", "after"],
    run: list,
  },
  show: { reads: [], argument: INSTANCE, run: show },
  history: { reads: ["limit", "after"], argument: INSTANCE, run: history },
  stuck: { reads: ["older-than", "type", "limit", "check"], run: stuck },
  retry: { reads: ["actor", "reason", "step"], argument: INSTANCE, run: createAction("retry") },
  skip: { reads: ["actor", "reason", "step", "yes"], argument: INSTANCE, run: createAction("skip") },
  settle: {
    reads: ["actor", "reason", "step", "result", "yes"],
    argument: INSTANCE,
    run: createAction("settle"),
  },
  compensate: { reads: ["actor", "reason", "yes"], argument: INSTANCE, run: createAction("compensate") },
  cancel: { reads: ["actor", "reason", "yes"], argument: INSTANCE, run: createAction("cancel") },
  signal: {
    reads: ["app", "event", "data-file", "signal-id", "actor", "reason"],
    argument: INSTANCE,
    run: signal,
  },
  check: { reads: ["app", "type", "ended"], run: check },
  diagram: {
    reads: ["app", "version"],
    argument: "the id of a saga instance, or the name of a saga",
    run: diagram,
  },
};

export const saga: Command = {
  name: "saga",
  summary: "Inspect sagas, resolve failed ones, and check new definitions against stored instances.",
  usage: [
    "saga list [--type <name>] [--status <status>] [--step <name>] [--key <key>] [--older-than <time>] …",
    "saga show <id>",
    "saga history <id>",
    "saga stuck [--older-than <time>] [--type <name>] [--check]",
    "saga retry <id> [--step <name>] --reason <text>",
    "saga skip|settle <id> --step <name> --reason <text> [--yes]",
    "saga compensate|cancel <id> --reason <text> [--yes]",
    "saga signal <id> --event <name> --data-file <file> --app <module> --reason <text>",
    "saga check --app <module> [--type <name>] [--ended <number>]",
    "saga diagram <id | name> [--app <module>] [--version <number>]",
  ],
  actions: Object.keys(actions),
  details: `  list        Instances, newest first. --after takes the last id of the previous page.
  show        One instance: its steps, what it waits for, and the possible actions if it failed.
  history     Every transition of the instance, with its cause.
  stuck       Instances that cannot continue alone, the reason, and what to do. --check exits with 3 if there are any.
  retry       Run a failed step, or its failed undo, again. Without --step: all failed steps.
  skip        Continue without the failed step or undo.
  settle      Mark the failed step or undo as done by hand. --result is the result that the step would have returned.
  compensate  Undo the saga, even if it has completed. Refused after its pivot.
  cancel      Undo the saga, unless it has completed.
  signal      Deliver the event it waits for without publishing it. --data-file contains the data as JSON; - reads
              standard input. With --signal-id a repetition has no effect.
  check       Compare the application's definitions with the stored ones and list changes made without a new version.
              Then replay all running and the newest ended instances with the application's definitions, and list those
              that would take another path (diverges) or could not continue (stuck). Exit code 3 if there are any, or if
              a worker would refuse to start with a definition. Ended instances of an unregistered version are skipped.
              Sagas that the application does not register are listed and do not change the exit code.
  diagram     Mermaid diagram of a definition (by name, with --app) or of an instance: on its definition with --app,
              otherwise as a timeline.

A worker with the definition carries out an action, usually within a second. Accepted and refused actions are recorded in
the history with --actor and --reason. Actions that cannot be undone (skip, settle, compensate, cancel) ask for
confirmation; show lists the possible actions. Connects to DATABASE_URL.

Examples:
  sagabox saga stuck
  sagabox saga list --status failed --older-than 1h
  sagabox saga show 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11
  sagabox saga history 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11
  sagabox saga retry 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --reason "carrier is back, ticket 7"
  sagabox saga skip 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --step mail --reason "not needed" --yes
  sagabox saga settle 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --step ship --result '"parcel-1"' --reason "sent by hand" --yes
  sagabox saga compensate 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --reason "customer withdrew" --yes
  sagabox saga cancel 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --reason "ordered twice" --yes
  sagabox saga signal 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --event order.paid --data-file paid.json --app app.ts --reason "lost"
  sagabox saga check --app ./app.ts
  sagabox saga diagram order --app ./app.ts`,
  options: {
    type: { type: "string", value: "<name>", help: "Only sagas of this name." },
    status: { type: "string", value: "<status>", help: "Only this status." },
    step: {
      type: "string",
      value: "<name>",
      help: "Only instances at this step; for an action: the step it applies to.",
    },
    key: { type: "string", value: "<key>", help: "Only the instance of this key." },
    "correlation-id": {
      type: "string",
      value: "<id>",
      help: "Only instances started with this correlation id.",
    },
    "older-than": {
      type: "string",
      value: "<time>",
      help: "Only instances older than this, or unchanged for longer: 30s, 10m, 2h.",
    },
    limit: { type: "string", value: "<number>", help: "Maximum number of rows. Default: 50." },
    after: {
      type: "string",
      value: "<id>",
      help: "Start after this row, the last one of the previous page.",
    },
    actor: { type: "string", value: "<name>", help: "Your name, for the audit log. Default: USER." },
    reason: {
      type: "string",
      value: "<text>",
      help: "Reason, for the audit log. Required for every action.",
    },
    yes: yesOption,
    check: { type: "boolean", help: "Exit with 3 if any saga is stuck." },
    result: { type: "string", value: "<json>", help: "The result of a settled step." },
    event: { type: "string", value: "<name>", help: "Name of the event to deliver." },
    "data-file": { type: "string", value: "<file>", help: "File with the event's data as JSON." },
    "signal-id": { type: "string", value: "<id>", help: "Id of the signal. Default: a new id." },
    app: { type: "string", value: "<module>", help: "File that exports the bus with its sagas registered." },
    version: { type: "string", value: "<number>", help: "Version to draw. Default: the newest." },
    ended: {
      type: "string",
      value: "<number>",
      help: "Maximum number of ended instances to check. Default: 1000.",
    },
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  run: (input, io) => runAction("saga", actions, input, io),
};

async function check(input: CommandInput, io: Io): Promise<number> {
  const app = textValue(input, "app");
  if (app === undefined) throw new UsageError('"sagabox saga check" needs --app <module>.');
  const options = dropUndefined({ type: textValue(input, "type"), ended: numberValue(input, "ended") });
  const definitions = await loadDefinitions(app, io);
  const report = await withSagas(input, io, (admin) => checkSagas(admin, options), definitions);
  if (input.values["json"] === true) io.out(jsonText(report));
  else {
    const { checked, same, diverges, stuck, skipped, strangers, definitions, findings } = report;
    for (const line of definitions.flatMap(comparisonLines)) io.out(safeLines(line));
    if (findings.length > 0) io.out(findingTable(findings, io.terminal?.columns));
    io.out(`${checked} checked: ${same} same, ${diverges} diverge, ${stuck} stuck.`);
    if (skipped > 0) io.out(`${skipped} skipped: ended, with a version that is not registered.`);
    for (const { type, open } of strangers) {
      io.out(
        safeLines(`Not checked: ${open} open instances of saga "${type}", which "${app}" does not register.`),
      );
    }
  }
  const isRefused = report.definitions.some(({ unfitSteps }) => unfitSteps.length > 0);
  return report.diverges + report.stuck === 0 && !isRefused ? DONE : FOUND;
}

/** Describes the changes from the stored definition to the definition of the application. Empty if they are equal. */
function comparisonLines(comparison: DefinitionComparison): readonly string[] {
  const { type, version, verdict, differences, unfitSteps, unfitInstances } = comparison;
  const changed =
    verdict === "changed" ? [`Saga "${type}" version ${version} differs from the stored definition:`] : [];
  const refused =
    unfitSteps.length === 0
      ? []
      : [
          `A worker refuses to start with saga "${type}" version ${version}: ${unfitInstances} unfinished instances have begun`,
          ...unfitSteps.map(
            ({ step, why, instances }) => `  "${step}", which ${why} (instances: ${instances})`,
          ),
        ];
  return [...changed, ...differences.map((difference) => `  ${difference}`), ...refused];
}

function findingTable(findings: readonly CheckFinding[], columns: number | undefined): string {
  return table(
    ["id", "type", "version", "key", "status", "verdict", "from nr", "step", "why"],
    findings.map((one) => [
      one.id,
      one.type,
      one.definitionVersion,
      one.key,
      one.status,
      one.verdict,
      one.version,
      one.step,
      one.why,
    ]),
    columns,
  );
}

/** Loads the application and returns the sagas registered with its bus. The bus is not started. */
function loadDefinitions(app: string, { cwd }: Io): Promise<readonly SagaDefinition[]> {
  return inspectApp(app, cwd, (bus) => {
    const { sagas } = bus as { sagas?: { definitions?: () => readonly SagaDefinition[] } };
    if (typeof sagas?.definitions === "function") return sagas.definitions();
    throw new SagaboxError("APP_MODULE_INVALID", `"${app}" exports a bus without sagas.`);
  });
}
