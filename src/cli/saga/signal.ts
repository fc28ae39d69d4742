import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { signalSaga } from "../../admin/index.ts";
import { createIdSource, decodeJson, type AnyEvent, type Json } from "../../message/index.ts";
import { findNearest } from "../../options/index.ts";
import { randomBytes, systemClock } from "../../runtime/index.ts";
import { listSteps, type SagaDefinition } from "../../saga/index.ts";
import { readActorAndReason } from "../actor.ts";
import { textValue, UsageError, type CommandInput, type Io } from "../command.ts";
import { DONE } from "../exit-codes.ts";
import { jsonText, safeLines } from "../print.ts";
import { readId, rejectOtherOptions, withSagas } from "./input.ts";
import { loadDefinitions } from "./check.ts";

const newId = createIdSource({ wallMs: () => systemClock.wallMs(), randomBytes });

/** Brings one instance the event it waits for, held to the event's own schema. */
export async function signal(input: CommandInput, io: Io): Promise<number> {
  rejectOtherOptions(input, ["app", "event", "data-file", "signal-id", "actor", "reason"]);
  const sagaId = readId(input);
  const name = requireOption(input, "event", "<name>");
  const data = readData(requireOption(input, "data-file", "<file>"), io.cwd);
  const by = { ...readActorAndReason(input, io), id: textValue(input, "signal-id") ?? newId() };
  const definitions = await loadDefinitions(requireOption(input, "app", "<module>"), io);
  const event = findAwaitedEvent(definitions, name);
  const result = await withSagas(
    input,
    io,
    (admin) => signalSaga(admin, sagaId, event, data, by),
    definitions,
  );
  if (input.values["json"] === true) io.out(jsonText({ action: "signal", ...result }));
  else io.out(safeLines(resultText(name, result.accepted, sagaId)));
  return DONE;
}

function resultText(name: string, accepted: boolean, sagaId: string): string {
  return accepted
    ? `Brought "${name}". A worker goes on with it; see: sagabox saga show ${sagaId}`
    : `Nothing to do: a signal of this id was brought before. Saga ${sagaId}.`;
}

function findAwaitedEvent(definitions: readonly SagaDefinition[], name: string): AnyEvent {
  const events = new Map<string, AnyEvent>();
  for (const { nodes } of definitions) {
    for (const { step } of listSteps(nodes)) {
      if (step.work.kind === "wait") events.set(step.work.event.name, step.work.event);
    }
  }
  const found = events.get(name);
  if (found !== undefined) return found;
  const known = [...events.keys()];
  const suggestion = findNearest(name, known);
  if (suggestion !== undefined)
    throw new UsageError(`No saga waits for "${name}". Did you mean ${suggestion}?`);
  const list = known.length === 0 ? "none waits for any event" : `they wait for ${known.join(", ")}`;
  throw new UsageError(`No saga of this application waits for "${name}": ${list}.`);
}

// In a file, since others can read a command line in the list of processes.
function readData(file: string, folder: string): Json {
  let text: string;
  try {
    text = readFileSync(file === "-" ? 0 : resolve(folder, file), "utf8");
  } catch {
    throw new UsageError(`--data-file ${file} cannot be read.`);
  }
  try {
    return decodeJson(text);
  } catch {
    throw new UsageError(`--data-file ${file} is not JSON.`);
  }
}

function requireOption(input: CommandInput, name: string, value: string): string {
  return textValue(input, name) ?? throwMissing(`${name} ${value}`);
}

function throwMissing(option: string): never {
  throw new UsageError(`"sagabox saga signal" needs --${option}.`);
}
