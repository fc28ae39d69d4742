import { planRepublish, republishWindow, type RepublishPlan } from "../../admin/index.ts";
import { actorOption, readDecision, reasonOption } from "../actor.ts";
import { type Command, type CommandInput, DONE, STOPPED, textValue, UsageError } from "../command.ts";
import { confirmAction, dryRunOption, isDryRun, yesOption } from "../confirm.ts";
import { runInterruptible } from "../stop-signals.ts";
import { jsonText } from "../print.ts";
import { startProgress } from "../terminal.ts";
import { withSchema } from "../settings.ts";
import { dropUndefined, numberValue, timeValue } from "../option-values.ts";

const DEFAULT_RATE = 500;

export const republish: Command = {
  name: "republish",
  summary: "Send messages of the archive again, after a broker lost messages that it had confirmed.",
  usage: [
    "republish --from <time> --to <time> [--topic <name>] [--type <name>] [--rate <number>] --reason <text> [--yes]",
    "republish --from <time> --to <time> [--topic <name>] [--type <name>] --dry-run",
  ],
  details: `Puts messages back into the outbox under their original ids; a consumer that already handled one treats it as a duplicate.
All messages of a key go back in one transaction, in their original order and before newer waiting messages of the key, also
while workers run. A newer message that is already sent or in flight cannot be recalled. Waiting messages and dead letters
are left out. The window is the time when messages were written, so start it early enough for messages that were sent late.
The action is recorded in the audit log.

Publishing pauses during each transaction: some milliseconds, or seconds for a key with very many messages.

Ctrl-C stops after the current transaction with exit code 4 and prints how to continue with --after. If the process was
killed, run the command again.

Examples:
  sagabox republish --from 2026-11-16T08:00:00Z --to 2026-11-16T08:30:00Z --dry-run
  sagabox republish --from 2h --to 30m --dry-run
  sagabox republish --from 2026-11-16T08:00:00Z --to 2026-11-16T08:30:00Z --rate 200 --reason "broker lost a disk" --yes

Connects to DATABASE_URL with at least the operator role.`,
  options: {
    from: {
      type: "string",
      value: "<time>",
      help: "Only messages written at or after this time: 2026-11-16T08:00:00Z, or 2h for two hours ago.",
    },
    to: { type: "string", value: "<time>", help: "Only messages written before this time." },
    topic: { type: "string", value: "<name>", help: "Only this topic." },
    type: { type: "string", value: "<name>", help: "Only this type." },
    rate: {
      type: "string",
      value: "<number>",
      help: `Highest average rate, in messages per second. Default: ${DEFAULT_RATE}.`,
    },
    after: {
      type: "string",
      value: "<cursor>",
      help: "Continue where a republish of the same window ended.",
    },
    "dry-run": dryRunOption,
    yes: yesOption,
    actor: actorOption,
    reason: reasonOption,
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  async run(input, io) {
    if (input.positionals.length > 0) {
      throw new UsageError(`"sagabox republish" takes no argument, but got ${input.positionals.join(" ")}.`);
    }
    const window = readWindow(input);
    const ratePerSecond = numberValue(input, "rate") ?? DEFAULT_RATE;
    const dryRun = isDryRun(input);
    const by = dryRun ? undefined : readDecision(input, io);
    return withSchema(input, io, "operator", async (database, schema) => {
      const plan = await planRepublish(database, schema, window);
      if (by === undefined) {
        io.out(
          input.values["json"] === true
            ? jsonText({ dryRun, ...plan })
            : `${planText(plan, "would go")} Nothing was done.`,
        );
        return DONE;
      }
      const asked = { what: planText(plan), matters: plan.count > 0 };
      if (!(await confirmAction(input, io, asked))) return STOPPED;
      const progress = startProgress(io, "messages");
      const result = await runInterruptible(io, (signal) =>
        republishWindow(database, schema, {
          ...window,
          ...by,
          ratePerSecond,
          pageSize: Math.max(1, Math.min(500, ratePerSecond)),
          signal,
          onProgress: ({ count }) => progress.update(count, Math.max(count, plan.count)),
        }),
      ).finally(() => progress.end());
      const { count, finished, after } = result;
      if (input.values["json"] === true) io.out(jsonText({ dryRun, count, finished, after }));
      else
        io.out(
          finished
            ? `${count} message(s) go out again.`
            : `Stopped: ${count} go out again. Continue with --after ${after}`,
        );
      return finished ? DONE : STOPPED;
    });
  },
};

function readWindow(input: CommandInput) {
  return {
    from: readTime(input, "from"),
    to: readTime(input, "to"),
    ...dropUndefined({
      topic: textValue(input, "topic"),
      type: textValue(input, "type"),
      after: textValue(input, "after"),
    }),
  };
}

function readTime(input: CommandInput, name: string): Date {
  const time = timeValue(input, name);
  if (time === undefined) throw new UsageError(`"sagabox republish" needs --${name} <time>.`);
  return time;
}

function planText({ count, archiveFrom, isWhole }: RepublishPlan, go = "go"): string {
  const gone = isWhole ? "" : ` The window begins before the archive does (${archiveFrom ?? "it is empty"}).`;
  return `${count} message(s) of the window ${go} out again.${gone}`;
}
