import { runAction, type Action } from "../actions.ts";
import { actorOption, reasonOption } from "../actor.ts";
import type { Command } from "../command.ts";
import { dryRunOption, yesOption } from "../confirm.ts";
import { keepOption } from "../keep.ts";
import { archive } from "../outbox/archive.ts";
import { list, show, stats } from "../outbox/list.ts";
import { retry } from "../outbox/retry.ts";
import { watchOption } from "../watch.ts";

const actions: Readonly<Record<string, Action>> = {
  list: {
    reads: ["state", "topic", "type", "key", "older-than", "min-attempts", "limit", "after", "watch"],
    run: list,
  },
  show: { reads: [], argument: "the id of a message", run: show },
  stats: { reads: ["watch"], run: stats },
  "retry-now": { reads: ["actor", "reason"], argument: "the id of a message", run: retry },
  archive: { reads: ["keep", "dry-run", "yes", "actor", "reason"], run: archive },
};

export const outbox: Command = {
  name: "outbox",
  summary: "See what still waits to be sent and why, and keep the archive of what was.",
  usage: [
    "outbox list [--state <state>] [--topic <name>] [--type <name>] [--key <key>] [--older-than <time>] …",
    "outbox show <message-id>",
    "outbox stats [--watch [seconds]]",
    "outbox retry-now <message-id> --reason <text>",
    "outbox archive --keep <time> [--dry-run] [--yes]",
  ],
  actions: Object.keys(actions),
  details: `  list     What waits, oldest first: due, failed (tried again), held (dead, keeps its key standing still), or scheduled.
           It looks through the first 2000 of each lane. Keys and error texts are shown to operators only.
  show     One message: how often it was tried, when it is tried next, when it was sent.
  stats    Counts by topic and type.
  retry-now
           Have a message tried at once that failed before and waits for its next time. What stands behind it in its key
           follows. Its attempts stay as they are.
  archive  One round of what a worker with the part "upkeep" does every hour: partitions for the days ahead, and those
           older than --keep dropped; what still waits is carried over. For a cron job; needs the owner role.

Examples:
  sagabox outbox list --state failed --min-attempts 3
  sagabox outbox stats --watch
  sagabox outbox show 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11
  sagabox outbox retry-now 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --reason "the topic is there now"
  sagabox outbox archive --keep 30d --dry-run

The database is the one of DATABASE_URL.`,
  options: {
    state: { type: "string", value: "<state>", help: "Only these: due, failed, held or scheduled." },
    topic: { type: "string", value: "<name>", help: "Only this topic." },
    type: { type: "string", value: "<name>", help: "Only this type." },
    key: { type: "string", value: "<key>", help: "Only this key." },
    "older-than": { type: "string", value: "<time>", help: "Only those written longer ago: 30s, 10m, 2h." },
    "min-attempts": { type: "string", value: "<number>", help: "Only those tried this often or more." },
    limit: { type: "string", value: "<number>", help: "How many at most. Default: 50." },
    after: { type: "string", value: "<seq>", help: "Go on behind this one." },
    watch: watchOption,
    keep: keepOption,
    "dry-run": dryRunOption,
    yes: yesOption,
    actor: actorOption,
    reason: reasonOption,
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  run: (input, io) => runAction("outbox", actions, input, io),
};
