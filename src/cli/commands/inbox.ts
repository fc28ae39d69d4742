import { runAction, type Action } from "../actions.ts";
import { actorOption, reasonOption } from "../actor.ts";
import type { Command } from "../command.ts";
import { dryRunOption, yesOption } from "../confirm.ts";
import { cleanup } from "../inbox/cleanup.ts";
import { list, show, stats } from "../inbox/list.ts";
import { retire } from "../inbox/retire.ts";
import { keepOption } from "../keep.ts";

const actions: Readonly<Record<string, Action>> = {
  stats: { reads: ["consumer"], run: stats },
  list: { reads: ["since", "consumer", "topic", "type", "limit"], run: list },
  show: { reads: [], argument: "the id of a message", run: show },
  cleanup: { reads: ["keep", "dry-run", "yes", "actor", "reason"], run: cleanup },
  retire: { reads: ["dry-run", "yes", "actor", "reason"], argument: "the name of a consumer", run: retire },
};

export const inbox: Command = {
  name: "inbox",
  summary: "See what consumers have handled, forget what can no longer come again, retire who is gone.",
  usage: [
    "inbox stats [--consumer <name>]",
    "inbox list [--since <time>] [--consumer <name>] [--topic <name>] [--type <name>] [--limit <number>]",
    "inbox show <message-id>",
    "inbox cleanup --keep <time> [--dry-run] [--yes]",
    "inbox retire <consumer> --reason <text> [--dry-run] [--yes]",
  ],
  actions: Object.keys(actions),
  details: `  stats    Total, oldest, last hour and last day for each consumer. It counts every row, so ask rarely.
  list     What was handled in the last hour, or since --since, newest first.
  show     Who has handled one message, and with what effect. Exit code 1 if nobody has.
  cleanup  Forget what was handled longer ago than --keep (7 days at least), in small batches. What the archive or an open
           dead letter could bring again is kept in any case. For a cron job; needs the owner role.
  retire   Take away the subscriptions of a consumer that is gone for good, and what waits for it. Refused while a worker of it
           is alive. What it has handled and its dead letters stay, so that one that comes back is recognised.

Examples:
  sagabox inbox stats
  sagabox inbox list --since 10m --consumer billing
  sagabox inbox show 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11
  sagabox inbox cleanup --keep 30d --yes
  sagabox inbox retire old-billing --reason "renamed to invoicing" --dry-run

The database is the one of DATABASE_URL.`,
  options: {
    consumer: { type: "string", value: "<name>", help: "Only this consumer." },
    since: { type: "string", value: "<time>", help: "How far back: 10m, 2h, 1d. Default: 1h." },
    topic: { type: "string", value: "<name>", help: "Only this topic." },
    type: { type: "string", value: "<name>", help: "Only this type." },
    limit: { type: "string", value: "<number>", help: "How many at most. Default: 50." },
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
