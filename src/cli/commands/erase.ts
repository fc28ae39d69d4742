import type { ErasureReport } from "../../admin/index.ts";
import { type Command, type CommandInput, DONE, FAILED, type Io, STOPPED, UsageError } from "../command.ts";
import { confirmAction, dryRunOption, isDryRun, yesOption } from "../confirm.ts";
import { jsonText, table } from "../print.ts";
import { readReason, privacyOptions, readSubject, withPrivacy } from "../privacy/with-privacy.ts";

export const erase: Command = {
  name: "erase",
  summary: "Make everything that was sealed about a person unreadable, in every copy.",
  usage: [
    "erase <subject> --reason <text> [--force] [--dry-run] [--yes]",
    "erase --subject-file <file> --reason <text> [--force] [--dry-run] [--yes]",
  ],
  details: `Destroys the keys of the person, writes the erasure log and tells other services. It cannot be undone.
Exits with 1 when nobody is known by the id. It is a technical measure; whether it is enough is for you to judge.

Examples:
  sagabox erase --subject-file - --reason "request 4711" --dry-run < id.txt
  sagabox erase customer-17 --reason "request 4711" --yes

Connects to DATABASE_URL and reads the keys from SAGABOX_KEY_RING_FILE or SAGABOX_KEY_RING.`,
  options: {
    ...privacyOptions,
    "dry-run": dryRunOption,
    yes: yesOption,
    force: { type: "boolean", help: "Even while sagas about the person run; they are parked." },
  },
  async run(input, io) {
    const [given, ...rest] = input.positionals;
    if (rest.length > 0) throw new UsageError('"sagabox erase" takes one person.');
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
  const sagas = sagasParked.length === 0 ? "" : ` ${sagasParked.length} saga(s) about the person still run.`;
  return `${keysDestroyed} key(s) of the person are destroyed. That cannot be undone.${sagas}`;
}

function reportText(
  { outcome, known, keysDestroyed, sagasParked, scrubbed, swept, subject, remains }: ErasureReport,
  columns: number | undefined,
): string {
  const sagas = sagasParked.map(({ id, type, status }) => `  saga ${type} ${id} (${status})`);
  const left = table(
    ["Remains", "What", "Until"],
    remains.map(({ where, what, until }) => [where, what, until]),
    columns,
  );
  const would = known
    ? `${keysDestroyed} key(s) would be destroyed.`
    : "Nobody is known by this id: look whether it is the right one.";
  const done = {
    erased: `Erased: ${keysDestroyed} key(s) destroyed, ${scrubbed.deadLetters} dead letter(s), ${scrubbed.results} result(s) and ${scrubbed.errors} error text(s) cleaned.`,
    unknown: "Nobody is known by this id: nothing was ever sealed for it. Look whether it is the right one.",
    already: "Nothing was left to erase: it was done before.",
    "dry run": `Nothing was erased. ${would}`,
  }[outcome];
  const open =
    outcome === "erased" && !swept ? ["Transactions that were open are swept by a running worker."] : [];
  const parked = outcome === "dry run" ? "Still running, needs --force:" : "Parked:";
  // Nothing of theirs was ever here, so nothing remains. The line is kept: an open transaction may be about to write them.
  if (!known) return outcome === "dry run" ? done : `${done}\nIn the log as ${subject}`;
  return [
    done,
    ...open,
    ...(sagas.length === 0 ? [] : [parked, ...sagas]),
    `In the log as ${subject}`,
    "",
    left,
  ].join("\n");
}
