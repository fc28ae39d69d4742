import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { editLetter, planEdit, type EditOptions, type EditPlan } from "../../admin/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import type { AnyContract } from "../../message/index.ts";
import { actorOf, reasonOf } from "../acting.ts";
import { textValue, UsageError, type CommandInput, type Io } from "../command.ts";
import { DONE } from "../exit-codes.ts";
import { loadApp } from "../load-app.ts";
import { json, safeLines } from "../print.ts";
import { withLetters } from "./input.ts";

/** `dlq edit <letter> --data-file <file>`: says what it would do, and does it with --yes. */
export async function edit(input: CommandInput, io: Io): Promise<number> {
  const id = input.positionals[1] ?? "";
  const app = textValue(input, "app");
  const options: EditOptions = {
    data: fileOf(input, io),
    ...(app === undefined ? {} : { contractOf: await contractsOf(app, io) }),
  };
  const dryRun = input.values["yes"] !== true || input.values["dry-run"] === true;
  const by = dryRun ? undefined : { actor: actorOf(input, io), reason: reasonOf(input) };
  const plan = await withLetters(input, io, (admin) =>
    by === undefined ? planEdit(admin, id, options) : editLetter(admin, id, { ...options, ...by }),
  );
  const { letter, beforeHash, afterHash } = plan;
  const { contract } = plan.edit;
  const told = { letter: id, messageId: letter.message.id, consumer: letter.consumer };
  if (input.values["json"] === true) io.out(json({ dryRun, ...told, beforeHash, afterHash, contract }));
  else io.out(safeLines(planText(plan, dryRun)));
  return DONE;
}

function planText({ letter, edit: { data, contract } }: EditPlan, dryRun: boolean): string {
  const checked =
    contract === null
      ? "Only checked to be JSON: give --app <module> to hold it to its contract."
      : `Fits ${contract}.`;
  const done = dryRun
    ? "Nothing was replayed: this was a dry run. Add --yes and --reason <text> to do it."
    : `Letter ${letter.id} is on its way to ${letter.consumer ?? "the outbox"} with the new data. See: sagabox explain ${letter.message.id}`;
  return [`before  ${letter.message.data}`, `after   ${data.replaceAll("\n", " ")}`, "", checked, done].join(
    "\n",
  );
}

function fileOf(input: CommandInput, { cwd }: Io): string {
  const file = textValue(input, "data-file");
  if (file === undefined) throw new UsageError('"sagabox dlq edit" needs --data-file <file>.');
  try {
    return readFileSync(resolve(cwd, file), "utf8");
  } catch {
    throw new UsageError(`--data-file: ${file} cannot be read.`);
  }
}

/** The contracts of the handlers that the application registers with its bus. The bus is not run. */
async function contractsOf(app: string, { cwd }: Io): Promise<NonNullable<EditOptions["contractOf"]>> {
  const bus = await loadApp(app, cwd);
  try {
    const { deadLetters } = bus as { deadLetters?: { contracts?: () => readonly HandledContract[] } };
    if (typeof deadLetters?.contracts !== "function") {
      throw new SagaboxError(
        "APP_MODULE_INVALID",
        `"${app}" exports a bus that knows nothing of dead letters.`,
      );
    }
    const all = deadLetters.contracts();
    return (consumer, type) =>
      all.find((one) => one.contract.name === type && (consumer === null || one.consumer === consumer))
        ?.contract;
  } finally {
    await bus.stop();
  }
}

interface HandledContract {
  readonly consumer: string;
  readonly contract: AnyContract;
}
