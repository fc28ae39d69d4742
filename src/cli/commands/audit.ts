import { findNearest } from "../../options/index.ts";
import { list } from "../audit/list.ts";
import { seal, verify } from "../audit/verify.ts";
import { UsageError, type Command, type CommandInput, type Io } from "../command.ts";

type Action = (input: CommandInput, io: Io) => Promise<number>;

const actions: Readonly<Record<string, Action>> = { list, verify, seal };

export const audit: Command = {
  name: "audit",
  summary: "See who did what and why, and prove that nobody changed it afterwards.",
  usage: [
    "audit list [--all] [--saga <id>] [--actor <name>] [--action <name>] [--since <time>] …",
    "audit verify [--anchor <head>]",
    "audit seal",
  ],
  actions: Object.keys(actions),
  details: `  list    What somebody did, or was refused, or failed to do, newest first. With --all, and for one saga, log, action,
          target or trace, also what sagas did by themselves. --after takes the last cursor of the page before.
  verify  Compute the chain of hashes again from the rows that are there, and name every row and seal that is not as
          it was. Prints the head of the chain: keep it elsewhere, and give it as --anchor later. Without an anchor
          nobody can tell whether the end of the chain was replaced. Exit code 3 if anything was found.
  seal    Seal now what a worker would seal within a minute.

Examples:
  sagabox audit list --actor ada --since 2026-11-01
  sagabox audit verify --json | jq -r .head >> heads-kept-elsewhere.txt
  sagabox audit seal
  sagabox audit verify --anchor "$(tail -1 heads-kept-elsewhere.txt)"

The database is the one of DATABASE_URL.`,
  options: {
    all: { type: "boolean", help: "Also every step that sagas took by themselves." },
    log: { type: "string", value: "<name>", help: "Only this log: saga or action." },
    saga: { type: "string", value: "<id>", help: "Only what is about this saga." },
    actor: { type: "string", value: "<name>", help: "Only what this person or service did." },
    action: {
      type: "string",
      value: "<name>",
      help: "Only this, such as dead_letter.replay or saga.failed.",
    },
    target: { type: "string", value: "<kind[:id]>", help: "Only what was done to this: dead_letter:17." },
    trace: { type: "string", value: "<id>", help: "Only what belongs to this trace." },
    outcome: { type: "string", value: "<outcome>", help: "Only what was done, refused or failed." },
    since: {
      type: "string",
      value: "<time>",
      help: "Only from this time on: 2026-11-16, 2026-11-16T08:00:00Z, or 2h for two hours ago.",
    },
    until: { type: "string", value: "<time>", help: "Only before this time." },
    limit: { type: "string", value: "<number>", help: "How many at most. Default: 50." },
    after: { type: "string", value: "<cursor>", help: "Go on behind this one." },
    anchor: {
      type: "string",
      value: "<head>",
      help: "A head that was kept elsewhere; it must still be there.",
    },
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  async run(input, io) {
    const [action = "", ...rest] = input.positionals;
    const chosen = Object.hasOwn(actions, action) ? actions[action] : undefined;
    if (chosen === undefined) throw new UsageError(actionProblem(action));
    if (rest.length > 0) {
      throw new UsageError(`"sagabox audit ${action}" takes no argument, but got ${rest.join(" ")}.`);
    }
    return chosen(input, io);
  },
};

function actionProblem(action: string): string {
  const known = Object.keys(actions);
  if (action === "") return `"sagabox audit" needs one of ${known.join(", ")}.`;
  const suggestion = findNearest(action, known);
  const hint = suggestion === undefined ? `Known are: ${known.join(", ")}.` : `Did you mean ${suggestion}?`;
  return `"sagabox audit" cannot do "${action}". ${hint}`;
}
