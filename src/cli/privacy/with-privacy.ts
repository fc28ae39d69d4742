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

/** Options of every command that handles personal data. */
export const privacyOptions: Readonly<Record<string, CommandOption>> = {
  "subject-file": {
    type: "string",
    value: "<file>",
    help: "Read the id of the data subject from this file; - reads standard input.",
  },
  reason: {
    type: "string",
    value: "<text>",
    help: "Reason, for the audit log: the number of the request, not a name.",
  },
  actor: { type: "string", value: "<name>", help: "Your name, for the audit log. Default: USER." },
  app: {
    type: "string",
    value: "<file>",
    help: "File that exports the bus, for keys that are kept in a key service.",
  },
  schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
  json: { type: "boolean", help: "Print JSON." },
};

/** Runs `work` with the keys of the environment, or with the application's bus if --app is given. */
export async function withPrivacy<T>(
  input: CommandInput,
  io: Io,
  work: (privacy: Privacy) => Promise<T>,
): Promise<T> {
  const app = textValue(input, "app");
  const bus = app === undefined ? await createPrivacyBus(input, io) : await loadApp(app, io.cwd);
  if (!("privacy" in bus)) throw new UsageError(`"${String(app)}" exports no bus.`);
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
  // An erasure must know every table with personal data, so the schema must have the version of this command.
  await withSchema(input, io, "privacy", (database) => assertMigrated(database, schema));
  return createBus({
    service: "sagabox-cli",
    database: env.databaseUrl,
    schema,
    log: false,
    outbox: { optimistic: false }, // the relay of a worker sends the messages written here
    ...(keys === undefined ? {} : { privacy: { keys } }),
  });
}

/**
 * Reads the id of the data subject from --subject-file, standard input or the argument. A file keeps the id out of the
 * process list, which other users can read.
 */
export function readSubject(input: CommandInput, io: Io, given: string | undefined): string {
  const file = textValue(input, "subject-file") ?? (given === "-" ? "-" : undefined);
  if (file !== undefined && (given ?? "") !== "" && given !== "-") {
    throw new UsageError("Pass the data subject either as an argument or with --subject-file, not both.");
  }
  const subject = file === undefined ? given : readSubjectFile(file, io.cwd);
  if (subject === undefined || subject === "")
    throw new UsageError("Pass the id of the data subject, or --subject-file <file>.");
  return subject;
}

function readSubjectFile(file: string, cwd: string): string {
  let text: string;
  try {
    text = readFileSync(file === "-" ? 0 : resolve(cwd, file), "utf8").replace(/\r?\n$/, "");
  } catch {
    throw new UsageError(`--subject-file ${file} cannot be read.`);
  }
  // A list of ids, or an id with a space, would match no data subject, and nothing would be erased.
  if (text !== text.trim() || text.includes("\n")) {
    throw new UsageError(`--subject-file ${file} must contain one id on one line, without spaces around it.`);
  }
  return text;
}

/** Reads --actor (or USER), which is required, and --reason, which is not. */
export function readOptionalReason(
  input: CommandInput,
  io: Io,
): { readonly reason?: string; readonly actor: string } {
  const reason = textValue(input, "reason");
  const actor = textValue(input, "actor") ?? io.env["USER"] ?? "";
  if (actor.trim() === "") throw new UsageError('Add --actor "$(whoami)": the audit log records who acted.');
  return reason === undefined ? { actor } : { actor, reason };
}

export function readReason(input: CommandInput, io: Io): { readonly reason: string; readonly actor: string } {
  return readActorAndReason(input, io);
}
