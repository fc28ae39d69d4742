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
import { type Action, runAction } from "../actions.ts";
import { actorOption, readActorAndReason, readDecision, reasonOption } from "../actor.ts";
import { type Command, type CommandInput, type Io, textValue, UsageError } from "../command.ts";
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
import { DONE, STOPPED } from "../exit-codes.ts";
import { runInterruptible } from "../interrupt.ts";
import { loadApp } from "../load-app.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { startProgress } from "../progress.ts";
import { watchOption } from "../watch.ts";

const acting = ["actor", "reason", "yes"];
const looking = [...filterNames, "limit", "check", "watch"];

export const dlq: Command = {
  name: "dlq",
  summary: "Look at dead letters by their cause, replay them in stages, edit, discard or bury.",
  usage: [
    "dlq groups [<filter>] [--check] [--watch [seconds]]",
    "dlq list [<filter>] [--letters] [--closed] [--limit <number>] [--after <letter>]",
    "dlq show <letter>",
    "dlq replay <letter> --reason <text>",
    "dlq replay <filter> | --all [--rate <number>] [--canary <number>] [--wait <time>] --reason <text> [--yes]",
    "dlq replay <filter> | --all --dry-run",
    "dlq edit <letter> --data-file <file> [--app <module>] --reason <text> [--dry-run] [--yes]",
    "dlq discard <letter> --reason <text> [--yes]",
    "dlq discard <filter> | --all --reason <text> [--dry-run] [--yes]",
    "dlq bury <message-id> [--consumer <name> | --outbox] --reason <text> [--yes]",
  ],
  actions: Object.keys(actionsFor({ values: {}, positionals: [] })),
  details: `  groups   Open letters by cause: who fails, with what, since when, and one letter to look at.
  list     The same without a filter; with one, or with --letters, letter by letter, newest first.
  show     One letter: message, error, stack, attempts, trace, and what was done about it. Personal fields stay sealed.
  replay   Back to where they failed, under their own ids. Many go in stages: of each cause a few first (--canary), and
           when those were handled more and more, up to --rate a second. A cause whose failure comes back is stopped, the
           others go on. Letters of one key keep their order. One letter goes at once, and nobody is asked.
  edit     Replay one with other data, under its own id. With --app they are held to the contract. Sealed values must stay
           as and where they are. The letter keeps what was.
  discard  Close them for good.
  bury     Put a message that waits to be sent, or for a consumer, among the dead letters.

A filter is any of --group, --consumer, --outbox, --type, --topic, --died, --message, --key, --correlation-id, --text,
--since and --until. With --dry-run it only says what it would do, and needs no reason.

groups and list exit with 3 under --check when letters are open. A replay that was stopped, or had nobody to handle it,
exits with 4; the same command goes on later. Everything done is in the audit log.

Examples:
  sagabox dlq groups
  sagabox dlq list --consumer billing --since 2h
  sagabox dlq show 4711
  sagabox dlq replay --group 3f9a0c21b7de --dry-run
  sagabox dlq replay --group 3f9a0c21b7de --rate 100 --reason "fixed in 2.4.1" --yes
  sagabox dlq edit 4711 --data-file fixed.json --app dist/bus.js --reason "wrong currency" --yes
  sagabox dlq discard --type order.placed --until 2d --reason "test orders" --yes
  sagabox dlq bury 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --consumer billing --reason "hangs, ticket 7" --yes

The database is the one of DATABASE_URL.`,
  options: {
    ...filterOptions,
    all: { type: "boolean", help: "All open letters." },
    letters: { type: "boolean", help: "Letters instead of groups." },
    closed: { type: "boolean", help: "Letters that were replayed or discarded." },
    limit: { type: "string", value: "<number>", help: "How many at most. Default: 50." },
    after: { type: "string", value: "<letter>", help: "Go on behind this one." },
    check: { type: "boolean", help: "Exit with 3 when there are open letters." },
    watch: watchOption,
    rate: {
      type: "string",
      value: "<number>",
      help: "Letters a second at the end of the ramp. Default: 50.",
    },
    canary: { type: "string", value: "<number>", help: "Letters of each cause that go first. Default: 3." },
    wait: {
      type: "string",
      value: "<time>",
      help: "How long nothing may come of what was replayed. Default: 30s.",
    },
    "data-file": { type: "string", value: "<file>", help: "The new data of an edited letter, as JSON." },
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

/** Some do something else with a letter than with a filter. */
function actionsFor({ positionals }: CommandInput): Readonly<Record<string, Action>> {
  const one = positionals.length > 1;
  return {
    groups: { reads: looking, run: groups },
    list: { reads: [...looking, "letters", "closed", "after"], run: list },
    show: { reads: [], argument: "the id of a letter", run: show },
    replay: one
      ? { reads: acting, argument: "a letter", run: replayOne }
      : { reads: [...acting, ...filterNames, "all", "rate", "canary", "wait", "dry-run"], run: replayMany },
    edit: { reads: [...acting, "data-file", "app", "dry-run"], argument: "a letter", run: edit },
    bury: { reads: [...acting, "consumer", "outbox"], argument: "the id of a message", run: bury },
    discard: one
      ? { reads: acting, argument: "a letter", run: discardOne }
      : { reads: [...acting, ...filterNames, "all", "dry-run"], run: discardMany },
  };
}

/** `dlq bury <message-id>` */
async function bury(input: CommandInput, io: Io): Promise<number> {
  const id = input.positionals[1] ?? "";
  const consumer = textValue(input, "consumer") ?? (input.values["outbox"] === true ? null : undefined);
  if (consumer !== undefined && consumer !== null && input.values["outbox"] === true) {
    throw new UsageError('"sagabox dlq bury" takes --consumer or --outbox, not both.');
  }
  const by = readActorAndReason(input, io);
  const what = `Message ${id} leaves its line and becomes a dead letter.`;
  if (!(await confirmAction(input, io, { what }))) return STOPPED;
  const buried = await withDeadLetters(input, io, (admin) =>
    buryLiveMessage(admin, id, { ...by, ...(consumer === undefined ? {} : { consumer }) }),
  );
  if (input.values["json"] === true) io.out(jsonText(buried));
  else {
    const from = buried.consumer === null ? "the outbox" : `the line of ${buried.consumer}`;
    io.out(safeLines(`Message ${id} was taken out of ${from}; it is dead letter ${buried.letter} now.`));
  }
  return DONE;
}

/** `dlq discard <letter>` */
async function discardOne(input: CommandInput, io: Io): Promise<number> {
  const id = input.positionals[1] ?? "";
  const by = readActorAndReason(input, io);
  const what = `Letter ${id} is closed for good, and its message is never handled.`;
  if (!(await confirmAction(input, io, { what }))) return STOPPED;
  const letter = await withDeadLetters(input, io, (admin) => discardAndWake(admin, id, by));
  if (input.values["json"] === true)
    io.out(jsonText({ discarded: 1, letter: letter.id, messageId: letter.message.id }));
  else io.out(safeLines(`Letter ${letter.id} of message ${letter.message.id} was discarded.`));
  return DONE;
}

/** `dlq discard --group …`: says what it would do, and does it once that is confirmed. */
async function discardMany(input: CommandInput, io: Io): Promise<number> {
  if (!isFiltered(input) && input.values["all"] !== true) {
    throw new UsageError('"sagabox dlq discard" needs a letter, a filter such as --group, or --all.');
  }
  const filter = readFilter(input);
  const findGroups = () => withDeadLetters(input, io, (admin) => listDeadLetterGroups(admin, filter));
  if (isDryRun(input)) {
    const { open, groups } = await findGroups();
    const text = `${groupsText(groups)}\n\n${open} letters would be closed for good. Nothing was discarded: this was a dry run.`;
    io.out(input.values["json"] === true ? jsonText({ dryRun: true, letters: open, groups }) : text);
    return DONE;
  }
  const by = readDecision(input, io);
  if (input.values["yes"] !== true) {
    const { open, groups } = await findGroups();
    io.err(groupsText(groups));
    const what = `${open} letters are closed for good, and their messages are never handled.`;
    if (!(await confirmAction(input, io, { what, matters: open > 0 }))) return STOPPED;
  }
  const bar = startProgress(io, "Discarded");
  const result = await withDeadLetters(input, io, (admin) =>
    runInterruptible(io, (signal) =>
      discardDeadLetters(admin, filter, { ...by, signal, onProgress: (done) => bar.update(done) }),
    ),
  ).finally(() => bar.end());
  io.out(input.values["json"] === true ? jsonText(result) : discardingText(result));
  return result.finished ? DONE : STOPPED;
}

function groupsText(groups: DeadLetterGroups["groups"]): string {
  const rows = groups.map((group) => [group.fingerprint, group.open, shorten(group.label, 90)]);
  return table(["group", "open", "cause"], rows);
}

function discardingText({ discarded, left }: DiscardResult): string {
  const done = `${discarded} letters were discarded.`;
  if (left === 0) return done;
  return `${done} ${left} are still open: it was stopped, or somebody else is at work on them. Run it again for the rest.`;
}

/** `dlq edit <letter> --data-file <file>`: says what it would do, and does it once that is confirmed. */
async function edit(input: CommandInput, io: Io): Promise<number> {
  const id = input.positionals[1] ?? "";
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
    const what = `Letter ${id} goes back to where it failed with the new data.`;
    if (!(await confirmAction(input, io, { what }))) return STOPPED;
  }
  const plan =
    by === undefined
      ? await planChange()
      : await withDeadLetters(input, io, (admin) => editDeadLetter(admin, id, { ...options, ...by }));
  const { letter, beforeHash, afterHash } = plan;
  const { contract } = plan.edit;
  const told = { letter: id, messageId: letter.message.id, consumer: letter.consumer };
  if (input.values["json"] === true) io.out(jsonText({ dryRun, ...told, beforeHash, afterHash, contract }));
  else io.out(safeLines(`${planText(plan)}\n${doneText(plan, dryRun)}`));
  return DONE;
}

function planText({ letter, edit: { data, contract } }: EditPlan): string {
  const checked =
    contract === null
      ? "Only checked to be JSON: give --app <module> to hold it to its contract."
      : `Fits ${contract}.`;
  return [`before  ${letter.message.data}`, `after   ${data.replaceAll("\n", " ")}`, "", checked].join("\n");
}

function doneText({ letter: { id, consumer, message } }: EditPlan, dryRun: boolean): string {
  if (dryRun) return "Nothing was replayed: this was a dry run.";
  return `Letter ${id} is on its way to ${consumer ?? "the outbox"} with the new data. See: sagabox explain ${message.id}`;
}

function readDataFile(input: CommandInput, { cwd }: Io): string {
  const file = textValue(input, "data-file");
  if (file === undefined) throw new UsageError('"sagabox dlq edit" needs --data-file <file>.');
  try {
    return readFileSync(resolve(cwd, file), "utf8");
  } catch {
    throw new UsageError(`--data-file: ${file} cannot be read.`);
  }
}

/** The contracts of the handlers that the application registers with its bus. The bus is not run. */
async function loadContracts(app: string, { cwd }: Io): Promise<NonNullable<EditOptions["contractOf"]>> {
  const bus = await loadApp(app, cwd);
  try {
    const { deadLetters } = bus as { deadLetters?: { contracts?: () => readonly HandledContract[] } };
    if (typeof deadLetters?.contracts !== "function") {
      throw new SagaboxError(
        "APP_MODULE_INVALID",
        `"${app}" exports a bus that knows nothing of dead letters.`,
      );
    }
    const all = deadLetters.contracts();
    return (consumer, type) =>
      all.find((one) => one.contract.name === type && (consumer === null || one.consumer === consumer))
        ?.contract;
  } finally {
    await bus.stop();
  }
}

interface HandledContract {
  readonly consumer: string;
  readonly contract: AnyContract;
}
