import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import {
  buryLiveMessage,
  type DeadLetterGroups,
  discardAndWake,
  discardDeadLetters,
  type DiscardResult,
  editDeadLetter,
  type EditOptions,
  type EditPlan,
  listDeadLetterGroups,
  planEdit,
} from "../../admin/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import type { AnyContract } from "../../message/index.ts";
import { type Actions, runAction } from "../actions.ts";
import { actorOption, readActorAndReason, readDecision, reasonOption } from "../actor.ts";
import {
  type Command,
  type CommandInput,
  DONE,
  type Io,
  STOPPED,
  textValue,
  UsageError,
} from "../command.ts";
import { confirmAction, dryRunOption, isDryRun, yesOption } from "../confirm.ts";
import {
  filterNames,
  filterOptions,
  isFiltered,
  readFilter,
  shorten,
  withDeadLetters,
} from "../dlq/input.ts";
import { groups, list, show } from "../dlq/list.ts";
import { replayMany, replayOne } from "../dlq/replay.ts";
import { runInterruptible } from "../stop-signals.ts";
import { inspectApp } from "../load-app.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { startProgress } from "../terminal.ts";
import { watchOption } from "../watch.ts";

const acting = ["actor", "reason", "yes"];
const looking = [...filterNames, "limit", "check", "watch"];

export const dlq: Command = {
  name: "dlq",
  summary: "Inspect dead letters by cause; replay, edit or discard them; bury a waiting message.",
  usage: [
    "dlq groups [<filter>] [--check] [--watch [seconds]]",
    "dlq list [<filter>] [--letters] [--closed] [--limit <number>] [--after <id>]",
    "dlq show <id>",
    "dlq replay <id> --reason <text> [--dry-run]",
    "dlq replay <filter> | --all [--rate <number>] [--canary <number>] [--wait <time>] --reason <text> [--yes]",
    "dlq replay <filter> | --all --dry-run",
    "dlq edit <id> --data-file <file> [--app <module>] --reason <text> [--dry-run] [--yes]",
    "dlq discard <id> --reason <text> [--yes]",
    "dlq discard <filter> | --all --reason <text> [--dry-run] [--yes]",
    "dlq bury <message-id> [--consumer <name> | --outbox] --reason <text> [--yes]",
  ],
  actions: Object.keys(actionsFor({ values: {}, positionals: [] })),
  details: `  groups   Open dead letters grouped by cause: consumer, error, first and last time, and the id of a sample.
  list     Without a filter like groups. With a filter or --letters: single dead letters, newest first.
  show     One dead letter: message, error, stack, attempts, trace and actions. Personal fields stay encrypted.
  replay   Send dead letters back to where they failed, with their original ids. With an id: immediately and without
           confirmation. With a filter: in stages. A few of each group go first (--canary); when they are handled, the
           rate grows up to --rate per second. If a group fails again, its replay stops and the other groups continue.
           Dead letters of one key keep their order.
  edit     Replay one dead letter with new data and its original id. With --app the data is checked against the
           contract. Encrypted values must stay unchanged. The dead letter keeps the original data.
  discard  Close dead letters permanently. Their messages are never handled.
  bury     Turn a message that waits to be sent, or waits for a consumer, into a dead letter.

A filter is any of --group, --consumer, --outbox, --type, --topic, --died, --message, --key, --correlation-id, --text,
--since and --until. --dry-run only prints what would be done and needs no reason.

With --check, groups and list exit with 3 if there are open dead letters. A replay exits with 4 if it was stopped or no
worker runs the consumer; run the same command again to continue. Every action is recorded in the audit log.

Examples:
  sagabox dlq groups
  sagabox dlq list --consumer billing --since 2h
  sagabox dlq show 4711
  sagabox dlq replay --group 3f9a0c21b7de --dry-run
  sagabox dlq replay --group 3f9a0c21b7de --rate 100 --reason "fixed in 2.4.1" --yes
  sagabox dlq edit 4711 --data-file fixed.json --app dist/bus.js --reason "wrong currency" --yes
  sagabox dlq discard --type order.placed --until 2d --reason "test orders" --yes
  sagabox dlq bury 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --consumer billing --reason "hangs, ticket 7" --yes

Connects to DATABASE_URL.`,
  options: {
    ...filterOptions,
    all: { type: "boolean", help: "All open dead letters." },
    letters: { type: "boolean", help: "List single dead letters instead of groups." },
    closed: { type: "boolean", help: "List replayed and discarded dead letters." },
    limit: { type: "string", value: "<number>", help: "Maximum number of rows. Default: 50." },
    after: {
      type: "string",
      value: "<id>",
      help: "Start after this row, the last one of the previous page.",
    },
    check: { type: "boolean", help: "Exit with 3 if there are open dead letters." },
    watch: watchOption,
    rate: {
      type: "string",
      value: "<number>",
      help: "Highest rate, in dead letters per second. Default: 50.",
    },
    canary: {
      type: "string",
      value: "<number>",
      help: "Dead letters of each group that go first. Default: 3.",
    },
    wait: {
      type: "string",
      value: "<time>",
      help: "Stop if nothing replayed was handled for this long. Default: 30s.",
    },
    "data-file": {
      type: "string",
      value: "<file>",
      help: "JSON file with the new data of an edited dead letter.",
    },
    app: {
      type: "string",
      value: "<module>",
      help: "File that exports the bus with its handlers registered.",
    },
    "dry-run": dryRunOption,
    actor: actorOption,
    reason: reasonOption,
    yes: yesOption,
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  run: async (input, io) => runAction("dlq", actionsFor(input), input, io),
};

/** replay and discard take either an id or a filter, and accept different options for each. */
function actionsFor({ positionals }: CommandInput): Actions {
  const one = positionals.length > 1;
  return {
    groups: { reads: looking, run: groups },
    list: { reads: [...looking, "letters", "closed", "after"], run: list },
    show: { reads: [], argument: "the id of a dead letter", run: show },
    replay: one
      ? { reads: [...acting, "dry-run"], argument: "the id of a dead letter", run: replayOne }
      : { reads: [...acting, ...filterNames, "all", "rate", "canary", "wait", "dry-run"], run: replayMany },
    edit: {
      reads: [...acting, "data-file", "app", "dry-run"],
      argument: "the id of a dead letter",
      run: edit,
    },
    bury: { reads: [...acting, "consumer", "outbox"], argument: "the id of a message", run: bury },
    discard: one
      ? { reads: acting, argument: "the id of a dead letter", run: discardOne }
      : { reads: [...acting, ...filterNames, "all", "dry-run"], run: discardMany },
  };
}

/** `dlq bury <message-id>` */
async function bury(input: CommandInput, io: Io, id: string): Promise<number> {
  const consumer = textValue(input, "consumer") ?? (input.values["outbox"] === true ? null : undefined);
  if (consumer !== undefined && consumer !== null && input.values["outbox"] === true) {
    throw new UsageError('"sagabox dlq bury" takes --consumer or --outbox, not both.');
  }
  const by = readActorAndReason(input, io);
  const what = `Message ${id} leaves its queue and becomes a dead letter.`;
  if (!(await confirmAction(input, io, { what }))) return STOPPED;
  const buried = await withDeadLetters(input, io, (admin) =>
    buryLiveMessage(admin, id, { ...by, ...(consumer === undefined ? {} : { consumer }) }),
  );
  if (input.values["json"] === true) io.out(jsonText(buried));
  else {
    const from = buried.consumer === null ? "the outbox" : `the queue of ${buried.consumer}`;
    io.out(
      safeLines(`Message ${id} was removed from ${from} and is now dead letter ${buried.deadLetterId}.`),
    );
  }
  return DONE;
}

/** `dlq discard <id>` */
async function discardOne(input: CommandInput, io: Io, id: string): Promise<number> {
  const by = readActorAndReason(input, io);
  const what = `Dead letter ${id} is closed permanently, and its message is never handled.`;
  if (!(await confirmAction(input, io, { what }))) return STOPPED;
  const letter = await withDeadLetters(input, io, (admin) => discardAndWake(admin, id, by));
  if (input.values["json"] === true)
    io.out(jsonText({ discarded: 1, deadLetterId: letter.id, messageId: letter.message.id }));
  else io.out(safeLines(`Dead letter ${letter.id} (message ${letter.message.id}) was discarded.`));
  return DONE;
}

/** `dlq discard --group …`: prints the affected groups and discards them after confirmation. */
async function discardMany(input: CommandInput, io: Io): Promise<number> {
  if (!isFiltered(input) && input.values["all"] !== true) {
    throw new UsageError(
      '"sagabox dlq discard" needs the id of a dead letter, a filter such as --group, or --all.',
    );
  }
  const filter = readFilter(input);
  const findGroups = () => withDeadLetters(input, io, (admin) => listDeadLetterGroups(admin, filter));
  if (isDryRun(input)) {
    const { open, groups } = await findGroups();
    const text = `${groupsText(groups, io.terminal?.columns)}\n\n${open} dead letters would be closed permanently. Dry run: nothing was discarded.`;
    io.out(input.values["json"] === true ? jsonText({ dryRun: true, deadLetters: open, groups }) : text);
    return DONE;
  }
  const by = readDecision(input, io);
  if (input.values["yes"] !== true) {
    const { open, groups } = await findGroups();
    io.err(groupsText(groups, io.terminal?.columns));
    const what = `${open} dead letters are closed permanently, and their messages are never handled.`;
    if (!(await confirmAction(input, io, { what, matters: open > 0 }))) return STOPPED;
  }
  const progress = startProgress(io, "Discarded");
  const result = await withDeadLetters(input, io, (admin) =>
    runInterruptible(io, (signal) =>
      discardDeadLetters(admin, filter, { ...by, signal, onProgress: (done) => progress.update(done) }),
    ),
  ).finally(() => progress.end());
  io.out(input.values["json"] === true ? jsonText(result) : discardingText(result));
  return result.finished ? DONE : STOPPED;
}

function groupsText(groups: DeadLetterGroups["groups"], columns: number | undefined): string {
  const rows = groups.map((group) => [group.fingerprint, group.open, shorten(group.label, 90)]);
  return table(["group", "open", "cause"], rows, columns);
}

function discardingText({ discarded, left }: DiscardResult): string {
  const done = `${discarded} dead letters were discarded.`;
  if (left === 0) return done;
  return `${done} ${left} are still open, because the command was stopped or another operator is working on them. Run it again for the rest.`;
}

/** `dlq edit <id> --data-file <file>`: prints old and new data, and replays with the new data after confirmation. */
async function edit(input: CommandInput, io: Io, id: string): Promise<number> {
  const app = textValue(input, "app");
  const options: EditOptions = {
    data: readDataFile(input, io),
    ...(app === undefined ? {} : { contractOf: await loadContracts(app, io) }),
  };
  const dryRun = isDryRun(input);
  const by = dryRun ? undefined : readDecision(input, io);
  const planChange = () => withDeadLetters(input, io, (admin) => planEdit(admin, id, options));
  if (by !== undefined && input.values["yes"] !== true) {
    io.err(safeLines(planText(await planChange())));
    const what = `Dead letter ${id} is replayed with the new data.`;
    if (!(await confirmAction(input, io, { what }))) return STOPPED;
  }
  const plan =
    by === undefined
      ? await planChange()
      : await withDeadLetters(input, io, (admin) => editDeadLetter(admin, id, { ...options, ...by }));
  const { deadLetter, beforeHash, afterHash } = plan;
  const { contract } = plan.edit;
  const ids = { deadLetterId: id, messageId: deadLetter.message.id, consumer: deadLetter.consumer };
  if (input.values["json"] === true) io.out(jsonText({ dryRun, ...ids, beforeHash, afterHash, contract }));
  else io.out(safeLines(`${planText(plan)}\n${doneText(plan, dryRun)}`));
  return DONE;
}

function planText({ deadLetter, edit: { data, contract } }: EditPlan): string {
  const checked =
    contract === null
      ? "Checked to be valid JSON only: add --app <module> to check it against the contract."
      : `Matches ${contract}.`;
  return [`before  ${deadLetter.message.data}`, `after   ${data.replaceAll("\n", " ")}`, "", checked].join(
    "\n",
  );
}

function doneText({ deadLetter: { id, consumer, message } }: EditPlan, dryRun: boolean): string {
  if (dryRun) return "Dry run: nothing was replayed.";
  return `Dead letter ${id} was sent back to ${consumer ?? "the outbox"} with the new data. See: sagabox explain ${message.id}`;
}

function readDataFile(input: CommandInput, { cwd }: Io): string {
  const file = textValue(input, "data-file");
  if (file === undefined) throw new UsageError('"sagabox dlq edit" needs --data-file <file>.');
  try {
    return readFileSync(resolve(cwd, file), "utf8");
  } catch {
    throw new UsageError(`--data-file ${file} cannot be read.`);
  }
}

/** Loads the application and returns a lookup of its handlers' contracts. The bus is not started. */
function loadContracts(app: string, { cwd }: Io): Promise<NonNullable<EditOptions["contractOf"]>> {
  return inspectApp(app, cwd, (bus) => {
    const { deadLetters } = bus as { deadLetters?: { contracts?: () => readonly HandledContract[] } };
    if (typeof deadLetters?.contracts !== "function") {
      throw new SagaboxError("APP_MODULE_INVALID", `"${app}" exports a bus without dead letters.`);
    }
    const all = deadLetters.contracts();
    return (consumer, type) =>
      all.find((one) => one.contract.name === type && (consumer === null || one.consumer === consumer))
        ?.contract;
  });
}

interface HandledContract {
  readonly consumer: string;
  readonly contract: AnyContract;
}
