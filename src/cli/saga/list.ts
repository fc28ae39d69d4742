import { listSagas, readSagaHistory, showSaga, findStuckSagas } from "../../admin/index.ts";
import type { SagaFilter, StuckOptions } from "../../admin/index.ts";
import { textValue, type CommandInput, type Io } from "../command.ts";
import { DONE, FOUND } from "../exit-codes.ts";
import { jsonText, safeLines, table } from "../print.ts";
import {
  dropUndefined,
  readId,
  rejectArguments,
  numberValue,
  rejectOtherOptions,
  withSagas,
} from "./input.ts";
import { sagaText } from "./saga-text.ts";

export async function list(input: CommandInput, io: Io): Promise<number> {
  rejectOtherOptions(input, [
    "type",
    "status",
    "step",
    "key",
    "correlation-id",
    "older-than",
    "limit",
    "after",
  ]);
  rejectArguments(input);
  // The function behind checks these values, and says which are allowed.
  const filter = dropUndefined({
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
    saga.correlationId,
    saga.status,
    saga.endedAt === null ? saga.waitsFor : null,
    saga.updatedAt,
    shorten(saga.lastError),
  ]);
  io.out(table(["id", "type", "version", "key", "status", "waits for", "changed at", "last error"], rows));
  return 0;
}

export async function show(input: CommandInput, io: Io): Promise<number> {
  rejectOtherOptions(input, []);
  const id = readId(input);
  const { state: _, ...saga } = await withSagas(input, io, (admin) => showSaga(admin, id));
  io.out(input.values["json"] === true ? jsonText(saga) : sagaText(saga));
  return 0;
}

export async function history(input: CommandInput, io: Io): Promise<number> {
  rejectOtherOptions(input, ["limit", "after"]);
  const id = readId(input);
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
  io.out(table(["at", "nr", "event", "step", "change", "note", "cause", "by"], rows));
  return 0;
}

export async function stuck(input: CommandInput, io: Io): Promise<number> {
  rejectOtherOptions(input, ["older-than", "type", "limit", "check"]);
  rejectArguments(input);
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
  for (const { id, type, correlationId, status, reason, why, whatToDo } of sagas) {
    io.out(safeLines(`${id}  ${type} ${correlationId}  ${status}  (${reason})`));
    io.out(safeLines(`  ${why.replaceAll("\n", " ")}\n  ${whatToDo}`));
  }
  return code;
}

function shorten(text: string | null): string | null {
  return text === null || text.length <= 80 ? text : `${text.slice(0, 79)}…`;
}
