import { verifyConservation, type ConservationReport, type ConservationVerdict } from "../../admin/index.ts";
import { systemClock } from "../../runtime/index.ts";
import { type Command, type CommandInput, DONE, FOUND, STOPPED, textValue, UsageError } from "../command.ts";
import { runInterruptible } from "../stop-signals.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { startProgress } from "../terminal.ts";
import { withSchema } from "../settings.ts";
import { printOrWatch, watchOption } from "../watch.ts";

export const verify: Command = {
  name: "verify",
  summary: "Prove that no message was lost: written = sent + waiting + dead + discarded, in each lane.",
  usage: ["verify [--since <day>] [--lanes] [--watch [seconds]] [--schema <name>] [--json]"],
  details: `Counts every message of the archive, as far back as dead letters are kept, and checks waiting messages, deliveries,
schedules, dead letters, the inbox, leases and incidents. It reads in small steps, blocks no other session and changes
nothing. A worker with the part "upkeep" runs the same checks continuously; this command runs all of them now. It cannot
detect messages that a broker lost after confirming them. In the table, "dead" and "discarded" are messages that could not
be sent; dead letters of consumers are counted separately.

Busy data is read again in smaller steps. Exit code 3 if something is wrong; each finding lists ids and what to do. Exit code
4 if nothing wrong was found but some data could not be checked. The operator role is sufficient.

Examples:
  sagabox verify
  sagabox verify --since 2d --json | jq .findings
  sagabox verify --watch 60

Connects to DATABASE_URL.`,
  options: {
    since: {
      type: "string",
      value: "<day>",
      help: "Only messages written at or after this day: 2026-11-16, or 2d for two days ago.",
    },
    lanes: { type: "boolean", help: "Print the counts of each lane." },
    watch: watchOption,
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  async run(input, io) {
    if (input.positionals.length > 0) {
      throw new UsageError(`"sagabox verify" takes no argument, but got ${input.positionals.join(" ")}.`);
    }
    const since = readSince(input);
    return withSchema(input, io, "operator", (database, schema) => {
      const look = async (signal?: AbortSignal) => {
        const progress = startProgress(io, "pages of the archive");
        const report = await verifyConservation(database, schema, {
          ...(since === undefined ? {} : { since }),
          ...(signal === undefined ? {} : { signal }),
          progress: (done, total) => progress.update(done, total),
        }).finally(() => progress.end());
        const text =
          input.values["json"] === true
            ? jsonText(report)
            : reportText(report, { lanes: input.values["lanes"] === true, columns: io.terminal?.columns });
        return { text, code: verdictCodes[report.verdict] };
      };
      if (textValue(input, "watch") !== undefined) return printOrWatch(input, io, look);
      return runInterruptible(io, async (signal) => {
        const { text, code } = await look(signal);
        io.out(text);
        return code;
      });
    });
  },
};

const verdictCodes: Readonly<Record<ConservationVerdict, number>> = {
  kept: DONE,
  broken: FOUND,
  incomplete: STOPPED,
};

const DAY_MS = 86_400_000;

function readSince(input: CommandInput): string | undefined {
  const text = textValue(input, "since");
  if (text === undefined) return undefined;
  const days = /^(\d{1,4})d$/.exec(text)?.[1];
  const at = days === undefined ? Date.parse(text) : systemClock.wallMs() - Number(days) * DAY_MS;
  if (Number.isNaN(at)) throw new UsageError("--since must be a day (2026-11-16) or a number of days (2d).");
  return new Date(at).toISOString().slice(0, 10);
}

function verdictText({ verdict, total, findings, from, rows }: ConservationReport): string {
  if (verdict === "kept" && total.written === 0) {
    return `Kept: there are no messages to count; ${rows} other row(s) are correct.`;
  }
  const wrong = findings.reduce((sum, { count }) => sum + count, 0);
  const texts: Readonly<Record<ConservationVerdict, string>> = {
    kept: `Kept: all ${total.written} message(s) written since ${from} are accounted for; ${rows} other row(s) are correct.`,
    broken: `BROKEN: ${wrong} problem(s) in ${total.written} message(s) written since ${from}.`,
    incomplete:
      `INCOMPLETE: some data could not be checked. ${total.written} message(s) written since ${from} are accounted for, and ` +
      `${rows} other row(s) are correct.`,
  };
  return texts[verdict];
}

function reportText(
  report: ConservationReport,
  { lanes: showsLanes, columns }: { readonly lanes: boolean; readonly columns: number | undefined },
): string {
  const { total, lanes, consumerDeadLetters, findings, skipped, finished, durationMs } = report;
  const sums = Object.entries(total).map(([name, count]) => [name, count] as const);
  const lines = [
    verdictText(report),
    ...(finished ? [] : ["Stopped early; the counts cover only what was read."]),
    ...(skipped === 0
      ? []
      : [
          `${skipped} window(s) or table(s) were too busy to be checked. ` +
            "Run the command again when there is less load.",
        ]),
    "",
    table(["messages by result of sending", "count"], sums, columns),
    "",
    `Dead letters of consumers: ${consumerDeadLetters.open} open, ${consumerDeadLetters.discarded} discarded. Their messages were sent and are counted so above.`,
    ...(showsLanes ? ["", laneTable(lanes, columns)] : []),
    ...findings.flatMap(({ kind, lane, count, ids, means, whatToDo }) => [
      "",
      safeLines(
        `${kind}${lane === null ? "" : ` in lane ${lane}`}: ${count}\n  ${means}\n  → ${whatToDo}\n  ${ids.join("\n  ")}`,
      ),
      ...(count > ids.length ? [`  … and ${count - ids.length} more.`] : []),
    ]),
    "",
    `Took ${Math.round(durationMs)} ms.`,
  ];
  return lines.join("\n");
}

function laneTable(lanes: ConservationReport["lanes"], columns: number | undefined): string {
  const [first] = lanes;
  if (first === undefined) return "No lane has messages.";
  return table(
    Object.keys(first),
    lanes.map((lane) => Object.values(lane)),
    columns,
  );
}
