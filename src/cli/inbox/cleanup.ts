import { cleanInbox, planInboxCleaning } from "../../admin/index.ts";
import { readActor } from "../actor.ts";
import { textValue, type CommandInput, type Io } from "../command.ts";
import { confirmAction, isDryRun } from "../confirm.ts";
import { DONE, STOPPED } from "../exit-codes.ts";
import { runInterruptible } from "../interrupt.ts";
import { readKeep } from "../keep.ts";
import { jsonText } from "../print.ts";
import { startProgress } from "../progress.ts";
import { withSchema } from "../settings.ts";

const DAY_MS = 86_400_000;

export function cleanup(input: CommandInput, io: Io): Promise<number> {
  const keep = readKeep(input);
  const actor = readActor(input, io, "scheduled job");
  const reason = textValue(input, "reason");
  const asJson = input.values["json"] === true;
  return withSchema(input, io, "owner", async (database, schema) => {
    const plan = await planInboxCleaning(database, schema, keep);
    const kept = `Kept are ${Math.ceil(plan.keepMs / DAY_MS)} days: what could still arrive again, and two more.`;
    if (isDryRun(input)) {
      io.out(
        asJson
          ? jsonText({ dryRun: true, ...plan })
          : `Nothing was changed. ${plan.due} row(s) would go. ${kept}`,
      );
      return DONE;
    }
    const what = `${plan.due} row(s) of the inbox are forgotten.`;
    if (!(await confirmAction(input, io, { what, matters: plan.due > 0 }))) return STOPPED;
    const told = startProgress(io, "rows");
    const result = await runInterruptible(io, (signal) => {
      const onProgress = (count: number): void => told.update(count, Math.max(plan.due, count));
      return cleanInbox(database, schema, { keep, actor, reason, signal, onProgress });
    }).finally(() => told.end());
    io.out(asJson ? jsonText({ dryRun: false, ...result }) : `${result.forgotten} row(s) forgotten. ${kept}`);
    return result.finished ? DONE : STOPPED;
  });
}
