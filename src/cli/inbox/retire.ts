import { planRetirement, retireConsumer, type RetirePlan } from "../../admin/index.ts";
import { readDecision } from "../actor.ts";
import type { CommandInput, Io } from "../command.ts";
import { confirmAction, isDryRun } from "../confirm.ts";
import { DONE, STOPPED } from "../exit-codes.ts";
import { jsonText, safeLines } from "../print.ts";
import { withSchema } from "../settings.ts";

const KEPT_NOTE = "What it has handled stays known, and its dead letters stay.";

/** `inbox retire <consumer>`: says what goes with it, and does it once that is confirmed. */
export async function retire(input: CommandInput, io: Io): Promise<number> {
  const [, consumer = ""] = input.positionals;
  const asJson = input.values["json"] === true;
  if (isDryRun(input)) {
    const plan = await withSchema(input, io, "viewer", (database, schema) =>
      planRetirement(database, schema, consumer),
    );
    const text = `${planText(plan, "would go")} ${KEPT_NOTE} Nothing was changed: this was a dry run.`;
    io.out(asJson ? jsonText({ dryRun: true, ...plan }) : safeLines(text));
    return DONE;
  }
  const by = readDecision(input, io);
  return withSchema(input, io, "operator", async (database, schema) => {
    if (input.values["yes"] !== true) {
      const what = `${planText(await planRetirement(database, schema, consumer), "go")} ${KEPT_NOTE}`;
      if (!(await confirmAction(input, io, { what, word: consumer }))) return STOPPED;
    }
    const retired = await retireConsumer(database, schema, consumer, by);
    io.out(
      asJson
        ? jsonText({ dryRun: false, ...retired })
        : safeLines(`${planText(retired, "are gone")} ${KEPT_NOTE}`),
    );
    return DONE;
  });
}

function planText({ consumer, topics, deliveries }: RetirePlan, go: string): string {
  const some = topics.slice(0, 10).join(", ");
  const more = topics.length > 10 ? ` and ${topics.length - 10} more` : "";
  const to = topics.length === 0 ? "" : ` (${some}${more})`;
  return `${topics.length} subscription(s)${to} of consumer ${consumer} and ${deliveries} message(s) that wait for it ${go}.`;
}
