import { cancelSaga, compensateSaga, retryStep, settleStep, skipStep } from "../../admin/index.ts";
import type { ActionResult, SagaAdmin } from "../../admin/index.ts";
import type { Json } from "../../message/index.ts";
import type { Action } from "../actions.ts";
import { readActorAndReason } from "../actor.ts";
import { textValue, UsageError, type CommandInput, type Io } from "../command.ts";
import { confirmAction } from "../confirm.ts";
import { DONE, STOPPED } from "../exit-codes.ts";
import { jsonText, safeLines } from "../print.ts";
import { dropUndefined, withSagas } from "./input.ts";

type ActionKind = "retry" | "skip" | "settle" | "compensate" | "cancel";
type SagaOperation = (admin: SagaAdmin) => Promise<ActionResult>;

/** What a person decides about one instance. */
export function createAction(kind: ActionKind): Action["run"] {
  return async (input, io, id) => {
    const wish = readOperation(kind, id, input, io);
    const what = warningText(kind, id, textValue(input, "step"));
    if (what !== undefined && !(await confirmAction(input, io, { what }))) return STOPPED;
    const result = await withSagas(input, io, wish);
    if (input.values["json"] === true) io.out(jsonText({ action: kind, ...result }));
    else io.out(safeLines(resultText(kind, result)));
    return DONE;
  };
}

/** What a person should know before; a retry can be asked for again and again. */
function warningText(kind: ActionKind, id: string, step = ""): string | undefined {
  switch (kind) {
    case "retry":
      return undefined;
    case "skip":
      return `Saga ${id} would go on without step ${step}. That cannot be taken back.`;
    case "settle":
      return `Step ${step} of saga ${id} would count as done by hand. That cannot be taken back.`;
    case "compensate":
    case "cancel":
      return `Saga ${id} would undo what it did. That cannot be taken back.`;
  }
}

function readOperation(kind: ActionKind, id: string, input: CommandInput, io: Io): SagaOperation {
  const by = readActorAndReason(input, io);
  const step = textValue(input, "step");
  const requireStep = (): string => step ?? throwMissing(kind, "step <name>");
  switch (kind) {
    case "retry":
      return (admin) => retryStep(admin, id, { ...by, ...dropUndefined({ step }) });
    case "skip": {
      const options = { ...by, step: requireStep() };
      return (admin) => skipStep(admin, id, options);
    }
    case "settle": {
      const options = { ...by, step: requireStep(), ...dropUndefined({ result: resultValue(input) }) };
      return (admin) => settleStep(admin, id, options);
    }
    case "compensate":
      return (admin) => compensateSaga(admin, id, by);
    case "cancel":
      return (admin) => cancelSaga(admin, id, by);
  }
}

function throwMissing(kind: ActionKind, option: string): never {
  throw new UsageError(`"sagabox saga ${kind}" needs --${option}.`);
}

function resultValue(input: CommandInput): Json | undefined {
  const text = textValue(input, "result");
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text) as Json;
  } catch {
    throw new UsageError("--result must be JSON; a text stands in double quotes.");
  }
}

function resultText(kind: ActionKind, { sagaId, accepted }: ActionResult): string {
  if (!accepted) return `Nothing to do: "${kind}" was asked for before, or is so already. Saga ${sagaId}.`;
  return `Asked for "${kind}". A worker does it next; see: sagabox saga show ${sagaId}`;
}
