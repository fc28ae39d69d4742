import { textValue, UsageError, type CommandInput, type CommandOption, type Io } from "./command.ts";

export const actorOption: CommandOption = {
  type: "string",
  value: "<name>",
  help: "Your name, for the audit log. Default: USER.",
};
export const reasonOption: CommandOption = {
  type: "string",
  value: "<text>",
  help: "Reason, for the audit log.",
};

interface ActorAndReason {
  readonly actor: string;
  readonly reason: string;
}

const WHO = '--actor "$(whoami)"';
const WHY = '--reason "why"';

/** Reads --actor or USER for the audit log. Throws a `UsageError` when both are missing and there is no `fallback`. */
export function readActor(input: CommandInput, io: Io, fallback = ""): string {
  const actor = textValue(input, "actor") ?? io.env["USER"] ?? fallback;
  if (actor.trim() !== "") return actor;
  throw new UsageError(`Add ${WHO}: the audit log records who acted.`);
}

/** Reads --actor (or USER) and --reason for the audit log. Throws one `UsageError` that names everything missing. */
export function readActorAndReason(input: CommandInput, io: Io, hint = ""): ActorAndReason {
  const actor = textValue(input, "actor") ?? io.env["USER"] ?? "";
  const reason = textValue(input, "reason") ?? "";
  if (actor.trim() !== "" && reason.trim() !== "") return { actor, reason };
  if (reason.trim() !== "") throw new UsageError(`Add ${WHO}: the audit log records who acted.${hint}`);
  if (actor.trim() !== "") throw new UsageError(`Add ${WHY}: the audit log records the reason.${hint}`);
  throw new UsageError(`Add ${WHO} ${WHY}: the audit log records who acted and why.${hint}`);
}

/** Reads actor and reason of an action that has a dry run; the error text mentions --dry-run. */
export function readDecision(input: CommandInput, io: Io): ActorAndReason {
  return readActorAndReason(input, io, " With --dry-run the command only prints what it would do.");
}
