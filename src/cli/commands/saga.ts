import { findNearest } from "../../options/index.ts";
import { UsageError, type Command, type CommandInput, type Io } from "../command.ts";
import { yesOption } from "../confirm.ts";
import { createAction } from "../saga/act.ts";
import { diagram } from "../saga/draw.ts";
import { history, list, show, stuck } from "../saga/list.ts";
import { check } from "../saga/check.ts";
import { signal } from "../saga/signal.ts";

type Action = (input: CommandInput, io: Io) => Promise<number>;

const actions: Readonly<Record<string, Action>> = {
  list,
  show,
  history,
  stuck,
  retry: createAction("retry"),
  skip: createAction("skip"),
  settle: createAction("settle"),
  compensate: createAction("compensate"),
  cancel: createAction("cancel"),
  signal,
  check,
  diagram,
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
    limit: { type: "string", value: "<number>", help: "How many at most. Default: 50." },
    after: { type: "string", value: "<id>", help: "Go on behind this one." },
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
  async run(input, io) {
    const [action = ""] = input.positionals;
    const chosen = Object.hasOwn(actions, action) ? actions[action] : undefined;
    if (chosen === undefined) throw new UsageError(actionProblem(action));
    return chosen(input, io);
  },
};

function actionProblem(action: string): string {
  const known = Object.keys(actions);
  if (action === "") return `"sagabox saga" needs one of ${known.join(", ")}.`;
  const suggestion = findNearest(action, known);
  const hint = suggestion === undefined ? `Known are: ${known.join(", ")}.` : `Did you mean ${suggestion}?`;
  return `"sagabox saga" cannot do "${action}". ${hint}`;
}
