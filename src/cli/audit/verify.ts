import { sealAudit, verifyAudit, type VerifyProgress, type VerifyReport } from "../../admin/index.ts";
import { textValue, type CommandInput, type Io } from "../command.ts";
import { DONE, FOUND } from "../exit-codes.ts";
import { jsonText, safeLines } from "../print.ts";
import { startProgress } from "../progress.ts";
import { dropUndefined } from "../saga/input.ts";
import { withSchema } from "../settings.ts";
import { rejectOtherOptions } from "./reject-other-options.ts";

export async function verify(input: CommandInput, io: Io): Promise<number> {
  rejectOtherOptions(input, ["anchor"]);
  const told = startProgress(io, "seals");
  const onProgress = ({ seals, totalSeals, rows }: VerifyProgress): void =>
    told.update(seals, totalSeals, `${rows} rows`);
  const options = { ...dropUndefined({ anchor: textValue(input, "anchor") }), onProgress };
  const report = await withSchema(input, io, "operator", (database, schema) =>
    verifyAudit(database, schema, options),
  ).finally(() => told.end());
  io.out(input.values["json"] === true ? jsonText(report) : safeLines(reportText(report)));
  return report.ok ? DONE : FOUND;
}

export async function seal(input: CommandInput, io: Io): Promise<number> {
  rejectOtherOptions(input, []);
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
      ? `Whole: ${rows} row(s) are what they were when ${seals} seal(s) were made.`
      : `BROKEN: ${findingCount} finding(s) in ${rows} row(s) and ${seals} seal(s).`,
    ...findings.map(({ kind, text }) => `  ${kind}: ${text}`),
  ];
  if (findingCount > findings.length) lines.push(`  … and ${findingCount - findings.length} more.`);
  if (droppedRows > 0) lines.push(`${droppedRows} row(s) were dropped after their retention.`);
  if (chains > 1)
    lines.push(`The database was restored from a dump ${chains - 1} time(s): there are ${chains} chains.`);
  if (unsealed.count > 0) {
    lines.push(`${unsealed.count} row(s) are not sealed yet, the oldest of ${unsealed.oldest ?? "?"}.`);
  }
  if (head !== null) lines.push(`Head, to be kept elsewhere: ${head}`);
  return lines.join("\n");
}
