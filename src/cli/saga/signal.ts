import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { signalSaga } from "../../admin/index.ts";
import { createIdSource, decodeJson, type AnyEvent, type Json } from "../../message/index.ts";
import { nearest } from "../../options/index.ts";
import { randomBytes, systemClock } from "../../runtime/index.ts";
import { stepsOf, type SagaDefinition } from "../../saga/index.ts";
import { whoAndWhy } from "../acting.ts";
import { textValue, UsageError, type CommandInput, type Io } from "../command.ts";
import { DONE } from "../exit-codes.ts";
import { json, safeLines } from "../print.ts";
import { idOf, onlyOptions, withSagas } from "./input.ts";
import { definitionsOf } from "./play.ts";

const newId = createIdSource({ wallMs: () => systemClock.wallMs(), randomBytes });

/** Brings one instance the event it waits for, held to the event's own schema. */
export async function signal(input: CommandInput, io: Io): Promise<number> {
  onlyOptions(input, ["app", "event", "data-file", "signal-id", "actor", "reason"]);
  const sagaId = idOf(input);
  const name = needed(input, "event", "<name>");
  const data = dataOf(needed(input, "data-file", "<file>"), io.cwd);
  const by = { ...whoAndWhy(input, io), id: textValue(input, "signal-id") ?? newId() };
  const definitions = await definitionsOf(needed(input, "app", "<module>"), io);
  const event = awaited(definitions, name);
  const result = await withSagas(
    input,
    io,
    (admin) => signalSaga(admin, sagaId, event, data, by),
    definitions,
  );
  if (input.values["json"] === true) io.out(json({ action: "signal", ...result }));
  else io.out(safeLines(told(name, result.accepted, sagaId)));
  return DONE;
}

function told(name: string, accepted: boolean, sagaId: string): string {
  return accepted
    ? `Brought "${name}". A worker goes on with it; see: sagabox saga show ${sagaId}`
    : `Nothing to do: a signal of this id was brought before. Saga ${sagaId}.`;
}

function awaited(definitions: readonly SagaDefinition[], name: string): AnyEvent {
  const events = new Map<string, AnyEvent>();
  for (const { nodes } of definitions) {
    for (const { step } of stepsOf(nodes)) {
      if (step.work.kind === "wait") events.set(step.work.event.name, step.work.event);
    }
  }
  const found = events.get(name);
  if (found !== undefined) return found;
  const known = [...events.keys()];
  const suggestion = nearest(name, known);
  if (suggestion !== undefined)
    throw new UsageError(`No saga waits for "${name}". Did you mean ${suggestion}?`);
  const list = known.length === 0 ? "none waits for any event" : `they wait for ${known.join(", ")}`;
  throw new UsageError(`No saga of this application waits for "${name}": ${list}.`);
}

// In a file, since others can read a command line in the list of processes.
function dataOf(file: string, folder: string): Json {
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

function needed(input: CommandInput, name: string, value: string): string {
  return textValue(input, name) ?? missing(`${name} ${value}`);
}

function missing(option: string): never {
  throw new UsageError(`"sagabox saga signal" needs --${option}.`);
}
