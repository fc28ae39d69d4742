import { listSagas, sagaHistory, showSaga, stuckSagas } from "../../admin/index.ts";
import type { SagaFilter, StuckOptions } from "../../admin/index.ts";
import { textValue, type CommandInput, type Io } from "../command.ts";
import { DONE, FOUND } from "../exit-codes.ts";
import { json, safeLines, table } from "../print.ts";
import { given, idOf, noArgument, numberValue, onlyOptions, withSagas } from "./input.ts";
import { sagaText } from "./saga-text.ts";

export async function list(input: CommandInput, io: Io): Promise<number> {
  onlyOptions(input, ["type", "status", "step", "key", "correlation-id", "older-than", "limit", "after"]);
  noArgument(input);
  // The function behind checks these values, and says which are allowed.
  const filter = given({
    type: textValue(input, "type"),
    status: textValue(input, "status"),
    step: textValue(input, "step"),
    correlationId: textValue(input, "key"),
    messageCorrelationId: textValue(input, "correlation-id"),
    olderThan: textValue(input, "older-than"),
    limit: numberValue(input, "limit"),
    after: textValue(input, "after"),
  }) as SagaFilter;
  const sagas = await withSagas(input, io, (admin) => listSagas(admin, filter));
  if (input.values["json"] === true) {
    io.out(json({ sagas }));
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
    saga.correlationId,
    saga.status,
    saga.endedAt === null ? saga.waitsFor : null,
    saga.updatedAt,
    short(saga.lastError),
  ]);
  io.out(table(["id", "type", "version", "key", "status", "waits for", "changed at", "last error"], rows));
  return 0;
}

export async function show(input: CommandInput, io: Io): Promise<number> {
  onlyOptions(input, []);
  const id = idOf(input);
  const { state: _, ...saga } = await withSagas(input, io, (admin) => showSaga(admin, id));
  io.out(input.values["json"] === true ? json(saga) : sagaText(saga));
  return 0;
}

export async function history(input: CommandInput, io: Io): Promise<number> {
  onlyOptions(input, ["limit", "after"]);
  const id = idOf(input);
  const options = given({ limit: numberValue(input, "limit"), after: textValue(input, "after") });
  const lines = await withSagas(input, io, (admin) => sagaHistory(admin, id, options));
  if (input.values["json"] === true) {
    io.out(json({ id, history: lines }));
    return 0;
  }
  const rows = lines.map((line) => [
    line.at,
    line.version,
    line.event,
    line.step,
    line.from === null && line.to === null ? null : `${line.from ?? ""} → ${line.to ?? ""}`,
    short(line.note),
    line.cause,
    short(line.reason === null ? line.actor : `${line.actor ?? "?"}: ${line.reason}`),
  ]);
  io.out(table(["at", "nr", "event", "step", "change", "note", "cause", "by"], rows));
  return 0;
}

export async function stuck(input: CommandInput, io: Io): Promise<number> {
  onlyOptions(input, ["older-than", "type", "limit", "check"]);
  noArgument(input);
  const options = given({
    olderThan: textValue(input, "older-than"),
    type: textValue(input, "type"),
    limit: numberValue(input, "limit"),
  }) as StuckOptions;
  const sagas = await withSagas(input, io, (admin) => stuckSagas(admin, options));
  const code = input.values["check"] === true && sagas.length > 0 ? FOUND : DONE;
  if (input.values["json"] === true) {
    io.out(json({ stuck: sagas }));
    return code;
  }
  if (sagas.length === 0) io.out("No saga is stuck.");
  for (const { id, type, correlationId, status, reason, why, whatToDo } of sagas) {
    io.out(safeLines(`${id}  ${type} ${correlationId}  ${status}  (${reason})`));
    io.out(safeLines(`  ${why.replaceAll("\n", " ")}\n  ${whatToDo}`));
  }
  return code;
}

function short(text: string | null): string | null {
  return text === null || text.length <= 80 ? text : `${text.slice(0, 79)}…`;
}
