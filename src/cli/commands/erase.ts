import type { ErasureReport } from "../../admin/index.ts";
import { type Command, type CommandInput, DONE, FAILED, type Io, STOPPED, UsageError } from "../command.ts";
import { confirmAction, dryRunOption, isDryRun, yesOption } from "../confirm.ts";
import { jsonText, table } from "../print.ts";
import { readReason, privacyOptions, readSubject, withPrivacy } from "../privacy/with-privacy.ts";

export const erase: Command = {
  name: "erase",
  summary: "Make all encrypted data about a data subject unreadable, in every copy.",
  usage: [
    "erase <subject> --reason <text> [--force] [--dry-run] [--yes]",
    "erase --subject-file <file> --reason <text> [--force] [--dry-run] [--yes]",
  ],
  details: `Destroys the keys of the data subject, writes the erasure log and notifies other services. It cannot be undone. Exit code 1
if the id is unknown. Erasure is a technical measure; whether it is legally sufficient is your decision.

Examples:
  sagabox erase --subject-file - --reason "request 4711" --dry-run < id.txt
  sagabox erase customer-17 --reason "request 4711" --yes

Connects to DATABASE_URL and reads the keys from SAGABOX_KEY_RING_FILE or SAGABOX_KEY_RING.`,
  options: {
    ...privacyOptions,
    "dry-run": dryRunOption,
    yes: yesOption,
    force: { type: "boolean", help: "Erase even while sagas about the data subject run; they are parked." },
  },
  async run(input, io) {
    const [given, ...rest] = input.positionals;
    if (rest.length > 0) throw new UsageError('"sagabox erase" takes one data subject.');
    const subject = readSubject(input, io, given);
    const because = readReason(input, io);
    const options = { ...because, force: input.values["force"] === true };
    return withPrivacy(input, io, async (privacy) => {
      const planErasure = () => privacy.erase(subject, { ...options, dryRun: true });
      if (isDryRun(input)) return printReport(await planErasure(), input, io);
      if (input.values["yes"] !== true) {
        const plan = await planErasure();
        if (!plan.known) return printReport(plan, input, io);
        if (!(await confirmAction(input, io, { what: confirmationText(plan) }))) return STOPPED;
      }
      return printReport(await privacy.erase(subject, options), input, io);
    });
  },
};

function printReport(report: ErasureReport, input: CommandInput, io: Io): number {
  io.out(input.values["json"] === true ? jsonText(report) : reportText(report, io.terminal?.columns));
  return report.known ? DONE : FAILED;
}

function confirmationText({ keysDestroyed, sagasParked }: ErasureReport): string {
  const sagas =
    sagasParked.length === 0 ? "" : ` ${sagasParked.length} saga(s) about the data subject still run.`;
  return `${keysDestroyed} key(s) of the data subject are destroyed. This cannot be undone.${sagas}`;
}

function reportText(
  { outcome, known, keysDestroyed, sagasParked, scrubbed, swept, subject, remains }: ErasureReport,
  columns: number | undefined,
): string {
  const sagas = sagasParked.map(({ id, type, status }) => `  saga ${type} ${id} (${status})`);
  const left = table(
    ["remains", "what", "until"],
    remains.map(({ where, what, until }) => [where, what, until]),
    columns,
  );
  const would = known
    ? `${keysDestroyed} key(s) would be destroyed.`
    : "No data subject has this id. Check the id.";
  const done = {
    erased: `Erased: ${keysDestroyed} key(s) destroyed, ${scrubbed.deadLetters} dead letter(s), ${scrubbed.results} result(s) and ${scrubbed.errors} error text(s) cleaned.`,
    unknown: "No data subject has this id: nothing was ever encrypted for it. Check the id.",
    already: "Nothing was left to erase: this data subject was already erased.",
    "dry run": `Dry run: nothing was erased. ${would}`,
  }[outcome];
  const open =
    outcome === "erased" && !swept
      ? ["A running worker also erases what open transactions are still writing."]
      : [];
  const parked = outcome === "dry run" ? "Still running (needs --force):" : "Parked:";
  // Nothing is stored for an unknown id, so nothing remains. The entry is kept for open transactions that may still write.
  if (!known) return outcome === "dry run" ? done : `${done}\nErasure log entry: ${subject}`;
  return [
    done,
    ...open,
    ...(sagas.length === 0 ? [] : [parked, ...sagas]),
    `Erasure log entry: ${subject}`,
    "",
    left,
  ].join("\n");
}
