import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { readKeyRingFromEnvironment } from "../../admin/index.ts";
import { createBus, type Bus } from "../../app/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { assertMigrated } from "../../storage/index.ts";
import { readActorAndReason } from "../actor.ts";
import { textValue, UsageError, type CommandInput, type CommandOption, type Io } from "../command.ts";
import { loadApp } from "../load-app.ts";
import { loadEnvironment, readSchemaName, withSchema } from "../settings.ts";

export type Privacy = Bus["privacy"];

/** Options that every command about persons takes. */
export const privacyOptions: Readonly<Record<string, CommandOption>> = {
  "subject-file": {
    type: "string",
    value: "<file>",
    help: "Read the person's id from this file, or from standard input with -.",
  },
  reason: {
    type: "string",
    value: "<text>",
    help: "Why, for the log: the number of the request, not a name.",
  },
  actor: { type: "string", value: "<name>", help: "Who does it. Default: USER." },
  app: {
    type: "string",
    value: "<file>",
    help: "Module that exports the bus, where its keys are in a service.",
  },
  schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
  json: { type: "boolean", help: "Print JSON." },
};

/** Runs `work` with the keys of the environment, or with the application's own bus. */
export async function withPrivacy<T>(
  input: CommandInput,
  io: Io,
  work: (privacy: Privacy) => Promise<T>,
): Promise<T> {
  const app = textValue(input, "app");
  const bus = app === undefined ? await createPrivacyBus(input, io) : await loadApp(app, io.cwd);
  if (!("privacy" in bus)) throw new UsageError(`"${String(app)}" exports no bus of sagabox.`);
  try {
    return await work(bus.privacy as Privacy);
  } finally {
    await bus.stop();
  }
}

async function createPrivacyBus(input: CommandInput, io: Io): Promise<Bus> {
  const env = loadEnvironment(io);
  if (env.databaseUrl === undefined) {
    throw new SagaboxError(
      "ENVIRONMENT_INVALID",
      "DATABASE_URL is not set. Set it to the URL of PostgreSQL.",
    );
  }
  const keys = readKeyRingFromEnvironment({ text: env.keyRing, file: io.env["SAGABOX_KEY_RING_FILE"] });
  const schema = readSchemaName(input, env);
  // Nothing of a person may be destroyed by who does not know all the places where it can be.
  await withSchema(input, io, "privacy", (database) => assertMigrated(database, schema));
  return createBus({
    service: "sagabox-cli",
    database: env.databaseUrl,
    schema,
    log: false,
    outbox: { optimistic: false }, // whoever runs a relay sends what was written here
    ...(keys === undefined ? {} : { privacy: { keys } }),
  });
}

/** The person, from where others cannot read it in the list of processes, or from the command line. */
export function readSubject(input: CommandInput, io: Io, given: string | undefined): string {
  const file = textValue(input, "subject-file") ?? (given === "-" ? "-" : undefined);
  if (file !== undefined && (given ?? "") !== "" && given !== "-") {
    throw new UsageError("Give the person either as an argument or with --subject-file, not both.");
  }
  const subject = file === undefined ? given : readSubjectFile(file, io.cwd);
  if (subject === undefined || subject === "")
    throw new UsageError("Whose data? Give the id of the person, or --subject-file.");
  return subject;
}

function readSubjectFile(file: string, cwd: string): string {
  let text: string;
  try {
    text = readFileSync(file === "-" ? 0 : resolve(cwd, file), "utf8").replace(/\r?\n$/, "");
  } catch {
    throw new UsageError(`--subject-file ${file} cannot be read.`);
  }
  // A list, or a stray blank, would be taken for the id of somebody nobody knows, and nothing would be erased.
  if (text !== text.trim() || text.includes("\n")) {
    throw new UsageError(`--subject-file ${file} must hold one id on one line, without blanks around it.`);
  }
  return text;
}

/** Who does it, and why if that was said. */
export function readOptionalReason(
  input: CommandInput,
  io: Io,
): { readonly reason?: string; readonly actor: string } {
  const reason = textValue(input, "reason");
  const actor = textValue(input, "actor") ?? io.env["USER"] ?? "";
  if (actor.trim() === "") throw new UsageError("It needs --actor <name>: who does it is written down.");
  return reason === undefined ? { actor } : { actor, reason };
}

export function readReason(input: CommandInput, io: Io): { readonly reason: string; readonly actor: string } {
  return readActorAndReason(input, io);
}
