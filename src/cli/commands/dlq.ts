import { actorOption, reasonOption } from "../actor.ts";
import { runAction, type Action } from "../actions.ts";
import type { Command, CommandInput } from "../command.ts";
import { dryRunOption, yesOption } from "../confirm.ts";
import { discardMany, discardOne } from "../dlq/discard.ts";
import { bury } from "../dlq/bury.ts";
import { edit } from "../dlq/edit.ts";
import { filterNames, filterOptions } from "../dlq/input.ts";
import { groups, list, show } from "../dlq/list.ts";
import { replayMany, replayOne } from "../dlq/replay.ts";
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
