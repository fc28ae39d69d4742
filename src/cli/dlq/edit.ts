import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { editDeadLetter, planEdit, type EditOptions, type EditPlan } from "../../admin/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import type { AnyContract } from "../../message/index.ts";
import { readDecision } from "../actor.ts";
import { textValue, UsageError, type CommandInput, type Io } from "../command.ts";
import { confirmAction, isDryRun } from "../confirm.ts";
import { DONE, STOPPED } from "../exit-codes.ts";
import { loadApp } from "../load-app.ts";
import { jsonText, safeLines } from "../print.ts";
import { withDeadLetters } from "./input.ts";

/** `dlq edit <letter> --data-file <file>`: says what it would do, and does it once that is confirmed. */
export async function edit(input: CommandInput, io: Io): Promise<number> {
  const id = input.positionals[1] ?? "";
  const app = textValue(input, "app");
  const options: EditOptions = {
    data: readDataFile(input, io),
    ...(app === undefined ? {} : { contractOf: await loadContracts(app, io) }),
  };
  const dryRun = isDryRun(input);
  const by = dryRun ? undefined : readDecision(input, io);
  const planChange = () => withDeadLetters(input, io, (admin) => planEdit(admin, id, options));
  if (by !== undefined && input.values["yes"] !== true) {
    io.err(safeLines(planText(await planChange())));
    const what = `Letter ${id} goes back to where it failed with the new data.`;
    if (!(await confirmAction(input, io, { what }))) return STOPPED;
  }
  const plan =
    by === undefined
      ? await planChange()
      : await withDeadLetters(input, io, (admin) => editDeadLetter(admin, id, { ...options, ...by }));
  const { letter, beforeHash, afterHash } = plan;
  const { contract } = plan.edit;
  const told = { letter: id, messageId: letter.message.id, consumer: letter.consumer };
  if (input.values["json"] === true) io.out(jsonText({ dryRun, ...told, beforeHash, afterHash, contract }));
  else io.out(safeLines(`${planText(plan)}\n${doneText(plan, dryRun)}`));
  return DONE;
}

function planText({ letter, edit: { data, contract } }: EditPlan): string {
  const checked =
    contract === null
      ? "Only checked to be JSON: give --app <module> to hold it to its contract."
      : `Fits ${contract}.`;
  return [`before  ${letter.message.data}`, `after   ${data.replaceAll("\n", " ")}`, "", checked].join("\n");
}

function doneText({ letter: { id, consumer, message } }: EditPlan, dryRun: boolean): string {
  if (dryRun) return "Nothing was replayed: this was a dry run.";
  return `Letter ${id} is on its way to ${consumer ?? "the outbox"} with the new data. See: sagabox explain ${message.id}`;
}

function readDataFile(input: CommandInput, { cwd }: Io): string {
  const file = textValue(input, "data-file");
  if (file === undefined) throw new UsageError('"sagabox dlq edit" needs --data-file <file>.');
  try {
    return readFileSync(resolve(cwd, file), "utf8");
  } catch {
    throw new UsageError(`--data-file: ${file} cannot be read.`);
  }
}

/** The contracts of the handlers that the application registers with its bus. The bus is not run. */
async function loadContracts(app: string, { cwd }: Io): Promise<NonNullable<EditOptions["contractOf"]>> {
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
