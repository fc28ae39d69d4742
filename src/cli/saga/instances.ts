import { auditFlags, quoteForShell } from "../../errors/index.ts";
import {
  type ActionResult,
  cancelSaga,
  compensateSaga,
  createSagaAdmin,
  findStuckSagas,
  listSagas,
  readSagaHistory,
  readSagaKeys,
  retryStep,
  type SagaAdmin,
  type SagaDetail,
  type SagaFilter,
  settleStep,
  showSaga,
  skipStep,
  type StepDetail,
  stepFailureText,
  type StuckOptions,
} from "../../admin/index.ts";
import { type Json, SUBJECT_ERASED } from "../../message/index.ts";
import type { SagaDefinition } from "../../saga/index.ts";
import { durationText, printable } from "../../telemetry/index.ts";
import type { Action } from "../actions.ts";
import { readActorAndReason } from "../actor.ts";
import { type CommandInput, DONE, FOUND, type Io, STOPPED, textValue, UsageError } from "../command.ts";
import { confirmAction } from "../confirm.ts";
import { dropUndefined, numberValue } from "../option-values.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { loadEnvironment, withSchema } from "../settings.ts";

export async function list(input: CommandInput, io: Io): Promise<number> {
  // The admin function checks the values, and its error lists the allowed ones.
  const filter = dropUndefined({
    type: textValue(input, "type"),
    status: textValue(input, "status"),
    step: textValue(input, "step"),
    key: textValue(input, "key"),
    correlationId: textValue(input, "correlation-id"),
    olderThan: textValue(input, "older-than"),
    limit: numberValue(input, "limit"),
    after: textValue(input, "after"),
  }) as SagaFilter;
  const sagas = await withSagas(input, io, (admin) => listSagas(admin, filter));
  if (input.values["json"] === true) {
    io.out(jsonText({ sagas }));
    return 0;
  }
  if (sagas.length === 0) {
    io.out("No saga was found.");
    return 0;
  }
  const rows = sagas.map((saga) => [
    saga.id,
    saga.type,
    saga.definitionVersion,
    saga.key,
    saga.status,
    saga.completedAt === null ? saga.waitsFor : null,
    saga.updatedAt,
    shorten(saga.lastError),
  ]);
  io.out(
    table(
      ["id", "type", "version", "key", "status", "waits for", "changed at", "last error"],
      rows,
      io.terminal?.columns,
    ),
  );
  return 0;
}

export async function show(input: CommandInput, io: Io, id: string): Promise<number> {
  const { state: _, ...saga } = await withSagas(input, io, (admin) => showSaga(admin, id));
  io.out(input.values["json"] === true ? jsonText(saga) : sagaText(saga, io.terminal?.columns));
  return 0;
}

export async function history(input: CommandInput, io: Io, id: string): Promise<number> {
  const options = dropUndefined({ limit: numberValue(input, "limit"), after: textValue(input, "after") });
  const lines = await withSagas(input, io, (admin) => readSagaHistory(admin, id, options));
  if (input.values["json"] === true) {
    io.out(jsonText({ id, history: lines }));
    return 0;
  }
  const rows = lines.map((line) => [
    line.at,
    line.version,
    line.event,
    line.step,
    line.from === null && line.to === null ? null : `${line.from ?? ""} → ${line.to ?? ""}`,
    shorten(line.note),
    line.cause,
    shorten(line.reason === null ? line.actor : `${line.actor ?? "?"}: ${line.reason}`),
  ]);
  io.out(table(["at", "nr", "event", "step", "change", "note", "cause", "by"], rows, io.terminal?.columns));
  return 0;
}

export async function stuck(input: CommandInput, io: Io): Promise<number> {
  const options = dropUndefined({
    olderThan: textValue(input, "older-than"),
    type: textValue(input, "type"),
    limit: numberValue(input, "limit"),
  }) as StuckOptions;
  const sagas = await withSagas(input, io, (admin) => findStuckSagas(admin, options));
  const code = input.values["check"] === true && sagas.length > 0 ? FOUND : DONE;
  if (input.values["json"] === true) {
    io.out(jsonText({ stuck: sagas }));
    return code;
  }
  if (sagas.length === 0) io.out("No saga is stuck.");
  for (const { id, type, key, status, reason, why, whatToDo } of sagas) {
    io.out(safeLines(`${id}  ${type} ${key}  ${status}  (${reason})`));
    io.out(safeLines(`  ${why.replaceAll("\n", " ")}\n  ${whatToDo}`));
  }
  return code;
}

function shorten(text: string | null): string | null {
  return text === null || text.length <= 80 ? text : `${text.slice(0, 79)}…`;
}

/** Renders one instance: facts, steps, possible actions and children. Control characters are removed. */
export function sagaText(saga: Omit<SagaDetail, "state">, columns?: number): string {
  const facts: readonly (readonly [string, string | null])[] = [
    ["saga", `${saga.type} version ${saga.definitionVersion}`],
    ["key", saga.key],
    ["correlation id", saga.correlationId],
    ["status", `${saga.status}${saga.pivoted ? ", past its pivot" : ""}`],
    ["turned back", saga.cause],
    ["waits for", saga.waitsFor === null ? null : `${saga.waitsFor} since ${saga.waitingSince ?? "?"}`],
    // A failed saga waits for an operator and not for a time.
    ["next due", saga.status === "failed" ? null : saga.dueAt],
    ["deadline", saga.deadlineAt],
    ["claimed by", saga.claimedBy === null ? null : `${saga.claimedBy} until ${saga.claimedUntil ?? "?"}`],
    ["pending input", saga.pendingInputs === 0 ? null : String(saga.pendingInputs)],
    ["created", saga.createdAt],
    ["changed", saga.updatedAt],
    ["completed", saga.completedAt],
    ["trace", saga.traceId],
    ["parent", saga.parent === null ? null : `${saga.parent.id}, step ${saga.parent.step}`],
    ["input", jsonText(saga.input)],
  ];
  const width = Math.max(...facts.map(([name]) => name.length));
  const lines = facts.flatMap(([name, value]) =>
    value === null ? [] : [`${name.padEnd(width)}  ${printable(value)}`],
  );
  return [
    `${printable(saga.id)}\n`,
    ...lines,
    "",
    stepTable(saga.steps, columns),
    ...incidentLines(saga),
    ...childLines(saga, columns),
  ].join("\n");
}

function stepTable(steps: readonly StepDetail[], columns: number | undefined): string {
  const rows = steps.flatMap((step) => {
    const own = [
      step.step,
      step.status,
      step.startedAt,
      tookText(step.durationMs),
      step.attempts,
      step.error,
    ];
    const { undo } = step;
    if (undo === null) return [own];
    return [
      own,
      ["  undo", undo.status, undo.startedAt, tookText(undo.durationMs), undo.attempts, undo.error],
    ];
  });
  return table(["step", "status", "started at", "took", "attempts", "error"], rows, columns);
}

function tookText(ms: number | null): string | null {
  return ms === null ? null : durationText(ms);
}

function incidentLines({ id, incident: open, steps }: Omit<SagaDetail, "state">): string[] {
  if (open === null) return [];
  if (open.error === SUBJECT_ERASED) {
    return [
      "",
      `An operator must decide since ${open.openedAt}: ${SUBJECT_ERASED}, and nothing can be undone without its state`,
      `  sagabox privacy end-saga ${id} ${auditFlags("data erased")}     # to end it in its current state`,
    ].map(printable);
  }
  const failures = open.steps.map((path) =>
    stepFailureText(path, steps.find(({ step }) => step === path) ?? { error: open.error }),
  );
  const ways = open.steps
    .map(quoteForShell)
    .flatMap((step) => [
      `  sagabox saga settle ${id} --step ${step} ${auditFlags("done by hand")} --yes     # if it was done by hand`,
      `  sagabox saga skip ${id} --step ${step} ${auditFlags("not needed")} --yes     # to continue without it`,
    ]);
  return [
    "",
    `An operator must decide since ${open.openedAt}: ${failures.join("; ")}`,
    `  sagabox saga retry ${id} ${auditFlags("cause fixed")}     # after the cause is fixed`,
    ...ways,
    ...open.deadLetters.map(
      (number) =>
        `  sagabox dlq show ${number}     the dead letter of its command, discarded with the incident`,
    ),
  ].map(printable);
}

function childLines({ children: all }: Omit<SagaDetail, "state">, columns: number | undefined): string[] {
  if (all.length === 0) return [];
  const rows = all.map(({ id, type, status, parent }) => [id, type, status, parent?.step ?? null]);
  return ["", table(["child", "type", "status", "step"], rows, columns)];
}

type ActionKind = "retry" | "skip" | "settle" | "compensate" | "cancel";
type SagaOperation = (admin: SagaAdmin) => Promise<ActionResult>;

/** Creates the action that carries out an operator's decision about one instance. */
export function createAction(kind: ActionKind): Action["run"] {
  return async (input, io, id) => {
    const operation = readOperation(kind, id, input, io);
    const what = warningText(kind, id, textValue(input, "step"));
    if (what !== undefined && !(await confirmAction(input, io, { what }))) return STOPPED;
    const result = await withSagas(input, io, operation);
    if (input.values["json"] === true) io.out(jsonText({ action: kind, ...result }));
    else io.out(safeLines(resultText(kind, result)));
    return DONE;
  };
}

/** Describes the consequence for the confirmation. Undefined for a retry, which needs none. */
function warningText(kind: ActionKind, id: string, step = ""): string | undefined {
  switch (kind) {
    case "retry":
      return undefined;
    case "skip":
      return `Saga ${id} will continue without step ${step}. This cannot be undone.`;
    case "settle":
      return `Step ${step} of saga ${id} will count as done by hand. This cannot be undone.`;
    case "compensate":
    case "cancel":
      return `Saga ${id} will undo its completed steps. This cannot be undone.`;
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
    throw new UsageError("--result must be JSON; write a string in double quotes.");
  }
}

function resultText(kind: ActionKind, { sagaId, accepted }: ActionResult): string {
  if (!accepted) return `Nothing to do: "${kind}" was already requested or is already done. Saga ${sagaId}.`;
  return `Requested "${kind}". A worker carries it out next; see: sagabox saga show ${sagaId}`;
}

/** Runs `work` with the saga operations on the database of the environment. */
export function withSagas<T>(
  input: CommandInput,
  io: Io,
  work: (admin: SagaAdmin) => Promise<T>,
  definitions: readonly SagaDefinition[] = [],
): Promise<T> {
  const { keyRing } = loadEnvironment(io);
  const keys = readSagaKeys({ text: keyRing, file: io.env["SAGABOX_KEY_RING_FILE"] });
  return withSchema(input, io, "operator", (database, schema) =>
    work(createSagaAdmin(database, schema, () => definitions, keys(database, schema))),
  );
}
