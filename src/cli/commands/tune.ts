import { availableParallelism } from "node:os";
import {
  tune as measureAll,
  tuneConnections,
  type Handling,
  type Measurement,
  type TuneReport,
} from "../../admin/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { pgDatabase } from "../../storage/index.ts";
import { type Command, type CommandInput, DONE, STOPPED, textValue, UsageError } from "../command.ts";
import { confirmAction, yesOption } from "../confirm.ts";
import { runInterruptible } from "../stop-signals.ts";
import { jsonText, table } from "../print.ts";
import { startProgress } from "../terminal.ts";
import { findUrl, loadEnvironment } from "../settings.ts";

export const tune: Command = {
  name: "tune",
  summary: "Measure batch sizes and concurrency on your database server and propose settings.",
  usage: ["tune [--seconds <number>] [--cores <number>] [--yes] [--json]"],
  details: `Creates a scratch schema (sagabox_tune_…) with all tables, and writes, reads and settles messages there with the statements
of the product, with batches of 10 to 2000 and 1 to 8 relays. Then it handles messages, each in its own transaction, with 1
to 40 concurrent handlers. The schema is dropped at the end, also after Ctrl-C. Only the database is measured: there is no
broker, and the handlers do nothing. It loads the server while it runs, so choose a quiet hour or a copy of the server.

It proposes the smallest setting within 5 % of the fastest.

Examples:
  sagabox tune
  sagabox tune --seconds 120 --cores 8 --yes --json

Connects to DATABASE_URL; the user must be allowed to create schemas.`,
  options: {
    seconds: { type: "string", value: "<number>", help: "Duration of the whole measurement. Default: 60." },
    cores: {
      type: "string",
      value: "<number>",
      help: "Cores of the database server. Default: the cores of this machine.",
    },
    yes: yesOption,
    json: { type: "boolean", help: "Print JSON." },
  },
  async run(input, io) {
    if (input.positionals.length > 0) {
      throw new UsageError(`"sagabox tune" takes no argument, but got ${input.positionals.join(" ")}.`);
    }
    const seconds = readNumber(input, "seconds", 3_600) ?? 60;
    const cores = readNumber(input, "cores", 4_096);
    const databaseUrl = findUrl(loadEnvironment(io));
    if (databaseUrl === undefined) {
      throw new SagaboxError(
        "ENVIRONMENT_INVALID",
        "DATABASE_URL is not set. Set it to the URL of PostgreSQL, or run `sagabox dev` to start one.",
      );
    }
    const what = `This loads the database server for about ${seconds} s, in a temporary schema that is dropped afterwards.`;
    if (!(await confirmAction(input, io, { what }))) return STOPPED;
    const progress = startProgress(io, "settings measured");
    const database = pgDatabase(databaseUrl, { maxConnections: tuneConnections });
    try {
      const report = await runInterruptible(io, (signal) =>
        measureAll(database, {
          seconds,
          cores: cores ?? availableParallelism(),
          coresKnown: cores !== undefined,
          signal,
          onMeasured: (done, total, last) => progress.update(done, total, settingText(last)),
        }),
      );
      progress.end();
      io.out(input.values["json"] === true ? jsonText(report) : reportText(report, io.terminal?.columns));
      return report.finished ? DONE : STOPPED;
    } finally {
      progress.end();
      await database.close();
    }
  },
};

function readNumber(input: CommandInput, name: string, max: number): number | undefined {
  const text = textValue(input, name);
  if (text === undefined) return undefined;
  const value = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (value < 1 || value > max) throw new UsageError(`--${name} must be a whole number from 1 to ${max}.`);
  return value;
}

function settingText(measured: Measurement | Handling): string {
  if ("handled" in measured) {
    return `${measured.concurrency} handlers at a time: ${Math.round(measured.handled.perSecond)}/s`;
  }
  const { batchSize, concurrency, drain } = measured;
  return `batches of ${batchSize}, ${concurrency} at a time: ${Math.round(drain.perSecond)}/s`;
}

function reportText(
  { measurements, handling, proposals, schema, finished }: TuneReport,
  columns: number | undefined,
): string {
  const msText = (value: number): string => value.toFixed(1);
  const rows = measurements.map(({ batchSize, concurrency, write, drain }) => [
    batchSize,
    concurrency,
    Math.round(write.perSecond),
    msText(write.p50Ms),
    msText(write.p95Ms),
    Math.round(drain.perSecond),
    msText(drain.p50Ms),
    msText(drain.p95Ms),
  ]);
  const headings = ["batch", "at a time", "written/s", "p50 ms", "p95 ms", "drained/s", "p50 ms", "p95 ms"];
  const handled = handling.map(({ concurrency, handled: { perSecond, p50Ms, p95Ms } }) => [
    concurrency,
    Math.round(perSecond),
    msText(p50Ms),
    msText(p95Ms),
  ]);
  return [
    table(headings, rows, columns),
    "",
    table(["handlers at a time", "handled/s", "p50 ms", "p95 ms"], handled, columns),
    "",
    table(
      ["proposed", "value", "why"],
      proposals.map(({ setting, value, why }) => [setting, value, why]),
      columns,
    ),
    "",
    `${finished ? "" : "Stopped early. "}The scratch schema ${schema} is dropped.`,
  ].join("\n");
}
