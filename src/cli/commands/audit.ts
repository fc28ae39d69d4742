import {
  type AuditFilter,
  type AuditLine,
  listAudit,
  sealAudit,
  verifyAudit,
  type VerifyProgress,
  type VerifyReport,
} from "../../admin/index.ts";
import { runAction, type Actions } from "../actions.ts";
import { type Command, type CommandInput, DONE, FOUND, type Io, textValue } from "../command.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { startProgress } from "../terminal.ts";
import { withSchema } from "../settings.ts";
import { dropUndefined, numberValue, timeValue } from "../option-values.ts";

const LIST_OPTIONS = "all log saga actor action target trace outcome since until limit after".split(" ");

/** With one of these options the list includes what sagas did on their own. */
const NARROWING_OPTIONS = ["all", "log", "saga", "action", "target", "trace"];

async function list(input: CommandInput, io: Io): Promise<number> {
  // The admin function checks the values, and its error lists the allowed ones.
  const people = NARROWING_OPTIONS.every((name) => input.values[name] === undefined);
  const filter = dropUndefined({
    people,
    log: textValue(input, "log"),
    sagaId: textValue(input, "saga"),
    actor: textValue(input, "actor"),
    action: textValue(input, "action"),
    target: targetValue(input),
    traceId: textValue(input, "trace"),
    outcome: textValue(input, "outcome"),
    from: timeValue(input, "since"),
    to: timeValue(input, "until"),
    limit: numberValue(input, "limit"),
    after: textValue(input, "after"),
  }) as AuditFilter;
  const lines = await withSchema(input, io, "operator", (database, schema) =>
    listAudit(database, schema, filter),
  );
  if (input.values["json"] === true) {
    io.out(jsonText({ lines }));
    return 0;
  }
  if (lines.length === 0) {
    io.out(`No matching entries in the audit log.${people ? ` ${LEFT_OUT_NOTE}` : ""}`);
    return 0;
  }
  io.out(
    table(
      ["at", "who", "what", "target", "outcome", "change", "why"],
      lines.map(toRow),
      io.terminal?.columns,
    ),
  );
  const last = lines.at(-1);
  if (last !== undefined && lines.length === (filter.limit ?? 50)) {
    io.out(safeLines(`More: add --after ${last.cursor}`));
  }
  if (people) io.out(LEFT_OUT_NOTE);
  return 0;
}

const LEFT_OUT_NOTE = "Steps that sagas took on their own are left out; --all shows them.";

function toRow(line: AuditLine): readonly (string | null)[] {
  const { saga } = line;
  const target = `${line.target.kind}${line.target.id === null ? "" : ` ${line.target.id}`}`;
  return [
    line.at,
    line.actor ?? saga?.cause ?? null,
    saga?.step === undefined || saga.step === null ? line.action : `${line.action} ${saga.step}`,
    target,
    line.errorCode === null ? line.outcome : `${line.outcome} (${line.errorCode})`,
    saga === null ? shorten(outcomeText(line.after)) : changeText(saga),
    shorten(line.reason ?? saga?.note ?? null),
  ];
}

function changeText({ from, to }: NonNullable<AuditLine["saga"]>): string | null {
  return from === null && to === null ? null : `${from ?? ""} → ${to ?? ""}`;
}

/** The recorded explanation of the outcome, if it is text. Everything else is only in the JSON output. */
function outcomeText(after: AuditLine["after"]): string | null {
  if (after === null || typeof after !== "object" || !("why" in after)) return null;
  return typeof after["why"] === "string" ? after["why"] : null;
}

function targetValue(input: CommandInput): { kind: string; id?: string } | undefined {
  const [kind = "", ...rest] = textValue(input, "target")?.split(":") ?? [];
  if (kind === "") return undefined;
  return rest.length === 0 ? { kind } : { kind, id: rest.join(":") };
}

function shorten(text: string | null): string | null {
  return text === null || text.length <= 80 ? text : `${text.slice(0, 79)}…`;
}

const actions: Actions = {
  list: { reads: LIST_OPTIONS, run: list },
  verify: { reads: ["anchor"], run: verify },
  seal: { reads: [], run: seal },
};

export const audit: Command = {
  name: "audit",
  summary: "List who did what and why, and verify that the audit log was not changed.",
  usage: [
    "audit list [--all] [--saga <id>] [--actor <name>] [--action <name>] [--since <time>] …",
    "audit verify [--anchor <head>]",
    "audit seal",
  ],
  actions: Object.keys(actions),
  details: `  list    Actions of people, newest first, including refused and failed ones. With --all, --saga, --log, --action,
          --target or --trace also the steps that sagas took on their own. --after takes the last cursor of a page.
  verify  Recompute the hash chain from the stored rows, and list every row and seal that was changed. Prints the
          head of the chain: store it elsewhere, and pass it as --anchor later. Without an anchor, a replaced end of
          the chain is not detected. Exit code 3 if anything was found.
  seal    Seal new rows now. A worker does this every minute.

Examples:
  sagabox audit list --actor ada --since 2026-11-01
  sagabox audit verify --json | jq -r .head >> heads-kept-elsewhere.txt
  sagabox audit seal
  sagabox audit verify --anchor "$(tail -1 heads-kept-elsewhere.txt)"

Connects to DATABASE_URL.`,
  options: {
    all: { type: "boolean", help: "Include steps that sagas took on their own." },
    log: { type: "string", value: "<name>", help: "Only this log: saga or action." },
    saga: { type: "string", value: "<id>", help: "Only entries about this saga." },
    actor: { type: "string", value: "<name>", help: "Only actions of this person or service." },
    action: {
      type: "string",
      value: "<name>",
      help: "Only this action, such as dead_letter.replay or saga.failed.",
    },
    target: {
      type: "string",
      value: "<kind[:id]>",
      help: "Only actions on this target, such as dead_letter:17.",
    },
    trace: { type: "string", value: "<id>", help: "Only entries of this trace." },
    outcome: { type: "string", value: "<outcome>", help: "Only this outcome: done, refused or failed." },
    since: {
      type: "string",
      value: "<time>",
      help: "Only at or after this time: 2026-11-16, 2026-11-16T08:00:00Z, or 2h for two hours ago.",
    },
    until: { type: "string", value: "<time>", help: "Only before this time." },
    limit: { type: "string", value: "<number>", help: "Maximum number of rows. Default: 50." },
    after: {
      type: "string",
      value: "<cursor>",
      help: "Start after this row, the last one of the previous page.",
    },
    anchor: {
      type: "string",
      value: "<head>",
      help: "A head printed earlier; the chain must still contain it.",
    },
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  run: (input, io) => runAction("audit", actions, input, io),
};

async function verify(input: CommandInput, io: Io): Promise<number> {
  const progress = startProgress(io, "seals");
  const onProgress = ({ seals, totalSeals, rows }: VerifyProgress): void =>
    progress.update(seals, totalSeals, `${rows} rows`);
  const options = { ...dropUndefined({ anchor: textValue(input, "anchor") }), onProgress };
  const report = await withSchema(input, io, "operator", (database, schema) =>
    verifyAudit(database, schema, options),
  ).finally(() => progress.end());
  io.out(input.values["json"] === true ? jsonText(report) : safeLines(reportText(report)));
  return report.ok ? DONE : FOUND;
}

async function seal(input: CommandInput, io: Io): Promise<number> {
  const result = await withSchema(input, io, "owner", sealAudit);
  if (input.values["json"] === true) io.out(jsonText(result));
  else {
    io.out(`Sealed ${result.rows} row(s) with ${result.seals} seal(s).`);
    if (result.head !== null) io.out(`Head: ${result.head}`);
  }
  return 0;
}

function reportText(report: VerifyReport): string {
  const { seals, rows, droppedRows, unsealed, head, findings, findingCount, chains } = report;
  const lines = [
    report.ok
      ? `OK: ${rows} row(s) match their ${seals} seal(s).`
      : `BROKEN: ${findingCount} finding(s) in ${rows} row(s) and ${seals} seal(s).`,
    ...findings.map(({ kind, text }) => `  ${kind}: ${text}`),
  ];
  if (findingCount > findings.length) lines.push(`  … and ${findingCount - findings.length} more.`);
  if (droppedRows > 0) lines.push(`${droppedRows} row(s) were dropped after their retention ended.`);
  if (chains > 1)
    lines.push(`The database was restored from a dump ${chains - 1} time(s): there are ${chains} chains.`);
  if (unsealed.count > 0) {
    lines.push(`${unsealed.count} row(s) are not sealed yet, the oldest from ${unsealed.oldest ?? "?"}.`);
  }
  if (head !== null) lines.push(`Head (store it elsewhere): ${head}`);
  return lines.join("\n");
}
