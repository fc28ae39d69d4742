import { textValue, UsageError, type CommandInput, type CommandOption, type Io } from "./command.ts";

export const actorOption: CommandOption = {
  type: "string",
  value: "<name>",
  help: "Who does it. Default: USER.",
};
export const reasonOption: CommandOption = {
  type: "string",
  value: "<text>",
  help: "Why, for the audit log.",
};

interface ActorAndReason {
  readonly actor: string;
  readonly reason: string;
}

const WHO = "--actor <name>, or USER in the environment";
const WHY = "--reason <text>";

/** Who does it. It is written down. */
export function readActor(input: CommandInput, io: Io, otherwise = ""): string {
  const actor = textValue(input, "actor") ?? io.env["USER"] ?? otherwise;
  if (actor.trim() !== "") return actor;
  throw new UsageError(`It needs ${WHO}: who does it is written down.`);
}

/** Who does it and why; what is missing of the two is told at once. */
export function readActorAndReason(input: CommandInput, io: Io, hint = ""): ActorAndReason {
  const actor = textValue(input, "actor") ?? io.env["USER"] ?? "";
  const reason = textValue(input, "reason") ?? "";
  if (actor.trim() !== "" && reason.trim() !== "") return { actor, reason };
  if (reason.trim() !== "") throw new UsageError(`It needs ${WHO}: who does it is written down.${hint}`);
  if (actor.trim() !== "") throw new UsageError(`It needs ${WHY}: why it is done is written down.${hint}`);
  throw new UsageError(`It needs ${WHY}, and ${WHO}: who does it and why is written down.${hint}`);
}

/** The same for what can be looked at first. */
export function readDecision(input: CommandInput, io: Io): ActorAndReason {
  return readActorAndReason(input, io, " With --dry-run it only says what it would do.");
}
