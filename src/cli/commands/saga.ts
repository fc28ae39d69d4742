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
import { loadApp } from "../load-app.ts";
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

/** Of several versions the newest. */
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

/** What is neither a definition nor, by its looks, an instance is told without asking the database. */
function refuseUnknown(name: string, { app, version, definitions }: DefinitionQuery): void {
  if (INSTANCE_ID.test(name)) {
    if (version === undefined) return;
    throw new UsageError("--version is for the name of a saga; an instance is drawn in its own version.");
  }
  if (app === undefined) {
    throw new UsageError(
      `"${name}" is no id of an instance. To draw a saga by its name, say --app <module>, the file that registers it.`,
    );
  }
  const versions = versionsByName(definitions);
  const known = versions.get(name);
  if (known !== undefined) {
    throw new UsageError(`"${app}" registers no version ${version} of "${name}", only ${known.join(", ")}.`);
  }
  const list = [...versions].map(([one, numbers]) => `${one} (version ${numbers.join(", ")})`);
  throw new UsageError(
    `"${name}" is no id of an instance, and "${app}" registers no saga of this name. ` +
      (list.length === 0 ? "It registers none at all." : `It registers: ${list.join(", ")}.`),
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
      const { type, definitionVersion, correlationId, status, state } = await showSaga(admin, id);
      const instance = { id, type, key: correlationId, status, state };
      const definition = admin.definitionOf(type, definitionVersion);
      return definition === undefined ? instanceTimeline(instance) : instanceDiagram(definition, instance);
    },
    definitions,
  );
}

const newId = createIdSource({ wallMs: () => systemClock.wallMs(), randomBytes });

/** Brings one instance the event it waits for, held to the event's own schema. */
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
    ? `Brought "${name}". A worker goes on with it; see: sagabox saga show ${sagaId}`
    : `Nothing to do: a signal of this id was brought before. Saga ${sagaId}.`;
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
  const list = known.length === 0 ? "none waits for any event" : `they wait for ${known.join(", ")}`;
  throw new UsageError(`No saga of this application waits for "${name}": ${list}.`);
}

// In a file, since others can read a command line in the list of processes.
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
    throw new UsageError(`--data-file ${file} is not JSON.`);
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
  summary: "Look at running sagas, decide about failed ones, and check new definitions against them.",
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
  details: `  list        Instances, newest first. --after takes the last id of the page before.
  show        One instance: its steps, what it waits for, what a person has to decide.
  history     Everything that happened to it, and who or what caused it.
  stuck       Instances that do not get on by themselves, why, and what to do. --check exits with 3 if there are any.
  retry       Try a step that failed for good, or its undo, again; without --step all that failed.
  skip        Go on as if the failed step, or its undo, were not there.
  settle      Say that the failed step, or its undo, was done by hand; --result is what it would have returned.
  compensate  Undo it, even if it has completed. Not past its pivot.
  cancel      Undo it, unless it has completed.
  signal      Bring it the event it waits for, without publishing it. --data-file holds the data as JSON, - is the
              standard input. With --signal-id a repetition has no effect.
  check       Compare the definitions of the application with the stored ones, and say what changed without a new version.
              Play all running and the newest ended instances again on the definitions of the application, and say
              which would go another way (diverges) or not go on at all (stuck). Exit code 3 if any, or if a worker would
              refuse to start with a definition. Ended ones of a version
              that is not registered are skipped; sagas it does not register at all are told, and change no exit code.
  diagram     Mermaid of a definition (by its name, with --app), or of one instance: on its definition with --app, else
              along the time.

An action is done by a worker that knows the definition, usually within a second. It is written to the history with
--actor and --reason, and so is one that is refused. What cannot be taken back (skip, settle, compensate, cancel) asks
before it is done; show says what is possible. The database is the one of DATABASE_URL.

Examples:
  sagabox saga stuck
  sagabox saga list --status failed --older-than 1h
  sagabox saga show 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11
  sagabox saga history 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11
  sagabox saga retry 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --reason "carrier is back, ticket 7"
  sagabox saga skip 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --step mail --reason "nobody waits for it" --yes
  sagabox saga settle 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --step ship --result '"parcel-1"' --reason "sent by hand" --yes
  sagabox saga compensate 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --reason "customer withdrew" --yes
  sagabox saga cancel 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --reason "ordered twice" --yes
  sagabox saga signal 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --event order.paid --data-file paid.json --app app.ts --reason "lost"
  sagabox saga check --app ./app.ts
  sagabox saga diagram order --app ./app.ts`,
  options: {
    type: { type: "string", value: "<name>", help: "Only sagas of this name." },
    status: { type: "string", value: "<status>", help: "Only those with this status." },
    step: { type: "string", value: "<name>", help: "The step it stands at, or that is decided about." },
    key: { type: "string", value: "<key>", help: "Only the instance of this key." },
    "correlation-id": { type: "string", value: "<id>", help: "Only those started with this correlation id." },
    "older-than": {
      type: "string",
      value: "<time>",
      help: "Only those older, or quiet for longer: 30s, 10m, 2h.",
    },
    limit: { type: "string", value: "<number>", help: "Maximum number of rows. Default: 50." },
    after: {
      type: "string",
      value: "<id>",
      help: "Start after this row, the last one of the previous page.",
    },
    actor: { type: "string", value: "<name>", help: "Who decides. Default: USER." },
    reason: { type: "string", value: "<text>", help: "Why. Needed for every action." },
    yes: yesOption,
    check: { type: "boolean", help: "Exit with 3 if any saga is stuck." },
    result: { type: "string", value: "<json>", help: "The result of a settled step." },
    event: { type: "string", value: "<name>", help: "The event a signal brings." },
    "data-file": { type: "string", value: "<file>", help: "File with the event's data as JSON." },
    "signal-id": { type: "string", value: "<id>", help: "Names the signal. Default: a new id." },
    app: { type: "string", value: "<module>", help: "File that exports the bus with its sagas registered." },
    version: { type: "string", value: "<number>", help: "The version to draw. Default: the newest." },
    ended: {
      type: "string",
      value: "<number>",
      help: "How many ended instances are checked. Default: 1000.",
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
    if (skipped > 0) io.out(`${skipped} skipped: they have ended, and their version is not registered.`);
    for (const { type, open } of strangers) {
      io.out(
        safeLines(`Not checked: ${open} open of saga "${type}", which "${app}" does not register at all.`),
      );
    }
  }
  const isRefused = report.definitions.some(({ unfitSteps }) => unfitSteps.length > 0);
  return report.diverges + report.stuck === 0 && !isRefused ? DONE : FOUND;
}

/** What changed from the stored definition to that of the application; nothing where they are the same. */
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
      one.correlationId,
      one.status,
      one.verdict,
      one.version,
      one.step,
      one.why,
    ]),
    columns,
  );
}

/** The sagas that the application registers with its bus. The bus is not run. */
async function loadDefinitions(app: string, io: Io): Promise<readonly SagaDefinition[]> {
  const bus = await loadApp(app, io.cwd);
  try {
    const { sagas } = bus as { sagas?: { definitions?: () => readonly SagaDefinition[] } };
    if (typeof sagas?.definitions === "function") return sagas.definitions();
    throw new SagaboxError("APP_MODULE_INVALID", `"${app}" exports a bus that knows nothing of sagas.`);
  } finally {
    await bus.stop();
  }
}
