import {
  cleanInbox,
  type HandledFilter,
  type HandledMessage,
  handledStats,
  listConsumerNames,
  listHandled,
  listHandlersFor,
  planInboxCleaning,
  planRetirement,
  retireConsumer,
  type RetirePlan,
} from "../../admin/index.ts";
import { type Actions, runAction } from "../actions.ts";
import { actorOption, readActor, readDecision, reasonOption } from "../actor.ts";
import { type Command, type CommandInput, DONE, FAILED, type Io, STOPPED, textValue } from "../command.ts";
import { confirmAction, dryRunOption, isDryRun, yesOption } from "../confirm.ts";
import { runInterruptible } from "../stop-signals.ts";
import { dropUndefined, keepOption, numberValue, readKeep } from "../option-values.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { startProgress } from "../terminal.ts";
import { withSchema } from "../settings.ts";

const KEPT_NOTE = "Its inbox rows and dead letters are kept.";

/** `inbox retire <consumer>`: prints what would be deleted and asks for confirmation. */
async function retire(input: CommandInput, io: Io, consumer: string): Promise<number> {
  const asJson = input.values["json"] === true;
  if (isDryRun(input)) {
    const plan = await withSchema(input, io, "viewer", (database, schema) =>
      planRetirement(database, schema, consumer),
    );
    const text = `${planText(plan, "would be deleted")} ${KEPT_NOTE} Dry run: nothing was changed.`;
    io.out(asJson ? jsonText({ dryRun: true, ...plan }) : safeLines(text));
    return DONE;
  }
  const by = readDecision(input, io);
  return withSchema(input, io, "operator", async (database, schema) => {
    if (input.values["yes"] !== true) {
      const what = `${planText(await planRetirement(database, schema, consumer), "are deleted")} ${KEPT_NOTE}`;
      if (!(await confirmAction(input, io, { what, word: consumer }))) return STOPPED;
    }
    const retired = await retireConsumer(database, schema, consumer, by);
    io.out(
      asJson
        ? jsonText({ dryRun: false, ...retired })
        : safeLines(`${planText(retired, "were deleted")} ${KEPT_NOTE}`),
    );
    return DONE;
  });
}

function planText({ consumer, topics, deliveries }: RetirePlan, verb: string): string {
  const some = topics.slice(0, 10).join(", ");
  const more = topics.length > 10 ? ` and ${topics.length - 10} more` : "";
  const to = topics.length === 0 ? "" : ` (${some}${more})`;
  return `${topics.length} subscription(s)${to} of consumer ${consumer} and ${deliveries} waiting message(s) ${verb}.`;
}

const DAY_MS = 86_400_000;

function cleanup(input: CommandInput, io: Io): Promise<number> {
  const keep = readKeep(input);
  const actor = readActor(input, io, "scheduled job");
  const reason = textValue(input, "reason");
  const asJson = input.values["json"] === true;
  return withSchema(input, io, "owner", async (database, schema) => {
    const plan = await planInboxCleaning(database, schema, keep);
    const kept = `Rows of the last ${Math.ceil(plan.keepMs / DAY_MS)} days are kept: the time in which a message could be delivered again, plus two days.`;
    if (isDryRun(input)) {
      io.out(
        asJson
          ? jsonText({ dryRun: true, ...plan })
          : `Dry run: nothing was changed. ${plan.due} row(s) would be deleted. ${kept}`,
      );
      return DONE;
    }
    const what = `${plan.due} row(s) of the inbox are deleted.`;
    if (!(await confirmAction(input, io, { what, matters: plan.due > 0 }))) return STOPPED;
    const progress = startProgress(io, "rows");
    const result = await runInterruptible(io, (signal) => {
      const onProgress = (count: number): void => progress.update(count, Math.max(plan.due, count));
      return cleanInbox(database, schema, { keep, actor, reason, signal, onProgress });
    }).finally(() => progress.end());
    io.out(asJson ? jsonText({ dryRun: false, ...result }) : `${result.forgotten} row(s) forgotten. ${kept}`);
    return result.finished ? DONE : STOPPED;
  });
}

const actions: Actions = {
  stats: { reads: ["consumer"], run: stats },
  list: { reads: ["since", "consumer", "topic", "type", "key", "limit"], run: list },
  show: { reads: [], argument: "the id of a message", run: show },
  cleanup: { reads: ["keep", "dry-run", "yes", "actor", "reason"], run: cleanup },
  retire: { reads: ["dry-run", "yes", "actor", "reason"], argument: "the name of a consumer", run: retire },
};

export const inbox: Command = {
  name: "inbox",
  summary: "Show what consumers handled, delete old inbox rows, retire consumers that no longer exist.",
  usage: [
    "inbox stats [--consumer <name>]",
    "inbox list [--since <time>] [--consumer <name>] [--topic <name>] [--type <name>] [--key <key>] …",
    "inbox show <message-id>",
    "inbox cleanup --keep <time> [--dry-run] [--yes]",
    "inbox retire <consumer> --reason <text> [--dry-run] [--yes]",
  ],
  actions: Object.keys(actions),
  details: `  stats    Number of handled messages per consumer: total, last hour, last day, and the oldest. Reads every row, so run it
           rarely.
  list     Messages handled in the last hour, or since --since, newest first.
  show     The consumers that handled one message, and its effect. Exit code 1 if no consumer did.
  cleanup  Delete inbox rows older than --keep (at least 7 days), in small batches. Rows of messages that the archive or an
           open dead letter could deliver again are kept. For a cron job; needs the owner role.
  retire   Delete the subscriptions of a consumer that no longer exists, and its waiting messages. Refused while one of its
           workers runs. Its inbox rows and dead letters are kept, so that it can come back without handling twice.

Examples:
  sagabox inbox stats
  sagabox inbox list --since 10m --consumer billing
  sagabox inbox show 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11
  sagabox inbox cleanup --keep 30d --yes
  sagabox inbox retire old-billing --reason "renamed to invoicing" --dry-run

Connects to DATABASE_URL.`,
  options: {
    consumer: { type: "string", value: "<name>", help: "Only this consumer." },
    since: { type: "string", value: "<time>", help: "How far back: 10m, 2h, 1d. Default: 1h." },
    topic: { type: "string", value: "<name>", help: "Only this topic." },
    type: { type: "string", value: "<name>", help: "Only this type." },
    key: { type: "string", value: "<key>", help: "Only this key. Not for viewers." },
    limit: { type: "string", value: "<number>", help: "Maximum number of rows. Default: 50." },
    keep: keepOption,
    "dry-run": dryRunOption,
    yes: yesOption,
    actor: actorOption,
    reason: reasonOption,
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  run: (input, io) => runAction("inbox", actions, input, io),
};

async function stats(input: CommandInput, io: Io): Promise<number> {
  const consumers = await withSchema(input, io, "viewer", (database, schema) =>
    handledStats(database, schema, textValue(input, "consumer")),
  );
  if (input.values["json"] === true) {
    io.out(jsonText({ consumers }));
    return DONE;
  }
  if (consumers.length === 0) io.out("No message was handled yet.");
  else {
    const rows = consumers.map((one) => [one.consumer, one.total, one.oldest, one.lastHour, one.lastDay]);
    io.out(table(["consumer", "total", "oldest", "last hour", "last day"], rows, io.terminal?.columns));
  }
  io.out("Duplicates leave no row. Only the metric consumer_inbox_duplicates_total counts them.");
  return DONE;
}

async function list(input: CommandInput, io: Io): Promise<number> {
  // The admin function checks the values, and its error lists the allowed ones.
  const filter = dropUndefined({
    since: textValue(input, "since"),
    consumer: textValue(input, "consumer"),
    topic: textValue(input, "topic"),
    type: textValue(input, "type"),
    key: textValue(input, "key"),
    limit: numberValue(input, "limit"),
  }) as HandledFilter;
  const { handled, names } = await withSchema(input, io, "viewer", async (database, schema) => {
    const found = await listHandled(database, schema, filter);
    return { handled: found, names: found.length > 0 ? [] : await listConsumerNames(database, schema) };
  });
  if (input.values["json"] === true) io.out(jsonText({ handled }));
  else if (handled.length > 0) io.out(handledTable(handled, io.terminal?.columns));
  else io.out(safeLines(`No message was handled in that time.${unknownText(filter.consumer, names)}`));
  return DONE;
}

function unknownText(consumer: string | undefined, names: readonly string[]): string {
  if (consumer === undefined || names.includes(consumer)) return "";
  const known = names.length === 0 ? "none" : names.slice(0, 20).join(", ");
  const more = names.length > 20 ? ` and ${names.length - 20} more` : "";
  return ` There is no consumer ${consumer}. Known: ${known}${more}.`;
}

async function show(input: CommandInput, io: Io, id: string): Promise<number> {
  const handled = await withSchema(input, io, "viewer", (database, schema) =>
    listHandlersFor(database, schema, id),
  );
  if (input.values["json"] === true) io.out(jsonText({ messageId: id, handled }));
  else if (handled.length > 0) io.out(handledTable(handled, io.terminal?.columns));
  else io.out(safeLines(`No consumer of this database has handled ${id}. See: sagabox explain ${id}`));
  return handled.length > 0 ? DONE : FAILED;
}

function handledTable(handled: readonly HandledMessage[], columns: number | undefined): string {
  const rows = handled.map((one) => [
    one.handledAt,
    one.consumer,
    one.messageId,
    one.type,
    one.topic,
    one.durationMs,
    effectText(one),
  ]);
  return table(["handled at", "consumer", "message", "type", "topic", "ms", "effect"], rows, columns);
}

function effectText({ hasEffect, effectOf, undoneBy }: HandledMessage): string {
  if (effectOf !== null) return `by ${effectOf}`;
  if (undoneBy !== null) return `undone by ${undoneBy}`;
  return hasEffect ? "yes" : "none";
}
