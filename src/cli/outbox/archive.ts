import { archiveOutbox, planArchive, type ArchiveResult } from "../../admin/index.ts";
import { readActor } from "../actor.ts";
import { textValue, type CommandInput, type Io } from "../command.ts";
import { confirmAction, isDryRun } from "../confirm.ts";
import { DONE, FAILED, STOPPED } from "../exit-codes.ts";
import { runInterruptible } from "../interrupt.ts";
import { readKeep } from "../keep.ts";
import { jsonText } from "../print.ts";
import { startProgress } from "../progress.ts";
import { withSchema } from "../settings.ts";

export function archive(input: CommandInput, io: Io): Promise<number> {
  const keep = readKeep(input);
  const actor = readActor(input, io, "scheduled job");
  const reason = textValue(input, "reason");
  return withSchema(input, io, "owner", async (database, schema) => {
    const plan = await planArchive(database, schema, keep);
    if (isDryRun(input)) {
      io.out(input.values["json"] === true ? jsonText({ dryRun: true, ...plan }) : planText(plan));
      return DONE;
    }
    const what = `${plan.drop.length} partition(s) older than ${keep} are dropped for ever.`;
    if (!(await confirmAction(input, io, { what, matters: plan.drop.length > 0 }))) return STOPPED;
    const told = startProgress(io, "partitions");
    const total = plan.attach.length + plan.drop.length;
    const result = await runInterruptible(io, async (signal) => {
      const onPartition = (count: number): void => told.update(count, total);
      const done = await archiveOutbox(database, schema, { keep, actor, reason, signal, onPartition });
      return { ...done, stopped: signal.aborted };
    }).finally(() => told.end());
    io.out(input.values["json"] === true ? jsonText({ dryRun: false, ...result }) : resultText(result));
    if (result.stopped) return STOPPED;
    return result.finished ? DONE : FAILED;
  });
}

function planText({ attach, drop }: { attach: readonly string[]; drop: readonly string[] }): string {
  return [
    `Nothing was changed. ${attach.length} partition(s) would be attached, ${drop.length} dropped.`,
    ...drop.map((name) => `  would drop ${name}`),
  ].join("\n");
}

function resultText({ attached, dropped, kept, forgottenIds }: ArchiveResult): string {
  const told = `${attached.length} partition(s) attached, ${dropped.length} dropped, ${forgottenIds} chosen id(s) forgotten.`;
  return [told, ...kept.map((name) => `In use just now, to be tried again: ${name}`)].join("\n");
}
